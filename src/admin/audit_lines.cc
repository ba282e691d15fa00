#include "admin/audit_lines.h"

#include "admin/key_search.h"
#include "admin/record_json.h"
#include "base/ascii.h"
#include "base/timestamp.h"
#include "core/redaction.h"
#include "gateway/await_store.h"

#include <charconv>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::size_t kLinesUsual = 100;
constexpr std::size_t kLinesMax = 1000;
// Each line is compared with all of them.
constexpr std::size_t kRecordsMax = 1000;

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
                                      "first_trace", "who", "peer", "action", "result", "reason"})
    copy(name, name);
  return out;
}

Result<std::string> instant(std::string_view name, std::string_view text) {
  if (text.empty()) return std::string();
  if (const auto at = parse_timestamp(text)) return timestamp(*at);
  return invalid(fmt::format("{}: expected a time as 2026-01-02 or 2026-01-02T03:04:05Z", name));
}

// Waits for the disk.
Result<json::object> read_page(AuditLog& log, const AuditQuery& query) {
  log.flush(); // an operator who has just acted finds the line
  const Result<AuditFiles> files = audit_files_of(log.path());
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

bool is_beginning_of_id(std::string_view text) {
  return text.size() >= kRecordBeginningMin && text.size() <= 2 * sizeof(RecordId::bytes) &&
         consists_of(text, "0123456789abcdef");
}

Result<std::vector<std::string>> records_in(const json::object& given) {
  std::vector<std::string> out;
  const json::value* const records = given.if_contains("records");
  if (records == nullptr || records->is_null()) return out;
  const json::array* const list = records->if_array();
  if (list == nullptr || list->size() > kRecordsMax)
    return invalid(fmt::format("records: expected a list of at most {} ids of records", kRecordsMax));
  for (const json::value& each : *list) {
    const json::string* const id = each.if_string();
    if (id == nullptr || !record_id_from_hex({id->data(), id->size()}))
      return invalid("records: expected the 64 hex digits of each record's id");
    out.emplace_back(id->data(), id->size());
  }
  return out;
}

// On the side thread, where an exception would end the process.
Result<json::object> page_or_fault(AuditLog& log, const AuditQuery& query) {
  try {
    return read_page(log, query);
  } catch (const std::exception& error) {
    return unavailable(fmt::format("the audit log could not be read: {}", error.what())); // out of memory, say
  }
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
                       .peer = line.peer,
                       .action = line.action,
                       .result = line.result,
                       .reason = line.reason});
}

Task<Result<json::object>> AuditPages::page_of(const AuditQuery& query) {
  if (shared_.audit == nullptr) co_return invalid("this gateway writes no audit log (audit_log = \"off\")");
  co_return co_await await_store<json::object>(
      loop_, [&](auto done) { side_.give([this, &query, done] { done(page_or_fault(*shared_.audit, query)); }); });
}

Task<void> AuditPages::written() {
  if (shared_.audit == nullptr) co_return;
  (void)co_await await_store<std::monostate>(loop_, [&](auto done) {
    side_.give([this, done] {
      shared_.audit->flush();
      done(std::monostate{});
    });
  });
}

Task<PageAnswer> AuditPages::list(std::string_view query) {
  const Result<std::uint64_t> limit = number_in("limit", query_value(query, "limit"), kLinesUsual);
  if (!limit) co_return refused(400, limit.fault().message);
  const Result<std::uint64_t> before = number_in("before", query_value(query, "before"), 0);
  if (!before) co_return refused(400, before.fault().message);
  const Result<std::string> since = instant("since", decoded_query_value(query, "since"));
  if (!since) co_return refused(400, since.fault().message);
  const Result<std::string> until = instant("until", decoded_query_value(query, "until"));
  if (!until) co_return refused(400, until.fault().message);
  AuditQuery wanted{.before = *before,
                    .limit = static_cast<std::size_t>(std::min<std::uint64_t>(*limit, kLinesMax)),
                    .since = *since,
                    .until = *until};
  const std::string_view record = query_value(query, "record");
  if (!record.empty()) {
    if (!is_beginning_of_id(record))
      co_return refused(400, "record: expected the 64 hex digits of a record's id, or at least the first 12");
    wanted.records.emplace_back(record);
  }
  if (record.empty() && query_value(query, "events") != "all") wanted.event = "action";
  const Result<json::object> page = co_await page_of(wanted);
  co_return answer_of(page);
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

Task<PageAnswer> AuditPages::find(const json::object& given) {
  const Result<KeySearch> search = key_search_in(given);
  if (!search) co_return refused(400, search.fault().message);
  // Lines have no account, and no id can be made of an account alone.
  if (search->key.empty())
    co_return refused(400,
                      "key is missing: the idempotency key whose lines to find. POST /api/keys/find lists the keys "
                      "of an account");
  const Result<std::string> since = instant("since", text_member(given, "since"));
  if (!since) co_return refused(400, since.fault().message);
  const Result<std::string> until = instant("until", text_member(given, "until"));
  if (!until) co_return refused(400, until.fault().message);
  Result<std::vector<std::string>> records = records_in(given);
  if (!records) co_return refused(400, records.fault().message);
  AuditQuery wanted{.limit = kLinesMax, .since = *since, .until = *until};
  if (const json::value* const before = given.if_contains("before"); before != nullptr && before->is_number()) {
    json::error_code error;
    wanted.before = before->to_number<std::uint64_t>(error);
  }
  const IdRules rules{shared_.config(), shared_.trust, shared_.hash};
  // The account's own records where that is enough to know them, else all lines with this key.
  const SearchedIds searched = ids_of(*search, rules);
  const bool exact = searched.complete && !searched.ids.empty();
  if (exact) {
    for (const RecordId& id : searched.ids) wanted.records.push_back(to_hex(id));
  } else {
    // Operators' lines name a record and no key: a client that has read the others asks for them too.
    wanted.records = *std::move(records);
    for (const std::string& text : key_texts_of(*search, rules)) {
      wanted.keys.push_back(text);
      wanted.keys.push_back(redacted(shared_.hash, text));
    }
  }
  Result<json::object> page = co_await page_of(wanted);
  if (page) {
    (*page)["exact"] = exact;
    (*page)["missing"] = exact ? json::value() : json::value(searched.missing);
  }
  co_return answer_of(page);
}

Task<RecordTrail> AuditPages::about(const RecordId& id) {
  RecordTrail trail;
  AuditQuery wanted;
  wanted.limit = kLinesMax;
  wanted.records.push_back(to_hex(id));
  const Result<json::object> page = co_await page_of(wanted);
  if (!page) co_return trail;
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
    } else if (event == "claimed" || event == "taken_over" || event == "released" || event == "lease_lost" ||
               event == "held") {
      RecordTrail::Claim claim{at, std::string(event), std::string(text_member(line, "gateway")), 0,
                               std::string(text_member(line, "trace"))};
      if (const json::value& fence = line.at("fence"); fence.is_number())
        claim.fence = fence.to_number<std::uint64_t>();
      trail.claims.push_back(std::move(claim));
    }
  }
  std::reverse(trail.actions.begin(), trail.actions.end());
  std::reverse(trail.claims.begin(), trail.claims.end());
  co_return trail;
}

} // namespace oncekey
