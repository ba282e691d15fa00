// The sinks that speak to servers: an HTTP server of the test's own, and a real Redis (ONCEKEY_TEST_REDIS).
#include <oncekey/sinks.h>

#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <limits>
#include <string>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

const auto kFarAway = [] { return std::chrono::steady_clock::now() + 1min; };

Job job_with(JobId id, std::string args = "{}") {
  return {.id = id, .sink = "s", .name = "send_receipt", .args = std::move(args), .staged_at = Time{1700000000123ms}};
}

// Answers each connection with the next of the given texts, or one connection with all of them, and keeps what it was
// sent.
class ScriptedServer {
 public:
  enum class Manner { closes, keeps_open };
  explicit ScriptedServer(std::vector<std::string> answers, Manner manner = Manner::closes)
      : answers_(std::move(answers)), manner_(manner) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t length = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  std::string url(const std::string& path = "/jobs?x=1") const {
    return fmt::format("http://127.0.0.1:{}{}", port_, path);
  }
  // After the client is done.
  const std::vector<std::string>& requests() const { return requests_; }

 private:
  void serve() {
    int connection = -1;
    for (const std::string& answer : answers_) {
      if (connection < 0) connection = accept(listener_, nullptr, nullptr);
      if (connection < 0) return;
      std::string request;
      char buffer[4096];
      const auto whole = [&] {
        const std::size_t head = request.find("\r\n\r\n");
        const std::size_t length = request.find("Content-Length: ");
        return head != std::string::npos && request.size() >= head + 4 + std::stoul(request.substr(length + 16));
      };
      while (!whole()) {
        const ssize_t got = read(connection, buffer, sizeof buffer);
        if (got <= 0) break;
        request.append(buffer, static_cast<std::size_t>(got));
      }
      requests_.push_back(request);
      if (answer == "silence") {
        pollfd waiting{connection, POLLIN, 0};
        poll(&waiting, 1, 5000); // until the client gives up
      } else {
        EXPECT_EQ(write(connection, answer.data(), answer.size()), static_cast<ssize_t>(answer.size()));
      }
      if (manner_ == Manner::keeps_open) continue;
      close(connection);
      connection = -1;
    }
    if (connection >= 0) close(connection);
  }

  std::vector<std::string> answers_;
  const Manner manner_;
  std::vector<std::string> requests_;
  int listener_ = -1;
  int port_ = 0;
  std::thread thread_;
};

std::string answer(int status) {
  return fmt::format("HTTP/1.1 {} X\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", status);
}

TEST(HttpSink, PostsTheArgsWithTheJobsIdAsKey) {
  std::string request;
  {
    ScriptedServer server({"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"});
    HttpSinkOptions options;
    options.authorization = "Bearer t";
    auto sink = http_sink(server.url(), options);
    ASSERT_TRUE(sink.ok());
    const Job jobs[] = {job_with(42, "{\"a\":1}")};
    const SinkReport report = sink.value()->deliver(jobs, kFarAway());
    EXPECT_THAT(report.accepted, ElementsAre(42));
    EXPECT_FALSE(report.down);
    request = server.requests().at(0);
  }
  EXPECT_THAT(request, HasSubstr("POST /jobs?x=1 HTTP/1.1\r\n"));
  EXPECT_THAT(request, HasSubstr("Idempotency-Key: 42\r\n"));
  EXPECT_THAT(request, HasSubstr("Oncekey-Job: send_receipt\r\n"));
  EXPECT_THAT(request, HasSubstr("Oncekey-Attempt: 1\r\n"));
  EXPECT_THAT(request, HasSubstr("Authorization: Bearer t\r\n"));
  EXPECT_THAT(request, HasSubstr("\r\n\r\n{\"a\":1}"));
}

TEST(HttpSink, UsesItsConnectionAgain) {
  const std::string ok = "HTTP/1.1 200 X\r\nContent-Length: 0\r\n\r\n";
  ScriptedServer server({ok, ok, ok}, ScriptedServer::Manner::keeps_open); // and accepts no second one
  HttpSinkOptions options;
  options.timeout = 5s;
  auto sink = http_sink(server.url(), options);
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(1, 2, 3));
  EXPECT_FALSE(report.down) << *report.down;
}

TEST(HttpSink, ARefusalIsTheJobsAndATroubleIsTheSinks) {
  ScriptedServer server({answer(200), answer(422), answer(200), answer(503), answer(503), answer(200)});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3), job_with(4), job_with(5), job_with(6)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(1, 3));
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_EQ(report.refused[0].id, 2);
  EXPECT_EQ(report.down, "answered 503");
  EXPECT_EQ(server.requests().size(), 5u) << "nothing more is sent to a sink that is down";
}

std::vector<JobId> ids_of(const std::vector<SinkReport::RefusedJob>& refused) {
  std::vector<JobId> ids;
  for (const SinkReport::RefusedJob& job : refused) ids.push_back(job.id);
  return ids;
}

TEST(HttpSink, AJobWhoseExchangeBreaksOffDoesNotHoldUpTheOthers) {
  const std::string breaks_off;
  ScriptedServer server({breaks_off, answer(200), answer(429), answer(200)});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3), job_with(4)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(2, 4));
  EXPECT_THAT(ids_of(report.refused), ElementsAre(1, 3));
  EXPECT_FALSE(report.down);
}

TEST(HttpSink, WhatFailedLastTimeIsTriedLast) {
  const std::string breaks_off;
  ScriptedServer server({breaks_off, breaks_off, answer(200), breaks_off, breaks_off});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3)};
  const SinkReport first = sink.value()->deliver(jobs, kFarAway());
  EXPECT_TRUE(first.down);
  EXPECT_TRUE(first.refused.empty()) << "two in a row are the sink's trouble, as far as can be known";
  const SinkReport second = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(second.accepted, ElementsAre(3));
  EXPECT_THAT(ids_of(second.refused), ElementsAre(1, 2));
  EXPECT_FALSE(second.down);
}

TEST(HttpSink, AJobTheServerStumblesOverDoesNotHoldUpTheOthers) {
  ScriptedServer server({answer(500), answer(502), answer(200), answer(422), answer(500)});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3), job_with(4), job_with(5)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(3));
  ASSERT_EQ(report.refused.size(), 4u);
  EXPECT_EQ(report.refused[0].id, 1);
  EXPECT_EQ(report.refused[0].why, "answered 500");
  EXPECT_EQ(report.refused[1].id, 2);
  EXPECT_EQ(report.refused[2].id, 4);
  EXPECT_EQ(report.refused[3].id, 5);
  EXPECT_FALSE(report.down);
}

TEST(HttpSink, AServerThatStumblesOverEverythingIsDownAndNoJobIsBlamed) {
  ScriptedServer server(std::vector<std::string>(11, answer(500)));
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  std::vector<Job> jobs;
  for (JobId id = 1; id <= 20; ++id) jobs.push_back(job_with(id));
  const SinkReport many = sink.value()->deliver(jobs, kFarAway());
  EXPECT_EQ(many.down, "answered 500");
  EXPECT_TRUE(many.refused.empty());
  EXPECT_EQ(server.requests().size(), 10u);
  const SinkReport one = sink.value()->deliver(std::span(jobs).first(1), kFarAway());
  EXPECT_EQ(one.down, "answered 500");
  EXPECT_TRUE(one.refused.empty());
}

TEST(HttpSink, AReceiverThatIsGoneForGoodMakesADeadLetterOfTheJob) {
  ScriptedServer server({answer(410), answer(200), answer(404)});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(2));
  ASSERT_THAT(ids_of(report.refused), ElementsAre(1, 3));
  EXPECT_TRUE(report.refused[0].for_good);
  EXPECT_FALSE(report.refused[1].for_good);
}

TEST(HttpSink, CredentialsThatAreRefusedBlameNoJob) {
  ScriptedServer server({answer(401), answer(403), answer(401)});
  auto sink = http_sink(server.url());
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1), job_with(2), job_with(3)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_TRUE(report.accepted.empty());
  EXPECT_TRUE(report.refused.empty());
  EXPECT_EQ(report.down, "answered 401");
}

TEST(HttpSink, NobodyThereSilenceAndNonsenseAreTheSinksTrouble) {
  auto nobody = http_sink("http://127.0.0.1:1/");
  ASSERT_TRUE(nobody.ok());
  const Job jobs[] = {job_with(1)};
  EXPECT_TRUE(nobody.value()->deliver(jobs, kFarAway()).down);

  ScriptedServer server({"silence", "SSH-2.0-x\r\n\r\n", ""});
  HttpSinkOptions options;
  options.timeout = 100ms;
  auto sink = http_sink(server.url(), options);
  for (int i = 0; i < 3; ++i) {
    const SinkReport report = sink.value()->deliver(jobs, kFarAway());
    EXPECT_TRUE(report.down) << i;
    EXPECT_TRUE(report.accepted.empty());
    EXPECT_TRUE(report.refused.empty());
  }
}

TEST(HttpSink, StopsWhenItsClaimIsOver) {
  auto sink = http_sink("http://127.0.0.1:1/");
  const Job jobs[] = {job_with(1)};
  const SinkReport report = sink.value()->deliver(jobs, std::chrono::steady_clock::now() - 1s);
  EXPECT_FALSE(report.down);
  EXPECT_TRUE(report.accepted.empty());
}

TEST(HttpSink, RefusesUrlsAndHeadersThatCannotBeRight) {
  EXPECT_FALSE(http_sink("ftp://x/").ok());
  EXPECT_FALSE(http_sink("http:///path").ok());
  EXPECT_FALSE(http_sink("http://user:pass@host/").ok());
  EXPECT_FALSE(http_sink("http://host/a b").ok());
  EXPECT_TRUE(http_sink("https://[::1]:8443").ok());
  HttpSinkOptions options;
  options.authorization = "a\r\nb: c";
  EXPECT_FALSE(http_sink("http://host/", options).ok());
}

class RedisSinks : public testing::Test {
 protected:
  RedisSinks() {
    const char* const given = std::getenv("ONCEKEY_TEST_REDIS");
    if (!given) {
      ADD_FAILURE() << "ONCEKEY_TEST_REDIS names no server: run this under tests/support/with_servers.py redis";
      std::abort();
    }
    url = given;
    const std::size_t slashes = url.find("://") + 3;
    const std::size_t colon = url.rfind(':');
    context = redisConnect(url.substr(slashes, colon - slashes).c_str(), std::atoi(url.c_str() + colon + 1));
    ask("FLUSHALL");
  }
  ~RedisSinks() override { redisFree(context); }

  std::vector<std::string> ask(const std::string& command) {
    auto* const reply = static_cast<redisReply*>(redisCommand(context, command.c_str()));
    std::vector<std::string> texts;
    collect(reply, texts);
    freeReplyObject(reply);
    return texts;
  }
  static void collect(const redisReply* reply, std::vector<std::string>& texts) {
    if (reply->str) texts.emplace_back(reply->str, reply->len);
    for (std::size_t i = 0; i < reply->elements; ++i) collect(reply->element[i], texts);
  }

  std::string url;
  redisContext* context = nullptr;
};

TEST_F(RedisSinks, SidekiqFindsItsJobs) {
  auto sink = sidekiq_sink(url, "mailers");
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(42, "[1,\"two\",12345678901234567890123]"), job_with(43, "{\"a\":1}"),
                      job_with(44, "not json")};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_THAT(report.accepted, ElementsAre(42, 43, 44));
  EXPECT_THAT(ask("SMEMBERS queues"), ElementsAre("mailers"));
  const auto pushed = ask("LRANGE queue:mailers 0 -1");
  ASSERT_EQ(pushed.size(), 3u);
  // Workers take from the right: the first staged comes first.
  EXPECT_THAT(pushed[2], HasSubstr("\"class\":\"send_receipt\",\"args\":[1,\"two\",12345678901234567890123]"));
  EXPECT_THAT(pushed[2], HasSubstr("\"queue\":\"mailers\",\"jid\":\"00000000000000000000002a\""));
  EXPECT_THAT(pushed[2], HasSubstr("\"created_at\":1700000000.123,\"enqueued_at\":"));
  EXPECT_THAT(pushed[2], HasSubstr("\"retry\":true"));
  EXPECT_THAT(pushed[1], HasSubstr("\"args\":[{\"a\":1}]"));
  EXPECT_THAT(pushed[0], HasSubstr("\"args\":[\"not json\"]"));
}

TEST_F(RedisSinks, SidekiqGetsNamesInUtf8) {
  auto sink = sidekiq_sink(url, "mailers");
  ASSERT_TRUE(sink.ok());
  Job job = job_with(42,
                     "Gr\xc3\xbc\xc3\x9f"
                     "e"); // not JSON: becomes a string
  job.name =
      "Gr\xc3\xbc\xc3\x9f"
      "e";
  EXPECT_THAT(sink.value()->deliver({&job, 1}, kFarAway()).accepted, ElementsAre(42));
  EXPECT_THAT(ask("LRANGE queue:mailers 0 -1").at(0), HasSubstr("\"class\":\"Gr\xc3\xbc\xc3\x9f"
                                                                "e\",\"args\":[\"Gr\xc3\xbc\xc3\x9f"
                                                                "e\"]"));
}

TEST_F(RedisSinks, AStreamGetsEveryJobInOrder) {
  auto sink = redis_stream_sink(url, "rides");
  ASSERT_TRUE(sink.ok());
  std::vector<Job> jobs;
  for (int i = 1; i <= 250; ++i) jobs.push_back(job_with(i, std::string("\0bytes", 6)));
  EXPECT_EQ(sink.value()->deliver(jobs, kFarAway()).accepted.size(), 250u);
  const auto entries = ask("XRANGE rides - + COUNT 1");
  ASSERT_EQ(entries.size(), 7u);
  EXPECT_EQ(entries[2], "1");
  EXPECT_EQ(entries[6], std::string("\0bytes", 6));
  EXPECT_EQ(ask("XREVRANGE rides + - COUNT 1")[2], "250");
}

TEST_F(RedisSinks, AnAnswerThatIsAnErrorRefusesTheJob) {
  ask("SET rides text");
  auto sink = redis_stream_sink(url, "rides");
  const Job jobs[] = {job_with(1)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  EXPECT_TRUE(report.accepted.empty());
  ASSERT_EQ(report.refused.size(), 1u);
  EXPECT_THAT(report.refused[0].why, HasSubstr("WRONGTYPE"));
}

TEST_F(RedisSinks, ALostConnectionIsTheSinksTroubleAndIsMadeAnew) {
  auto sink = redis_stream_sink(url, "rides");
  const Job jobs[] = {job_with(1)};
  EXPECT_EQ(sink.value()->deliver(jobs, kFarAway()).accepted.size(), 1u);
  ask("CLIENT KILL TYPE normal SKIPME yes");
  EXPECT_TRUE(sink.value()->deliver(jobs, kFarAway()).down);
  EXPECT_EQ(sink.value()->deliver(jobs, kFarAway()).accepted.size(), 1u);
  auto nobody = redis_stream_sink("redis://127.0.0.1:1/0", "rides");
  EXPECT_TRUE(nobody.value()->deliver(jobs, kFarAway()).down);
}

TEST_F(RedisSinks, AUserAndItsPasswordComePercentEncoded) {
  ask("ACL SETUSER worker@home on >p:ss@word ~rides +xadd");
  const std::string host = url.substr(url.find("://") + 3);
  const Job jobs[] = {job_with(1)};
  auto sink = redis_stream_sink("redis://worker%40home:p%3Ass%40word@" + host, "rides");
  ASSERT_TRUE(sink.ok());
  EXPECT_THAT(sink.value()->deliver(jobs, kFarAway()).accepted, ElementsAre(1));
  auto stranger = redis_stream_sink("redis://worker%40home:wrong@" + host, "rides");
  const SinkReport report = stranger.value()->deliver(jobs, kFarAway());
  EXPECT_TRUE(report.refused.empty());
  ASSERT_TRUE(report.down);
  EXPECT_THAT(*report.down, HasSubstr("WRONGPASS"));
  ask("ACL DELUSER worker@home");
}

TEST_F(RedisSinks, OverTlsNothingIsSaidToAServerWithout) {
  auto sink = redis_stream_sink("rediss://" + url.substr(url.find("://") + 3), "rides");
  ASSERT_TRUE(sink.ok());
  const Job jobs[] = {job_with(1)};
  const SinkReport report = sink.value()->deliver(jobs, kFarAway());
  ASSERT_TRUE(report.down);
  EXPECT_THAT(*report.down, HasSubstr("TLS"));
  EXPECT_TRUE(ask("XRANGE rides - +").empty());
}

// Says the same to each of its first clients, and closes; to later ones it says nothing.
class ClosingServer {
 public:
  explicit ClosingServer(std::string says, int answered = std::numeric_limits<int>::max())
      : says_(std::move(says)), answered_(answered) {
    listener_ = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t length = sizeof address;
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &length);
    url_ = fmt::format("redis://127.0.0.1:{}", ntohs(address.sin_port));
    thread_ = std::thread([this] {
      for (int connection = accept(listener_, nullptr, nullptr); connection >= 0;
           connection = accept(listener_, nullptr, nullptr)) {
        const bool silent = ++connections_ > answered_;
        char request[4096];
        EXPECT_GT(read(connection, request, sizeof request), 0);
        if (!silent) {
          EXPECT_EQ(write(connection, says_.data(), says_.size()), static_cast<ssize_t>(says_.size()));
        }
        close(connection);
      }
    });
  }
  ~ClosingServer() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }
  const std::string& url() const { return url_; }
  int connections() const { return connections_; }

 private:
  const std::string says_;
  const int answered_;
  std::string url_;
  int listener_ = -1;
  std::atomic<int> connections_{0};
  std::thread thread_;
};

TEST_F(RedisSinks, InAClusterAStreamIsLookedForWhereItIs) {
  const std::size_t colon = url.rfind(':');
  ClosingServer elsewhere(fmt::format("-MOVED 1 127.0.0.1:{}\r\n", std::atoi(url.c_str() + colon + 1)));
  const Job jobs[] = {job_with(1)};
  auto sink = redis_stream_sink("redis+cluster" + elsewhere.url().substr(5), "rides");
  ASSERT_TRUE(sink.ok());
  EXPECT_THAT(sink.value()->deliver(jobs, kFarAway()).accepted, ElementsAre(1));
  EXPECT_THAT(sink.value()->deliver(jobs, kFarAway()).accepted, ElementsAre(1));
  EXPECT_EQ(elsewhere.connections(), 1) << "where it is was forgotten";
  auto single = redis_stream_sink(elsewhere.url(), "rides");
  const SinkReport report = single.value()->deliver(jobs, kFarAway());
  EXPECT_TRUE(report.refused.empty());
  ASSERT_TRUE(report.down);
  EXPECT_THAT(*report.down, HasSubstr("MOVED"));
}

TEST(RedisSinkConnection, ThatTheServerClosedDoesNotEndTheProcess) {
  const auto before = std::signal(SIGPIPE, SIG_DFL); // the process that started us may have us ignore it
  // Only the first connection is answered: a client that has seen its end already makes a second one.
  ClosingServer server("$3\r\n1-1\r\n", 1);
  auto sink = redis_stream_sink(server.url(), "rides");
  const Job jobs[] = {job_with(1)};
  EXPECT_THAT(sink.value()->deliver(jobs, kFarAway()).accepted, ElementsAre(1));
  // More than one write takes: the first is answered by a reset, the second by SIGPIPE unless it is blocked.
  const Job large[] = {job_with(2, std::string(16 << 20, 'x'))};
  EXPECT_TRUE(sink.value()->deliver(large, kFarAway()).down);
  sigset_t pending;
  sigpending(&pending);
  EXPECT_EQ(sigismember(&pending, SIGPIPE), 0);
  std::signal(SIGPIPE, before);
}

TEST(RedisSinkConnection, ThatIsOneTooManyIsTheSinksTroubleAndIsNotKept) {
  ClosingServer server("-ERR max number of clients reached\r\n");
  auto sink = redis_stream_sink(server.url(), "rides");
  const Job jobs[] = {job_with(1)};
  for (int i = 1; i <= 3; ++i) {
    const SinkReport report = sink.value()->deliver(jobs, kFarAway());
    EXPECT_TRUE(report.refused.empty());
    EXPECT_EQ(report.down, "ERR max number of clients reached");
    EXPECT_EQ(server.connections(), i);
  }
}

TEST(RedisSinkConnection, ErrorsOfTheWholeServerBlameNoJob) {
  for (const std::string error :
       {"LOADING Redis is loading the dataset in memory", "OOM command not allowed when used memory > 'maxmemory'.",
        "READONLY You can't write against a read only replica.", "NOAUTH Authentication required.",
        "MISCONF Redis is configured to save RDB snapshots", "CLUSTERDOWN The cluster is down",
        "ERR operation not permitted"}) {
    ClosingServer server("-" + error + "\r\n");
    auto sink = redis_stream_sink(server.url(), "rides");
    const Job jobs[] = {job_with(1)};
    const SinkReport report = sink.value()->deliver(jobs, kFarAway());
    EXPECT_TRUE(report.refused.empty()) << error;
    EXPECT_EQ(report.down, error);
  }
}

TEST(RedisSinkUrls, AreChecked) {
  EXPECT_FALSE(sidekiq_sink("http://x", "q").ok());
  EXPECT_FALSE(sidekiq_sink("redis://x/abc", "q").ok());
  EXPECT_FALSE(sidekiq_sink("redis://x:port", "q").ok());
  EXPECT_FALSE(sidekiq_sink("redis://x", "").ok());
  EXPECT_TRUE(sidekiq_sink("redis://me:p@ss@x:6380/3", "q").ok());
  EXPECT_TRUE(sidekiq_sink("rediss://[::1]:6380", "q").ok());
  EXPECT_TRUE(redis_stream_sink("rediss+cluster://a:1,b:2/", "s").ok());
  EXPECT_FALSE(sidekiq_sink("redis+cluster://x", "q").ok()) << "its keys are of several slots";
  EXPECT_FALSE(redis_stream_sink("redis://x?wait=1", "s").ok()) << "a store's setting";
  EXPECT_FALSE(redis_stream_sink("rediss://x?tls_ca=/nowhere", "s").ok());
}

} // namespace
} // namespace oncekey
