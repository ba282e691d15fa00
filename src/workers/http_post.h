// http_post: one POST over one connection, blocking, with time-outs. No more of HTTP than handing a job over needs: the
// status is read, the answer's body is not.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/result.h>
#include <oncekey/time.h>

#include <chrono>
#include <string>
#include <string_view>

namespace oncekey {

struct PostUrl {
  bool tls = false;
  std::string host;
  std::string port;
  std::string target;    // path and query
  std::string authority; // for the Host header
};
Result<PostUrl> parse_post_url(std::string_view url);

struct PostTimeouts {
  Millis connect;
  Millis answer;
};

// The status of the answer. `unavailable` if no connection could be made, `timeout` if something may have been sent.
Result<int> http_post(const PostUrl& url, const Headers& headers, std::string_view body, const PostTimeouts& timeouts);

} // namespace oncekey
