// fetch: one request and its whole answer. The HTTP call of everything that is not the gateway's own path: the client,
// the admin commands, the workers' HTTP sink, deliveries and the key sets of token issuers.
#pragma once

#include "http/upstream.h"

#include <map>

namespace oncekey {

struct FetchedAnswer {
  int status = 0; // of the final answer: 200 or more
  std::string reason;
  Headers headers;
  std::string body;
};

struct FetchFailure {
  enum class Kind {
    not_sent, // certainly not executed
    unknown,  // a byte may have left
  };
  Kind kind = Kind::unknown;
  std::string reason;
  bool lasting = false; // another try would fail in the same way: a certificate that is not trusted, too long an answer
};

using Fetched = std::variant<FetchedAnswer, FetchFailure>;

// How much of an answer's body is read, and what becomes of a longer one.
struct AnswerLimit {
  enum class Longer { fails, is_cut };
  std::uint64_t bytes = 64u << 20;
  Longer longer = Longer::fails;
};

// On the event loop of the call's pool. Over by `due`, whatever the server does. The call is the caller's, so that it
// can end it early; request and body live until the end.
Task<Fetched> fetch(UpstreamCall& call, const UpstreamRequest& request, std::string_view body, MonotonicTime due,
                    AnswerLimit limit);

// Host is added; the fields of framing are not among the headers.
struct FetchRequest {
  std::string method = "GET";
  Url url;
  Headers headers;
  std::string_view body;
};

// The same for callers without an event loop: blocking, on a loop of its own on the caller's thread. Connections are
// kept and used again. Starts no thread but for looking up a name. From any thread.
class Fetcher {
 public:
  // `ca_file`: PEM certificates to trust; the system's when empty. A fault if it cannot be read.
  static Result<std::unique_ptr<Fetcher>> open(std::string ca_file, AnswerLimit limit);

  Fetched fetch(const FetchRequest& request, MonotonicTime due);

 private:
  // An event loop and its connections: what one call needs, and leaves to the next one.
  struct FetchLoop {
    Loop loop;
    std::map<std::string, std::unique_ptr<UpstreamPool>> pools; // by origin
  };
  Fetcher(std::string ca_file, AnswerLimit limit) : ca_file_(std::move(ca_file)), limit_(limit) {}
  Result<UpstreamPool*> pool_for(FetchLoop& loop, const Url& url);
  Result<std::unique_ptr<FetchLoop>> take_loop();

  const std::string ca_file_;
  const AnswerLimit limit_;
  std::atomic<std::uint32_t> in_use_{0};
  std::mutex mutex_;                             // over the next
  std::vector<std::unique_ptr<FetchLoop>> idle_; // as many as were ever in use at the same time
};

} // namespace oncekey
