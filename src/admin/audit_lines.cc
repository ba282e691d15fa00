#include "admin/audit_lines.h"

#include "admin/key_search.h"
#include "admin/record_json.h"
#include "audit/read_audit.h"
#include "base/timestamp.h"
#include "core/redaction.h"

#include <charconv>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::size_t kLinesUsual = 100;
constexpr std::size_t kLinesMax = 1000;

// A line as the API shows it: `at` and `id` for `time` and `record`, and all members that every line may have.
json::object line_json(const std::string& line) {
  json::error_code error;
  const json::value parsed = json::parse(line, error);
  json::object out;
  if (error || !parsed.is_object()) return out;
  const auto copy = [&](std::string_view to, std::string_view from) {
    const json::value* const value = parsed.get_object().if_contains(json::string_view(from.data(), from.size()));
    out[json::string_view(to.data(), to.size())] = value == nullptr ? json::value() : *value;
  };
  copy("n", "n");
  copy("at", "time");
  copy("id", "record");
  for (const std::string_view name : {"event", "gateway", "key", "route", "decision", "status", "fence", "trace",
                                      "first_trace", "who", "action", "result", "reason"})
    copy(name, name);
  return out;
}

Result<std::string> instant(std::string_view name, std::string_view text) {
  if (text.empty()) return std::string();
  if (const auto at = parse_timestamp(text)) return timestamp(*at);
  return invalid(fmt::format("{}: expected a time as 2026-01-02 or 2026-01-02T03:04:05Z", name));
}

Result<json::object> page_of(GatewayShared& shared, const AuditQuery& query) {
  if (shared.audit == nullptr) return invalid("this gateway writes no audit log (audit_log = \"off\")");
  shared.audit->flush(); // an operator who has just acted finds the line
  const Result<AuditFiles> files = audit_files_of(shared.audit->path());
  if (!files) return files.fault();
  const Result<AuditPage> page = read_audit(*files, query);
  if (!page) return page.fault();
  json::array lines;
  for (const std::string& line : page->lines) lines.push_back(line_json(line));
  return json::object{{"lines", std::move(lines)},
                      {"next", page->next == 0 ? json::value() : json::value(page->next)},
                      {"looked", page->looked},
                      {"back_to", page->back_to.empty() ? json::value() : json::value(page->back_to)},
                      {"from", "log"}};
}

Result<std::uint64_t> number_in(std::string_view name, std::string_view text, std::uint64_t usual) {
  if (text.empty()) return usual;
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc{} && end == text.data() + text.size() && number > 0) return number;
  return invalid(fmt::format("{}: expected a whole number from 1 on", name));
}

PageAnswer answer_of(const Result<json::object>& page) {
  if (page) return json_answer(*page);
  return refused(page.fault().kind == FaultKind::invalid ? 400 : 503, page.fault().message);
}

} // namespace

void audit_action(GatewayShared& shared, const AuditLine& line) {
  if (shared.audit == nullptr) return;
  shared.audit->write({.event = "action",
                       .record = line.id,
                       .who = line.who,
                       .action = line.action,
                       .result = line.result,
                       .reason = line.reason});
}

PageAnswer audit_log_page(GatewayShared& shared, std::string_view query) {
  const Result<std::uint64_t> limit = number_in("limit", query_value(query, "limit"), kLinesUsual);
  if (!limit) return refused(400, limit.fault().message);
  const Result<std::uint64_t> before = number_in("before", query_value(query, "before"), 0);
  if (!before) return refused(400, before.fault().message);
  const Result<std::string> since = instant("since", decoded_query_value(query, "since"));
  if (!since) return refused(400, since.fault().message);
  const Result<std::string> until = instant("until", decoded_query_value(query, "until"));
  if (!until) return refused(400, until.fault().message);
  AuditQuery wanted{.before = *before,
                    .limit = static_cast<std::size_t>(std::min<std::uint64_t>(*limit, kLinesMax)),
                    .since = *since,
                    .until = *until};
  const std::string_view record = query_value(query, "record");
  if (!record.empty()) {
    if (!record_id_from_hex(record)) return refused(400, "record: expected the 64 hex digits of a record's id");
    wanted.records.emplace_back(record);
  }
  if (record.empty() && query_value(query, "events") != "all") wanted.event = "action";
  return answer_of(page_of(shared, wanted));
}

PageAnswer audit_memory_page(const AuditTrail& trail, std::string_view query) {
  const Result<std::uint64_t> limit = number_in("limit", query_value(query, "limit"), kLinesUsual);
  if (!limit) return refused(400, limit.fault().message);
  const Result<std::uint64_t> before = number_in("before", query_value(query, "before"), 0);
  if (!before) return refused(400, before.fault().message);
  const Result<std::string> until = instant("until", decoded_query_value(query, "until"));
  if (!until) return refused(400, until.fault().message);
  const auto end = parse_timestamp(*until);
  const std::vector<AuditLine> found =
      trail.newest(std::min<std::uint64_t>(*limit, kLinesMax), *before,
                   end ? std::optional(std::chrono::time_point_cast<Millis>(*end)) : std::nullopt);
  json::array lines;
  for (const AuditLine& line : found) {
    json::object shown = audit_json(line);
    shown["n"] = line.n;
    lines.push_back(std::move(shown));
  }
  const bool more = !found.empty() && found.back().n > trail.oldest();
  return json_answer({{"lines", std::move(lines)},
                      {"next", more ? json::value(found.back().n) : json::value()},
                      {"looked", found.size()},
                      {"back_to", found.empty() ? json::value() : json::value(iso_time(found.back().at))},
                      {"from", "memory"}});
}

PageAnswer find_audit(GatewayShared& shared, const json::object& given) {
  const Result<KeySearch> search = key_search_in(given);
  if (!search) return refused(400, search.fault().message);
  const Result<std::string> since = instant("since", text_member(given, "since"));
  if (!since) return refused(400, since.fault().message);
  const Result<std::string> until = instant("until", text_member(given, "until"));
  if (!until) return refused(400, until.fault().message);
  AuditQuery wanted{.limit = kLinesMax, .since = *since, .until = *until};
  if (const json::value* const before = given.if_contains("before"); before != nullptr && before->is_number()) {
    json::error_code error;
    wanted.before = before->to_number<std::uint64_t>(error);
  }
  const IdRules rules{shared.config(), shared.trust, shared.hash};
  // The account's own records where that is enough to know them, else all lines with this key.
  const SearchedIds searched = ids_of(*search, rules);
  const bool exact = searched.complete && !searched.ids.empty();
  if (exact) {
    for (const RecordId& id : searched.ids) wanted.records.push_back(to_hex(id));
  } else {
    for (const std::string& text : key_texts_of(*search, rules)) {
      wanted.keys.push_back(text);
      wanted.keys.push_back(redacted(shared.hash, text));
    }
  }
  Result<json::object> page = page_of(shared, wanted);
  if (page) {
    (*page)["exact"] = exact;
    (*page)["missing"] = exact ? json::value() : json::value(searched.missing);
  }
  return answer_of(page);
}

RecordTrail audit_of_record(GatewayShared& shared, const RecordId& id) {
  RecordTrail trail;
  const Result<json::object> page = page_of(shared, {.limit = kLinesMax, .records = {to_hex(id)}});
  if (!page) return trail;
  if (!page->at("next").is_null()) trail.back_to = text_member(*page, "back_to");
  for (const json::value& value : page->at("lines").as_array()) {
    const json::object& line = value.as_object();
    const auto wall = parse_timestamp(text_member(line, "at"));
    if (!wall) continue;
    const Time at = std::chrono::time_point_cast<Millis>(*wall);
    const std::string_view event = text_member(line, "event");
    if (event == "action") {
      trail.actions.push_back({at, std::string(text_member(line, "who")), std::string(text_member(line, "action")),
                               std::string(text_member(line, "id")), std::string(text_member(line, "result")),
                               std::string(text_member(line, "reason"))});
    } else if (event == "replayed" || event == "refused") {
      RecordTrail::Decided& decided = trail.decisions[std::string(text_member(line, "decision"))];
      // Lines come newest first.
      if (decided.count++ == 0) {
        decided.last = at;
        decided.gateway = text_member(line, "gateway");
      }
    }
  }
  std::reverse(trail.actions.begin(), trail.actions.end());
  return trail;
}

} // namespace oncekey
