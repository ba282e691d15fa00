// paced_load: keyed POST requests at a fixed rate, whatever the server does.
//
//   paced_load --port N --rate N --seconds S --connections N --run N
//
// The requests have fixed moments, shared out among the connections, and a latency counts from that moment: a server
// that stalls is not spared the requests it would have got meanwhile. Every key is new; `run` makes those of a run its
// own. Prints one line of JSON for bench/run. Ends with an error if an answer is not 2xx.
#include "load.h"
#include "net/connect.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey::bench {
namespace {

constexpr std::string_view kUsage = "usage: paced_load --port N --rate N --seconds S --connections N --run N";
constexpr std::chrono::seconds kPatience{10};

// Of the whole answer with its body; 0 if there is more to come. The head has a Content-Length.
std::size_t answer_bytes(std::string_view received) {
  constexpr std::string_view kLength = "content-length:";
  const std::size_t head = received.find("\r\n\r\n");
  if (head == std::string_view::npos) return 0;
  std::string lowered(received.substr(0, head));
  for (char& letter : lowered) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  const std::size_t at = lowered.find(kLength);
  if (at == std::string::npos) stop("an answer has no Content-Length");
  const auto body = static_cast<std::size_t>(std::atoll(lowered.c_str() + at + kLength.size()));
  const std::size_t whole = head + 4 + body;
  return received.size() >= whole ? whole : 0;
}

class PacedLoad {
 public:
  PacedLoad(std::uint16_t port, double rate, double seconds, std::size_t connections, std::uint64_t run)
      : port_(port),
        every_(std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(1 / rate))),
        requests_(static_cast<std::size_t>(rate * seconds)),
        connections_(connections),
        run_(run) {}

  void run() {
    // Connecting has a while of its own.
    begin_ = Clock::now() + std::chrono::milliseconds(100);
    running_ = connections_;
    for (std::size_t i = 0; i < connections_; ++i) spawn(send_requests(i));
    loop_.run_until([this] { return running_ == 0; });
    fmt::print(R"({{"requests": {}, "seconds": {:.3f}, "p50": {:.0f}, "p99": {:.0f}}})"
               "\n",
               requests_, seconds_since(begin_), times_.quantile(0.5), times_.quantile(0.99));
  }

 private:
  Task<void> send_requests(std::size_t first) {
    Connected connected = co_await connect(loop_, "127.0.0.1", port_, nullptr, Clock::now() + kPatience);
    if (!connected.transport) stop("the server does not take connections");
    Transport& server = *connected.transport;
    std::string received(kReadBytes, '\0');
    for (std::size_t number = first; number < requests_; number += connections_) {
      const Clock::time_point due = begin_ + static_cast<Clock::rep>(number) * every_;
      co_await sleep_until(loop_, due);
      const std::string request = request_of(number);
      server.deadline_after(kPatience);
      const IoResult sent = co_await server.write(request);
      if (sent.error) stop("the server has closed a connection");
      std::size_t bytes = 0;
      while (answer_bytes(std::string_view(received).substr(0, bytes)) == 0) {
        const IoResult got = co_await server.read_some(std::span(received).subspan(bytes));
        if (got.error) stop("an answer breaks off");
        bytes += got.bytes;
      }
      times_.add(Clock::now() - due);
      if (!received.starts_with("HTTP/1.1 2")) stop("an answer is not 2xx: " + received.substr(0, bytes));
    }
    --running_;
  }

  std::string request_of(std::size_t number) const {
    return fmt::format(
        "POST /charges HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer sk_test_1\r\n"
        "Content-Type: application/json\r\nIdempotency-Key: {:08x}-ffff-4000-8000-{:012x}\r\n"
        "Content-Length: 32\r\n\r\n{}",
        run_, number, R"({"amount":2000,"currency":"usd"})");
  }

  Loop loop_;
  const std::uint16_t port_;
  const Clock::duration every_;
  const std::size_t requests_;
  const std::size_t connections_;
  const std::uint64_t run_;
  Clock::time_point begin_{};
  std::size_t running_ = 0;
  CallTimes times_;
};

int run(const std::vector<std::string>& words) {
  std::map<std::string, double> given;
  for (std::size_t i = 0; i + 1 < words.size(); i += 2) given[words[i]] = std::atof(words[i + 1].c_str());
  for (const char* const name : {"--port", "--rate", "--seconds", "--connections", "--run"}) {
    if (given[name] <= 0) stop(kUsage);
  }
  PacedLoad(static_cast<std::uint16_t>(given["--port"]), given["--rate"], given["--seconds"],
            static_cast<std::size_t>(given["--connections"]), static_cast<std::uint64_t>(given["--run"]))
      .run();
  return 0;
}

} // namespace
} // namespace oncekey::bench

int main(int argc, char** argv) { return oncekey::bench::run(std::vector<std::string>(argv + 1, argv + argc)); }
