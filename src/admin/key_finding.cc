// Finds the records of a key, or of an account.
#include "admin/key_pages.h"
#include "admin/record_json.h"

#include <algorithm>

namespace oncekey {

namespace json = boost::json;

namespace {

// So many records of an account are read at a time: each is compared with a hash or two.
constexpr std::size_t kAccountStep = 1000;

bool has_line_break(std::string_view text) { return text.find_first_of("\r\n\0", 0, 3) != std::string_view::npos; }

} // namespace

Result<KeySearch> key_search_in(const json::object& given) {
  KeySearch search;
  search.key = text_member(given, "key");
  search.principal = text_member(given, "principal");
  search.route = text_member(given, "route");
  search.method = text_member(given, "method");
  search.path = text_member(given, "path");
  if (search.key.empty() && search.principal.empty())
    return invalid(
        "key is missing: the idempotency key to look for, or give principal, the account whose keys to list");
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

namespace {

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

Task<Result<BrowsePage>> KeyPages::browse_account(BrowseRequest request, KeySearch search) {
  const IdRules rules{shared_.config(), shared_.trust, shared_.hash};
  const std::size_t limit = request.limit;
  BrowsePage all;
  request.limit = kAccountStep;
  for (;;) {
    Result<BrowsePage> page =
        co_await await_store<BrowsePage>(loop_, [&](auto done) { shared_.store.browse(request, std::move(done)); });
    if (!page) co_return std::move(page).fault();
    for (Listed& line : page->lines) {
      search.key = line.record.key;
      if (is_searched(line.id, line.record, search, rules)) all.lines.push_back(std::move(line));
    }
    all.looked += page->looked;
    all.whole = page->whole;
    if (!page->next || all.lines.size() > limit || page->looked >= request.look_max) break;
    request.after = page->next;
    request.look_max -= page->looked;
    co_await loop_.next_turn();
  }
  co_return all;
}

Task<PageAnswer> KeyPages::find(PageRequest& asked) {
  const Result<KeySearch> search = key_search_in(asked.given);
  if (!search) co_return refused(400, search.fault().message);
  const Result<std::size_t> limit = limit_in(asked.given);
  if (!limit) co_return refused(400, limit.fault().message);
  const std::string_view state = asked.text("state");
  const std::optional<KeysShown> shown = state.empty() ? KeysShown::all : shown_keys(state);
  if (!shown) co_return refused(400, kKeyStates);
  const Result<ReceivedBetween> received =
      received_between(asked.text("older_than"), asked.text("newer_than"), shared_.store.now());
  if (!received) co_return refused(400, received.fault().message);
  const auto& routes = shared_.config().routes;
  const auto is_route = [&](const Route& route) { return route.name == search->route || route.path == search->route; };
  if (!search->route.empty() && std::none_of(routes.begin(), routes.end(), is_route))
    co_return refused(400, fmt::format("no route is called {}; GET /metrics names them", search->route));

  const IdRules rules{shared_.config(), shared_.trust, shared_.hash};
  BrowsePage page;
  BrowseRequest request;
  request.limit = kListMax;
  request.look_max = kKeysLookMax;
  SearchedIds searched;
  const bool by_account = search->key.empty();
  if (by_account) {
    searched.complete = false;
    searched.missing = "--key: without it the newest records are looked through";
    request.shown = *shown;
    Result<BrowsePage> seen = co_await browse_account(request, *search);
    if (!seen) co_return refused(503, seen.fault().message);
    page = std::move(seen).value();
  } else {
    searched = ids_of(*search, rules);
  }
  for (const RecordId& id : searched.ids) {
    const Result<std::optional<Found>> found = co_await look_up(id);
    if (!found) co_return refused(503, found.fault().message);
    ++page.looked;
    if (found->has_value()) page.lines.push_back({id, *(*found)->record});
  }
  // What is given does not name every record of the key: on routes whose paths are not known, or of several accounts.
  const bool look = !searched.complete;
  const std::vector<std::string> texts =
      look && !by_account ? key_texts_of(*search, rules) : std::vector<std::string>{};
  for (const std::string& text : texts) {
    request.key = text;
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
  const Time now = shared_.store.now();
  std::erase_if(page.lines, [&](const Listed& line) {
    return !is_shown(*shown, line.record, now) || !received->has(line.record.first_received);
  });
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
