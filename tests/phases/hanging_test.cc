// A Postgres server that hangs: its sockets stay open, TCP answers, and nothing comes. Every call ends in a fault.
#include "database_under_test.h"
#include "ride_app.h"

#include <oncekey/runner.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <libpq-fe.h>

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

// Forwards bytes between its clients and the server until it is told to hang; then it keeps all connections, takes new
// ones and forwards nothing.
class HangingProxy {
 public:
  explicit HangingProxy(int server_port) : server_port_(server_port) {
    listening_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = local(0);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(listening_, reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::listen(listening_, 64), 0);
    ::getsockname(listening_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    EXPECT_EQ(::pipe(wake_), 0);
    thread_ = std::thread([this] { forward(); });
  }
  ~HangingProxy() {
    ending_ = true;
    poke();
    thread_.join();
    for (const Pair& pair : pairs_) {
      ::close(pair.client);
      ::close(pair.server);
    }
    for (const int fd : {listening_, wake_[0], wake_[1]}) ::close(fd);
  }
  int port() const { return port_; }
  // Nothing that is sent after this arrives.
  void hang() {
    hanging_ = true;
    poke();
    while (!hangs_) std::this_thread::yield();
  }
  void go_on() {
    hanging_ = false;
    poke();
  }

 private:
  struct Pair {
    int client, server;
  };
  static sockaddr_in local(int port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    return address;
  }
  void poke() { EXPECT_EQ(::write(wake_[1], "x", 1), 1); }

  void forward() {
    while (!ending_) {
      hangs_ = hanging_.load();
      std::vector<pollfd> waited{{wake_[0], POLLIN, 0}};
      if (!hangs_) {
        waited.push_back({listening_, POLLIN, 0});
        for (const Pair& pair : pairs_) {
          waited.push_back({pair.client, POLLIN, 0});
          waited.push_back({pair.server, POLLIN, 0});
        }
      }
      ::poll(waited.data(), waited.size(), -1);
      char byte;
      if (waited[0].revents != 0) {
        EXPECT_EQ(::read(wake_[0], &byte, 1), 1);
        continue;
      }
      if (waited[1].revents != 0) take_in();
      std::size_t at = 2;
      for (auto pair = pairs_.begin(); pair != pairs_.end() && at + 1 < waited.size(); at += 2) {
        const bool ended = (waited[at].revents != 0 && !pass(pair->client, pair->server)) ||
                           (waited[at + 1].revents != 0 && !pass(pair->server, pair->client));
        if (ended) {
          ::close(pair->client);
          ::close(pair->server);
          pair = pairs_.erase(pair);
        } else {
          ++pair;
        }
      }
    }
  }
  void take_in() {
    const int client = ::accept(listening_, nullptr, nullptr);
    const int server = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    const sockaddr_in address = local(server_port_);
    EXPECT_EQ(::connect(server, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    pairs_.push_back({client, server});
  }
  static bool pass(int from, int to) {
    char bytes[65536];
    const ssize_t got = ::recv(from, bytes, sizeof bytes, 0);
    return got > 0 && ::send(to, bytes, static_cast<std::size_t>(got), MSG_NOSIGNAL) == got;
  }

  const int server_port_;
  int listening_ = -1;
  int port_ = 0;
  int wake_[2] = {-1, -1};
  std::list<Pair> pairs_;
  std::atomic<bool> hanging_{false}, hangs_{false}, ending_{false};
  std::thread thread_;
};

class PostgresHangs : public testing::Test {
 protected:
  static DatabaseOptions impatient() {
    DatabaseOptions options;
    options.answer_timeout = 1s;
    options.connect_timeout = 1s; // libpq makes two of it
    options.wait_max = 100ms;
    return options;
  }
  static int port_in(const std::string& url) { return std::stoi(url.substr(url.rfind(':') + 1)); }
  std::string through_proxy() const {
    std::string url = place.url();
    const std::string server = fmt::format(":{}/", port_in(url));
    url.replace(url.find(server), server.size(), fmt::format(":{}/", proxy.port()));
    return url;
  }
  std::unique_ptr<Database> open() const {
    auto opened = open_database(through_proxy(), impatient());
    if (!opened.ok()) {
      ADD_FAILURE() << opened.fault().message;
      std::abort();
    }
    return std::move(opened).value();
  }

  TestPlace place{Dialect::postgres};
  std::unique_ptr<Database> direct = place.open();
  HangingProxy proxy{port_in(place.url())};
  std::unique_ptr<Database> database = open();
  OutsideWorld world{place.folder()};
};

TEST_F(PostgresHangs, EveryCallEndsInAFaultAndItRecovers) {
  make_ride_tables(*direct);
  Operation book("book_ride");
  book.phase("started", [](Phase& phase) { return phase.next("charging"); });
  book.call_then_phase(
      "charging", "charge",
      [&](const ForeignCall& call) {
        if (world.calls() == 0) proxy.hang();
        return world.charge(call.key());
      },
      [](Phase& phase, const std::string& charge) { return phase.respond(200, "", charge); });
  Runner runner(*database, {book});
  // In the phase after the call.
  const auto hung = runner.run(ride_request("k1"));
  ASSERT_FALSE(hung.ok());
  EXPECT_THAT(hung.fault().message, testing::HasSubstr("no answer within 1000 ms"));

  proxy.go_on();
  const auto outcome = runner.run(ride_request("k1"));
  ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
  EXPECT_TRUE(std::holds_alternative<Finished>(*outcome)) << "it goes on with its own lease";
  EXPECT_EQ(world.charges(), 1);
}

// Connections of a pool are open already: each of them would hang for the whole time-out.
TEST_F(PostgresHangs, NoSecondConnectionOfAPoolIsTriedAfterOneThatHangs) {
  make_ride_tables(*direct);
  std::atomic<int> broken{0};
  DatabaseOptions options = impatient();
  std::vector<PGconn*> idle;
  for (int i = 0; i < 4; ++i) idle.push_back(PQconnectdb(through_proxy().c_str()));
  std::mutex mutex;
  options.connections.borrow = [&]() -> Result<OwnConnection> {
    const std::lock_guard lock(mutex);
    if (idle.empty()) return Fault{FaultKind::exhausted, "all are in use"};
    PGconn* const handle = idle.back();
    idle.pop_back();
    return OwnConnection(handle);
  };
  options.connections.give_back = [&](OwnConnection lent, ConnectionProvider::State state) {
    const std::lock_guard lock(mutex);
    if (state == ConnectionProvider::State::idle) {
      idle.push_back(lent.postgres());
    } else {
      ++broken;
      PQfinish(lent.postgres());
    }
  };
  {
    const auto pooled = place.open(options);
    bool hung = false;
    Operation book("book_ride");
    book.phase("started", [&](Phase& phase) {
      if (!hung) {
        hung = true;
        proxy.hang();
      }
      phase.execute("INSERT INTO audit (what) VALUES ('a')");
      return phase.respond(200, "", "");
    });
    Runner runner(*pooled, {book});
    EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), DatabaseError);
    EXPECT_EQ(broken, 1);
    proxy.go_on();
    // Until the server has noticed the broken connection, its transaction holds the row.
    const auto patience = std::chrono::steady_clock::now() + 20s;
    auto outcome = runner.run(ride_request("k1"));
    while (outcome.ok() && std::holds_alternative<InProgress>(*outcome) && std::chrono::steady_clock::now() < patience)
      outcome = runner.run(ride_request("k1"));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_TRUE(std::holds_alternative<Finished>(*outcome)) << "it goes on with its own lease";
  }
  for (PGconn* const handle : idle) PQfinish(handle);
}

TEST_F(PostgresHangs, AStatementThatTheServerDoesNotReadEndsTooAndSoDoesACommit) {
  make_ride_tables(*direct);
  const std::string big(32 << 20, 'x'); // more than the sockets' buffers hold
  const auto writing = [&] {
    return run_transaction(*database, [&](Transaction& transaction) {
      proxy.hang();
      transaction.execute("INSERT INTO audit (what) VALUES ($1)", {big});
    });
  };
  EXPECT_THROW((void)writing().ok(), DatabaseError);
  proxy.go_on();

  const auto committing = run_transaction(*database, [&](Transaction& transaction) {
    transaction.execute("INSERT INTO audit (what) VALUES ('small')");
    proxy.hang();
  });
  ASSERT_FALSE(committing.ok());
  EXPECT_EQ(committing.fault().kind, FaultKind::timeout) << "it is not known whether it committed";
  proxy.go_on();
  EXPECT_LE(number(*direct, "SELECT count(*) FROM audit"), 1);
}

} // namespace
} // namespace oncekey
