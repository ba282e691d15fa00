// Client: calls to APIs with idempotency keys, tried again until the answer is final, and once in effect.
//
// A logical operation ("charge order 17") gets one key before its first try and keeps it for all of them. With a
// journal the key is on disk before the first byte is sent: after a crash the next run of the same operation finds its
// key and goes on where the first one stopped, and the server gives the first answer again instead of doing the work
// twice. A named operation that has its final answer stays ended: the same request under the same name sends the same
// key again, for `key_lifetime`. So a kill at any moment, also after the answer, makes no second effect.
//
//   ClientOptions options;
//   options.journal = "/var/lib/shop/keys";
//   auto client = Client::open(options);
//   ClientRequest request;
//   request.url = "https://api.example.com/v1/charges";
//   request.body = R"({"amount":1999})";
//   request.operation = "charge order 17";
//   Result<ClientAnswer> answer = (*client)->send(request);
//
// What is tried again: connections that fail, time-outs, 408, 409 while the first request is still at work, 425, 429
// and 5xx. `Stripe-Should-Retry` overrules all of it, in both directions. What is final: everything else, and also 409
// and 5xx whose body or headers say that another try changes nothing (another request under the same key, an outcome
// that only an operator can settle).
//
// The wait before try n is min(initial * 2^(n-1), longest), of which half to all is taken at random, and never less
// than `initial`: already the first retry (n = 2) is spread over a range, so that a thousand clients that failed at one
// moment do not come back at one. `Retry-After` in either form lengthens it, up to `retry_after_max`, with the same
// spread on top. A retry budget, shared by all calls of a Client, keeps retries a small share of the requests when a
// server fails them all. While the first request with the key is still running (409), `Retry-After` alone decides, and
// up to a quarter more.
//
// Threads. All members may be called from any thread; send() blocks its caller. Nothing runs in the background.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/result.h>
#include <oncekey/time.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

namespace oncekey {

// How often and how patiently one operation is tried. max_attempts, initial and timeout must be greater than 0.
struct RetryRules {
  // Tries in all, the first included. One that is answered 409 with `Retry-After`, because the first request with the
  // key is still running, does not count.
  std::uint32_t max_attempts = 8;
  // The base of the backoff, and the longest wait that it grows to; see the formula above.
  Millis initial{500};
  Millis longest{8'000};
  // For one try, connecting included. Longer than the slowest call that the server answers: a try that is given up
  // leaves its outcome unknown, and the next one waits for it (409).
  Millis timeout{30'000};
  // For all tries and the waits between them. No try begins after it.
  Millis deadline{120'000};
  // A longer `Retry-After` is cut to this.
  Millis retry_after_max{60'000};
};

// Every operation adds `share` of a retry, every retry takes one. So that a client with little to do can retry at all,
// `reserve` retries are there at the start, and grow again within `refill`. With a journal the budget is kept beside it
// (its name and ".budget") and shared by all processes that share the journal. A try that was answered "still running,
// come back then" is no failure and takes none.
//
// What it prevents: with eight attempts a client of a thousand operations a minute would send 8,000 requests a minute
// to a server that fails them all, just when that server has least to spare. With this budget it sends about 1,120.
struct BudgetRules {
  double share = 0.1;         // retries for each operation in the long run: 0.1 means one for ten
  std::uint32_t reserve = 20; // retries that are there at the start
  Millis refill{60'000};      // how long an empty reserve takes to be full again
};

enum class KeySpelling {
  bare,   // Idempotency-Key: 8e03978e-...     as Stripe and nearly all others have it
  quoted, // Idempotency-Key: "8e03978e-..."   the IETF draft's, for servers that insist on it
};

// What on_retry gets before each wait.
struct RetryNotice {
  std::uint32_t attempt = 0; // the one that has just failed, from 1
  std::string reason;
  Millis wait{};
};

// The same for all operations of a Client. Copied by Client::open.
struct ClientOptions {
  RetryRules retry;
  BudgetRules budget;
  // The file of keys, made if it is not there; several processes may share it. Empty: keys live as long as the call,
  // and a crash forgets them.
  std::string journal;
  // How long servers remember a key, at the least: one that is older in the journal may mean a new request to them, and
  // is not sent again unasked. Also how long a named operation stays ended. Stripe and most others promise 24 hours.
  Millis key_lifetime = std::chrono::hours(24);
  // The header that carries the key. Some vendors have a name of their own (PayPal-Request-Id).
  std::string key_header = "Idempotency-Key";
  KeySpelling key_spelling = KeySpelling::bare;
  // A PEM file of certificates to trust for https; the system's when empty.
  std::string ca_file;
  // A longer answer is not taken: the operation is given up, since a retry would get the same answer.
  std::uint64_t response_bytes_max = 64u << 20;
  // Called on the thread that sends, before each wait. Must not throw.
  std::function<void(const RetryNotice&)> on_retry;
};

struct ClientRequest {
  // In capitals. GET, HEAD and OPTIONS change nothing and get no key unless one is given.
  std::string method = "POST";
  std::string url; // http or https; may not hold a user or a fragment
  // Content-Type and whatever else the API asks for. Host, the key, Content-Length and Connection are ours to send.
  Headers headers;
  std::string body;
  // The caller's name for the logical operation, under which the journal finds its key again, also after it has ended:
  // what may happen every day has the day in its name. Empty: method, URL and body stand for it until the answer is
  // final. Then two identical requests at the same time count as one, and a crash after the answer makes a second one.
  std::string operation;
  // Begins a named operation that has ended once more, under a new key. One that has not ended goes on under its own.
  bool again = false;
  // The caller's own key, where one exists already (an order number). Empty: a random UUID is made. Requests that
  // change nothing (GET, HEAD, OPTIONS) get no key unless it is given.
  std::string key;
};

// An answer of the server, as it came, without the framing of HTTP.
struct ClientResponse {
  int status = 0;
  std::string reason;
  Headers headers;
  std::string body;
};

// How an operation ended for its caller.
enum class Ending {
  succeeded, // 2xx, or 303: done, now or by an earlier try
  refused,   // a final answer, but not success
  gave_up,   // tries, time or budget ran out before there was a final answer: it may or may not have been done
};
std::string_view to_string(Ending ending);

struct ClientAnswer {
  Ending ending = Ending::gave_up;
  // The final answer; after giving up, the last one that came, if any.
  std::optional<ClientResponse> response;
  std::string reason; // why it was refused or given up, a sentence; empty after success
  std::string key;    // that was sent; empty if none
  std::uint32_t attempts = 0;
  bool resumed = false; // the key is that of an earlier run
  // When an earlier run had succeeded, if one had: this run asked for that answer again.
  std::optional<Time> ended_before;
  // The outcome is not certain, and the key must be used for any further try. True after giving up, and after a refusal
  // that says nothing about what another try may have done: a 401 for a token that has expired since, for instance, or
  // one while another process runs the same operation.
  // With the caller's own key and no journal there may always have been an earlier try: 401, 403 and 407 say nothing
  // about it, and a mismatch says that there was one, with another request. With a journal the key is kept there.
  bool key_kept = false;
};

// Thrown by decided(). The outcome is not certain: the same operation must be sent again, under the same key.
class Undecided : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// The answer if it is the operation's final one, be it success or a refusal. Throws Undecided otherwise: after giving
// up, after a refusal that says nothing about an earlier try (`key_kept`: a 401, a mismatch, an outcome the server does
// not know), and after a fault. For code that must not go on in doubt, such as the foreign calls of an operation
// (operation.h):
//
//   const ClientAnswer answer = decided(client.send(request));
//   if (answer.ending == Ending::refused) ...   // declined for good
//
// `response` of the result is always there.
ClientAnswer decided(ClientAnswer answer);
ClientAnswer decided(Result<ClientAnswer> answer);

// Keeps connections for later calls, and the retry budget. One Client for a program is usual: the budget protects a
// server from all calls of that Client together.
class Client {
 public:
  // A fault if the options cannot be used, the journal cannot be opened or the certificates cannot be read.
  static Result<std::unique_ptr<Client>> open(ClientOptions options);
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  // Called with the final answer before the operation ends, so that the caller can make it durable first: a crash
  // before the end of this call leaves the key, and the next run gets the same answer again. After a fault the key is
  // kept too.
  using Receive = std::function<Status(const ClientAnswer&)>;

  // Sends until the answer is final, or attempts, time or budget run out. A fault means that nothing was sent:
  //
  //   invalid                the method, the URL, a header or the key cannot be used
  //   conflict               the journal holds the operation, open or ended, with another request, another key, or a
  //                          key older than `key_lifetime`
  //   unavailable, corrupt   the journal cannot be written or read
  //
  // or it is the fault that `receive` returned, after the answer came.
  Result<ClientAnswer> send(const ClientRequest& request, const Receive& receive = {});

  // Drops the operation's key from the journal, for an operator who has found out what became of it. True if there was
  // one.
  Result<bool> forget(const ClientRequest& request);

 private:
  friend struct ClientInTests; // src/client/world.h
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

} // namespace oncekey
