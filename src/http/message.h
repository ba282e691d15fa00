// message: the heads of requests and responses, after a strict parse.
#pragma once

#include <oncekey/headers.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

enum class Framing {
  none,        // no body
  length,      // Content-Length
  chunked,     // Transfer-Encoding: chunked
  until_close, // responses only: the body ends with the connection
};

struct RequestHead {
  std::string method;
  std::string target; // origin-form or "*"; an absolute-form target has been taken apart into target and Host
  int version = 11;
  Headers headers; // as received, hop-by-hop fields included
  Framing framing = Framing::none;
  std::uint64_t content_length = 0;
  bool keep_alive = true;
  bool expects_continue = false;

  // The target without its query.
  std::string_view path() const { return std::string_view(target).substr(0, target.find('?')); }
};

struct ResponseHead {
  int status = 0;
  std::string reason;
  int version = 11;
  Headers headers; // as received, hop-by-hop fields included
  Framing framing = Framing::none;
  std::uint64_t content_length = 0;
  bool keep_alive = true;
};

// 1xx, 204 and 304 have no body whatever their fields say; neither has any answer to HEAD.
inline bool status_forbids_body(int status) { return status / 100 == 1 || status == 204 || status == 304; }
// 205 has no content either, but says so by its framing.
inline constexpr int kResetContent = 205;

} // namespace oncekey
