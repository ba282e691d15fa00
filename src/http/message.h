// message: the heads of requests and responses, after a strict parse, and questions about their fields.
#pragma once

#include <oncekey/headers.h>

namespace oncekey {

enum class Framing {
  none,        // no body
  length,      // Content-Length
  chunked,     // Transfer-Encoding: chunked
  until_close, // responses only: the body ends with the connection
};

// What requests and responses have in common.
struct MessageHead {
  int version = 11;
  Headers headers; // as received, hop-by-hop fields included
  Framing framing = Framing::none;
  std::uint64_t content_length = 0;
  bool keep_alive = true;
};

struct RequestHead : MessageHead {
  std::string method;
  std::string target; // origin-form or "*"; an absolute-form target has been taken apart into target and Host
  bool expects_continue = false;

  // The target without its query.
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct ResponseHead : MessageHead {
  int status = 0;
  std::string reason;
};

// 1xx, 204 and 304 have no body whatever their fields say; neither has any answer to HEAD.
inline bool status_forbids_body(int status) { return status / 100 == 1 || status == 204 || status == 304; }
// 205 has no content either, but says so by its framing.
inline constexpr int kResetContent = 205;

// Calls `visit(item)` for every item of the lists that all fields of that name hold.
template <class Visit>
void for_each_item(const Headers& headers, std::string_view name, Visit visit) {
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const Field field = headers[i];
    if (equal_ignoring_case(field.name, name)) for_each_list_item(field.value, visit);
  }
}

// Whether a field that is a list names the item.
inline bool lists(const Headers& headers, std::string_view name, std::string_view wanted) {
  bool found = false;
  for_each_item(headers, name, [&](std::string_view item) { found = found || equal_ignoring_case(item, wanted); });
  return found;
}

// The fields that `keep(field)` is true for, in order, with room for a few more.
template <class Keep>
Headers fields_where(const Headers& headers, Keep keep, std::size_t more = 0) {
  constexpr std::size_t kUsualFieldBytes = 32;
  Headers kept;
  kept.reserve(headers.lines().size() + more * kUsualFieldBytes, headers.size() + more);
  for (std::size_t i = 0; i < headers.size(); ++i) {
    if (keep(headers[i])) kept.add(headers, i);
  }
  return kept;
}
inline void append(Headers& headers, const Headers& more) {
  for (std::size_t i = 0; i < more.size(); ++i) headers.add(more, i);
}
inline Headers fields_but(const Headers& headers, std::string_view name) {
  return fields_where(headers, [name](const Field& field) { return !equal_ignoring_case(field.name, name); });
}

} // namespace oncekey
