// The pages of the admin listener that list and find keys.
#include "admin/admin.h"
#include "admin/record_json.h"
#include "base/durations.h"
#include "base/enum_name.h"

#include <algorithm>
#include <charconv>

namespace oncekey {

namespace json = boost::json;

namespace {

constexpr std::size_t kKeysUsual = 100;
// The end of the year 9999. No cursor of the gateway is beyond it, so that stores need not expect such times.
constexpr std::int64_t kMillisMax = 253'402'300'799'999;
// Records that one listing or search looks at: some tenths of a second in most stores.
constexpr std::size_t kKeysLookMax = 100'000;

// Where a listing goes on. Without a state it has two parts: what waits, and then the others.
struct ListCursor {
  bool in_others = false;
  std::optional<BrowsePlace> place;
};

// "others-1700000000000-ID", with "waiting" in front for the first part.
std::string cursor_text(const ListCursor& cursor) {
  const char* const part = cursor.in_others ? "others" : "waiting";
  if (!cursor.place) return part;
  return fmt::format("{}-{}-{}", part, cursor.place->first_received.time_since_epoch().count(),
                     to_hex(cursor.place->id));
}

Result<ListCursor> parse_cursor(std::string_view text) {
  ListCursor cursor;
  if (text.empty()) return cursor;
  const Fault bad = invalid("after: expected `next` of an earlier answer, as it was");
  const std::size_t dash = text.find('-');
  const std::string_view part = text.substr(0, dash);
  if (part != "others" && part != "waiting") return bad;
  cursor.in_others = part == "others";
  if (dash == std::string_view::npos) return cursor;
  text.remove_prefix(dash + 1);
  std::int64_t millis = 0;
  const char* const end = text.data() + text.size();
  const auto [behind, error] = std::from_chars(text.data(), end, millis);
  if (error != std::errc{} || behind == end || *behind != '-') return bad;
  if (millis < 0 || millis > kMillisMax) return bad;
  const std::optional<RecordId> id =
      record_id_from_hex(text.substr(static_cast<std::size_t>(behind - text.data()) + 1));
  if (!id) return bad;
  cursor.place = BrowsePlace{Time{Millis{millis}}, *id};
  return cursor;
}

std::optional<KeysShown> shown_of(std::string_view state) {
  const std::optional<KeysShown> shown = enum_named<KeysShown>(state);
  return shown == KeysShown::all || shown == KeysShown::others ? std::nullopt : shown;
}

// Everything received at that time or later comes before this place.
BrowsePlace just_before(Time time) {
  BrowsePlace place{time, {}};
  place.id.bytes.fill(0xff);
  return place;
}

bool has_line_break(std::string_view text) { return text.find_first_of("\r\n\0", 0, 3) != std::string_view::npos; }

Result<std::size_t> limit_in(const json::object& given) {
  const json::value* const limit = given.if_contains("limit");
  if (limit == nullptr) return kKeysUsual;
  json::error_code error;
  const auto number = limit->to_number<std::uint64_t>(error);
  if (error || number == 0 || number > kListMax)
    return invalid(fmt::format("limit is a whole number from 1 to {}", kListMax));
  return static_cast<std::size_t>(number);
}

} // namespace

Result<KeySearch> key_search_in(const json::object& given) {
  KeySearch search;
  search.key = text_member(given, "key");
  search.principal = text_member(given, "principal");
  search.route = text_member(given, "route");
  search.method = text_member(given, "method");
  search.path = text_member(given, "path");
  if (search.key.empty()) return invalid("key is missing: the idempotency key to look for");
  if (!search.path.empty() && !search.path.starts_with('/')) return invalid("path begins with a slash");
  if (has_line_break(search.principal)) return invalid("principal holds a line break");
  const json::value* const headers = given.if_contains("headers");
  if (headers == nullptr) return search;
  const Fault bad = invalid(R"(headers: expected [["Name", "value"], ...])");
  if (!headers->is_array()) return bad;
  for (const json::value& header : headers->get_array()) {
    const json::array* const pair = header.if_array();
    if (pair == nullptr || pair->size() != 2 || !(*pair)[0].is_string() || !(*pair)[1].is_string()) return bad;
    const std::string name((*pair)[0].get_string().c_str());
    const std::string value((*pair)[1].get_string().c_str());
    if (name.empty() || has_line_break(name) || has_line_break(value)) return bad;
    search.headers.add(name, value);
  }
  return search;
}

// Reads in steps, so that health and metrics are answered in between.
Task<Result<BrowsePage>> Admin::browse(BrowseRequest request) {
  BrowsePage all;
  for (;;) {
    Result<BrowsePage> page =
        co_await await_store<BrowsePage>(loop_, [&](auto done) { shared_.store.browse(request, std::move(done)); });
    if (!page) co_return std::move(page).fault();
    std::move(page->lines.begin(), page->lines.end(), std::back_inserter(all.lines));
    all.looked += page->looked;
    all.whole = page->whole;
    all.next = page->next;
    if (!page->next || page->lines.size() >= request.limit || page->looked >= request.look_max) break;
    request.after = page->next;
    request.limit -= page->lines.size();
    request.look_max -= page->looked;
    co_await loop_.next_turn();
  }
  co_return all;
}

json::object Admin::key_json(const RecordId& id, const Record& record, Time now) const {
  json::object out = record_json(id, record, now);
  const bool abandoned = record.left_abandoned(now);
  const bool held = record.state == RecordState::indeterminate;
  const auto route = std::find_if(shared_.config().routes.begin(), shared_.config().routes.end(),
                                  [&](const Route& each) { return each.name == record.route; });
  const bool retried =
      abandoned && route != shared_.config().routes.end() && route->policy.on_abandoned != OnAbandoned::hold;
  out["waits_for"] = abandoned || held ? json::value(retried ? "retry" : "operator") : json::value();
  return out;
}

json::object Admin::page_json(const BrowsePage& page) const {
  const Time now = shared_.store.now();
  json::array keys;
  for (const Listed& line : page.lines) keys.push_back(key_json(line.id, line.record, now));
  return {{"keys", std::move(keys)}, {"looked", page.looked}, {"whole", page.whole}, {"next", nullptr}};
}

Task<Admin::Answer> Admin::list_keys(std::string_view query) {
  const std::string state(query_value(query, "state"));
  const std::optional<KeysShown> shown = shown_of(state);
  if (!state.empty() && !shown)
    co_return refused(400, "state is one of waiting, abandoned, indeterminate, in_progress, completed");
  const Result<std::size_t> limit = limit_of(query, kKeysUsual);
  if (!limit) co_return refused(400, limit.fault().message);
  Result<ListCursor> cursor = parse_cursor(query_value(query, "after"));
  if (!cursor) co_return refused(400, cursor.fault().message);
  BrowseRequest request;
  request.route = decoded_query_value(query, "route");
  request.look_max = kKeysLookMax;
  request.limit = *limit;
  std::optional<BrowsePlace> start; // of both parts
  if (const std::string_view age = query_value(query, "older_than"); !age.empty()) {
    const Result<Millis> millis = parse_duration(age);
    if (!millis) co_return refused(400, fmt::format("older_than: {}", millis.fault().message));
    start = just_before(shared_.store.now() - *millis);
  }

  BrowsePage listed;
  std::optional<ListCursor> next;
  // Without a state: first what waits, then the others.
  for (bool others = cursor->in_others;; others = true) {
    request.shown = shown ? *shown : others ? KeysShown::others : KeysShown::waiting;
    request.after = others == cursor->in_others && cursor->place ? cursor->place : start;
    const Result<BrowsePage> page = co_await browse(request);
    if (!page) co_return refused(503, page.fault().message);
    listed.lines.insert(listed.lines.end(), page->lines.begin(), page->lines.end());
    listed.looked += page->looked;
    listed.whole = listed.whole && page->whole;
    if (page->next) next = ListCursor{others, page->next};
    if (shown || others || page->next) break;
    if (listed.lines.size() == *limit) {
      listed.whole = false;
      next = ListCursor{true, std::nullopt};
      break;
    }
    request.limit = *limit - listed.lines.size();
  }
  json::object body = page_json(listed);
  if (next) body["next"] = cursor_text(*next);
  co_return json_answer(body);
}

Task<Admin::Answer> Admin::find_keys(Exchange& exchange) {
  json::object given;
  if (auto refusal = co_await read_json(exchange, given)) co_return *std::move(refusal);
  const Result<KeySearch> search = key_search_in(given);
  if (!search) co_return refused(400, search.fault().message);
  const Result<std::size_t> limit = limit_in(given);
  if (!limit) co_return refused(400, limit.fault().message);
  const auto& routes = shared_.config().routes;
  const auto is_route = [&](const Route& route) { return route.name == search->route || route.path == search->route; };
  if (!search->route.empty() && std::none_of(routes.begin(), routes.end(), is_route))
    co_return refused(400, fmt::format("no route is called {}; GET /metrics names them", search->route));

  const IdRules rules{shared_.config(), shared_.trust, shared_.hash};
  const SearchedIds searched = ids_of(*search, rules);
  BrowsePage page;
  for (const RecordId& id : searched.ids) {
    const Result<std::optional<Found>> found = co_await look_up(id);
    if (!found) co_return refused(503, found.fault().message);
    ++page.looked;
    if (found->has_value()) page.lines.push_back({id, *(*found)->record});
  }
  // What is given does not name every record of the key: on routes whose paths are not known, or of several accounts.
  const bool look = !searched.complete;
  const std::vector<std::string> texts = look ? key_texts_of(*search, rules) : std::vector<std::string>{};
  for (const std::string& text : texts) {
    BrowseRequest request;
    request.key = text;
    request.limit = kListMax;
    request.look_max = kKeysLookMax;
    const Result<BrowsePage> seen = co_await browse(request);
    if (!seen) co_return refused(503, seen.fault().message);
    page.looked += seen->looked;
    page.whole = page.whole && seen->whole;
    for (const Listed& line : seen->lines) {
      const auto is_it = [&](const Listed& known) { return known.id == line.id; };
      if (std::any_of(page.lines.begin(), page.lines.end(), is_it)) continue;
      if (!is_searched(line.id, line.record, *search, rules)) continue;
      page.lines.push_back(line);
    }
  }
  std::stable_sort(page.lines.begin(), page.lines.end(),
                   [](const Listed& a, const Listed& b) { return a.record.first_received > b.record.first_received; });
  const bool more = page.lines.size() > *limit;
  if (more) page.lines.resize(*limit);
  json::object body = page_json(page);
  body["more"] = more;
  body["exact"] = !look;
  if (look) body["missing"] = searched.missing;
  co_return json_answer(body);
}

} // namespace oncekey
