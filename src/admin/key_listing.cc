// Lists and finds keys.
#include "admin/key_pages.h"
#include "admin/record_json.h"
#include "base/durations.h"
#include "base/enum_name.h"

#include <algorithm>
#include <charconv>

namespace oncekey {

namespace json = boost::json;

namespace {

// The end of the year 9999. No cursor of the gateway is beyond it, so that stores need not expect such times.
constexpr std::int64_t kMillisMax = 253'402'300'799'999;

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

// Everything received at that time or later comes before this place.
BrowsePlace just_before(Time time) {
  BrowsePlace place{time, {}};
  place.id.bytes.fill(0xff);
  return place;
}

} // namespace

std::optional<KeysShown> shown_keys(std::string_view state) {
  const std::optional<KeysShown> shown = enum_named<KeysShown>(state);
  return shown == KeysShown::all || shown == KeysShown::others ? std::nullopt : shown;
}

// Reads in steps, so that health and metrics are answered in between.
Task<Result<BrowsePage>> KeyPages::browse(BrowseRequest request) {
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

json::object KeyPages::key_json(const RecordId& id, const Record& record, Time now) const {
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

json::object KeyPages::page_json(const BrowsePage& page) const {
  const Time now = shared_.store.now();
  json::array keys;
  for (const Listed& line : page.lines) keys.push_back(key_json(line.id, line.record, now));
  return {{"keys", std::move(keys)}, {"looked", page.looked}, {"whole", page.whole}, {"next", nullptr}};
}

Task<PageAnswer> KeyPages::list(PageRequest& asked) {
  const std::string_view query = asked.query;
  const std::string state(query_value(query, "state"));
  const std::optional<KeysShown> shown = shown_keys(state);
  if (!state.empty() && !shown) co_return refused(400, kKeyStates);
  const Result<std::size_t> limit = limit_of(query, kKeysUsual);
  if (!limit) co_return refused(400, limit.fault().message);
  Result<ListCursor> cursor = parse_cursor(query_value(query, "after"));
  if (!cursor) co_return refused(400, cursor.fault().message);
  BrowseRequest request;
  request.route = decoded_query_value(query, "route");
  request.look_max = kKeysLookMax;
  request.limit = *limit;
  const Result<ReceivedBetween> received =
      received_between(query_value(query, "older_than"), query_value(query, "newer_than"), shared_.store.now());
  if (!received) co_return refused(400, received.fault().message);
  std::optional<BrowsePlace> start; // of both parts
  if (received->before != Time::max()) start = just_before(received->before);

  BrowsePage listed;
  std::optional<ListCursor> next;
  // Without a state: first what waits, then the others.
  for (bool others = cursor->in_others;; others = true) {
    request.shown = shown ? *shown : others ? KeysShown::others : KeysShown::waiting;
    request.after = others == cursor->in_others && cursor->place ? cursor->place : start;
    Result<BrowsePage> page = co_await browse(request);
    if (!page) co_return refused(503, page.fault().message);
    // Newest first: what comes behind the first that is too old is older still.
    const bool ended =
        std::erase_if(page->lines, [&](const Listed& line) { return line.record.first_received < received->from; }) > 0;
    if (ended) page->next.reset();
    listed.lines.insert(listed.lines.end(), page->lines.begin(), page->lines.end());
    listed.looked += page->looked;
    listed.whole = listed.whole && (page->whole || ended);
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

} // namespace oncekey
