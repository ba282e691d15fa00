// A plain keep-alive proxy on the net room: what an event loop costs without HTTP, policies and a store.
//
//     net_bench LISTEN_PORT UPSTREAM_PORT
//
// Copies each request (up to its blank line, without a body) to an idle connection of the upstream and the answer back.
// Meant for wrk with GET and an upstream whose answers fit into one read; the CPU time of the process, divided by the
// requests, is the figure. `bench/run --only compare` has it for the whole gateway.
#include "net/connect.h"
#include "net/listener.h"

#include <cstdio>
#include <cstdlib>

namespace oncekey {
namespace {

struct Proxy {
  Loop loop;
  std::uint16_t upstream_port = 0;
  std::vector<std::unique_ptr<Transport>> idle;

  Task<std::unique_ptr<Transport>> upstream() {
    while (!idle.empty()) {
      std::unique_ptr<Transport> taken = std::move(idle.back());
      idle.pop_back();
      if (taken->quiet()) co_return taken;
    }
    const MonotonicTime due = std::chrono::steady_clock::now() + std::chrono::seconds(5);
    Connected connected = co_await connect(loop, "127.0.0.1", upstream_port, nullptr, due);
    co_return std::move(connected.transport);
  }

  Task<void> serve(Descriptor socket) {
    Transport client(loop, std::move(socket));
    std::string request(kReadBytes, '\0');
    std::string answer(kReadBytes, '\0');
    for (;;) {
      std::size_t bytes = 0;
      while (bytes < 4 || std::string_view(request.data() + bytes - 4, 4) != "\r\n\r\n") {
        client.deadline_after(std::chrono::seconds(60));
        const IoResult got = co_await client.read_some({request.data() + bytes, request.size() - bytes});
        if (got.error) co_return;
        bytes += got.bytes;
      }
      std::unique_ptr<Transport> to = co_await upstream();
      if (!to) co_return;
      to->deadline_after(std::chrono::seconds(10));
      const IoResult sent = co_await to->write(std::string_view(request).substr(0, bytes));
      if (sent.error) co_return;
      const IoResult got = co_await to->read_some(answer);
      if (got.error) co_return;
      to->no_deadline();
      idle.push_back(std::move(to));
      const IoResult back = co_await client.write(std::string_view(answer).substr(0, got.bytes));
      if (back.error) co_return;
    }
  }

  Task<void> accept(Listener& listener) {
    for (;;) {
      Listener::Accepted accepted = co_await listener.accept();
      if (accepted.error) co_return;
      spawn(serve(std::move(accepted.socket)));
    }
  }
};

} // namespace
} // namespace oncekey

int main(int count, char** arguments) {
  if (count != 3) return std::fprintf(stderr, "usage: net_bench LISTEN_PORT UPSTREAM_PORT\n"), 2;
  oncekey::Proxy proxy;
  proxy.upstream_port = static_cast<std::uint16_t>(std::atoi(arguments[2]));
  oncekey::Listener listener(proxy.loop);
  const auto listening = listener.listen("127.0.0.1", static_cast<std::uint16_t>(std::atoi(arguments[1])));
  if (!listening) return std::fprintf(stderr, "%s\n", listening.fault().message.c_str()), 1;
  spawn(proxy.accept(listener));
  proxy.loop.run();
}
