#include "http/forwarding.h"

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

bool is(std::string_view name, std::string_view wanted) { return equal_ignoring_case(name, wanted); }

constexpr std::array<std::string_view, 4> kForwardedFields = {"X-Forwarded-For", "X-Forwarded-Proto",
                                                              "X-Forwarded-Host", "Forwarded"};

template <class List>
bool contains(const List& list, std::string_view name) {
  return std::any_of(list.begin(), list.end(), [&](std::string_view item) { return equal_ignoring_case(item, name); });
}

// Fields that only we may write. Servers behind CGI and its descendants read `_` and `-` as the same character.
bool is_ours_to_write(std::string_view name) {
  std::string dashed;
  if (name.find('_') != std::string_view::npos) {
    dashed = name;
    std::replace(dashed.begin(), dashed.end(), '_', '-');
    name = dashed;
  }
  return contains(kForwardedFields, name) || starts_with_ignoring_case(name, "Oncekey-");
}

bool before_ignoring_case(std::string_view a, std::string_view b) {
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end(), [](char x, char y) {
    const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; };
    return lower(x) < lower(y);
  });
}

// What the Connection fields of a message name. Asked for every field of the message: a long list is sorted first.
class NamedInConnection {
 public:
  explicit NamedInConnection(const Headers& headers) {
    for_each_item(headers, "Connection", [&](std::string_view item) { names_.push_back(item); });
    if (names_.size() > kFew) std::sort(names_.begin(), names_.end(), before_ignoring_case);
  }

  bool has(std::string_view name) const {
    if (names_.size() > kFew) return std::binary_search(names_.begin(), names_.end(), name, before_ignoring_case);
    return contains(names_, name);
  }
  bool empty() const { return names_.empty(); }
  // Whether it names anything that does not stay behind anyway.
  bool adds_to_hop_by_hop() const {
    return !std::all_of(names_.begin(), names_.end(), [](std::string_view name) { return is_hop_by_hop(name); });
  }

 private:
  static constexpr std::size_t kFew = 8;
  std::vector<std::string_view> names_;
};

constexpr std::string_view kWebSocket = "websocket";
// Via, three of X-Forwarded-*, and what callers add.
constexpr std::size_t kAddedFields = 8;

void append_to_list(std::string& list, std::string_view item) {
  if (!list.empty()) list.append(", ");
  list.append(item);
}

std::string joined_values(const Headers& headers, std::string_view name) {
  std::string all;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (is(field.name, name)) append_to_list(all, field.value);
  }
  return all;
}

} // namespace

// Beyond the fields RFC 9110 7.6.1 names: Trailer and TE because trailers are dropped here, Expect because it was
// answered here, the Proxy-* ones because they are between a client and its own proxy. Asked of every field of every
// message, so that the first letter decides who is compared at all.
bool is_hop_by_hop(std::string_view name) {
  switch (name.empty() ? '\0' : name.front() | 0x20) {
    case 'c':
      return is(name, "Connection");
    case 'e':
      return is(name, "Expect");
    case 'h':
      return is(name, "HTTP2-Settings");
    case 'k':
      return is(name, "Keep-Alive");
    case 'p':
      return is(name, "Proxy-Connection") || is(name, "Proxy-Authenticate") || is(name, "Proxy-Authorization") ||
             is(name, "Proxy-Authentication-Info");
    case 't':
      return is(name, "TE") || is(name, "Trailer") || is(name, "Transfer-Encoding");
    case 'u':
      return is(name, "Upgrade");
    default:
      return false;
  }
}

std::optional<std::string_view> stripped_by_connection(const Headers& headers) {
  if (!headers.has("Connection")) return std::nullopt;
  const NamedInConnection named(headers);
  for (std::size_t i = 0; i < headers.size() && !named.empty(); ++i) {
    const std::string_view name = headers[i].name;
    if (!is_hop_by_hop(name) && named.has(name)) return name;
  }
  return std::nullopt;
}

bool asks_for_websocket(const RequestHead& head) {
  if (head.method != "GET" || head.version < 11 || !head.headers.has("Upgrade")) return false;
  const bool bodiless = head.framing == Framing::none || (head.framing == Framing::length && head.content_length == 0);
  return bodiless && lists(head.headers, "Connection", "upgrade") && lists(head.headers, "Upgrade", kWebSocket);
}

bool grants_websocket(const ResponseHead& head) {
  return head.status == 101 && lists(head.headers, "Connection", "upgrade") &&
         equal_ignoring_case(joined_values(head.headers, "Upgrade"), kWebSocket);
}

void add_websocket_fields(Headers& headers) {
  headers.add("Connection", "Upgrade");
  headers.add("Upgrade", kWebSocket);
}

bool loops(const ProxyIdentity& self, const Headers& headers) {
  bool seen = false;
  for_each_item(headers, "Via", [&](std::string_view hop) {
    const std::size_t blank = hop.find(' ');
    std::string_view by = blank == std::string_view::npos ? std::string_view{} : hop.substr(blank + 1);
    by = by.substr(0, by.find(' '));
    seen = seen || by == self.pseudonym;
  });
  return seen;
}

Headers end_to_end(Headers received) {
  const auto travels_on = [](const Field& field) {
    return !is_hop_by_hop(field.name) && !is(field.name, "Content-Length");
  };
  const NamedInConnection named(received);
  if (named.adds_to_hop_by_hop()) // its names are views of the fields, which stay in place
    return fields_where(received, [&](const Field& field) { return travels_on(field) && !named.has(field.name); });
  received.keep_if(travels_on);
  return received;
}

Headers fields_without_via(const RequestHead& head, const ForwardedFrom& from, const ProxyIdentity& self,
                           const std::vector<std::string_view>& replaced) {
  const NamedInConnection named(head.headers);
  const bool trusted = contains(self.trusted_proxies, from.peer);
  const auto travels_on = [&](const Field& field) {
    if (is_hop_by_hop(field.name) || named.has(field.name)) return false;
    if (is(field.name, "Content-Length") || is(field.name, "Via")) return false;
    if (is_ours_to_write(field.name) && !(trusted && is(field.name, "Forwarded"))) return false;
    return !contains(replaced, field.name);
  };
  Headers fields = fields_where(head.headers, travels_on, kAddedFields);

  std::string forwarded_for = trusted ? joined_values(head.headers, "X-Forwarded-For") : std::string();
  append_to_list(forwarded_for, from.peer);
  fields.add("X-Forwarded-For", forwarded_for);

  const auto claimed_proto = trusted ? head.headers.get("X-Forwarded-Proto") : std::nullopt;
  fields.add("X-Forwarded-Proto", claimed_proto ? *claimed_proto : from.secure ? "https" : "http");
  const auto claimed_host = trusted ? head.headers.get("X-Forwarded-Host") : std::nullopt;
  if (const auto host = claimed_host ? claimed_host : head.headers.get("Host")) fields.add("X-Forwarded-Host", *host);
  return fields;
}

UpstreamRequest forward(const RequestHead& head, const ForwardedFrom& from, const ProxyIdentity& self,
                        const std::vector<std::string_view>& replaced) {
  UpstreamRequest out;
  out.method = head.method;
  out.target = head.target;
  out.headers = fields_without_via(head, from, self, replaced);
  std::string via = joined_values(head.headers, "Via");
  append_to_list(via, head.version == 10 ? "1.0 " : "1.1 ");
  via.append(self.pseudonym);
  out.headers.add("Via", via);
  return out;
}

} // namespace oncekey
