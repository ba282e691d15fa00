// The client against a scripted server, on a clock that moves when it sleeps. Nothing here waits.
#include <oncekey/client.h>

#include "client/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <deque>
#include <filesystem>
#include <functional>
#include <map>
#include <random>
#include <vector>

namespace oncekey {
namespace {

using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;

FetchedAnswer status(int code, std::vector<std::pair<std::string, std::string>> fields = {}, std::string body = "") {
  FetchedAnswer response;
  response.status = code;
  response.body = std::move(body);
  for (const auto& [name, value] : fields) response.headers.add(name, value);
  return response;
}
FetchFailure refused_connection() { return {FetchFailure::Kind::not_sent, "connection refused", false}; }
FetchFailure lost() { return {FetchFailure::Kind::unknown, "connection reset", false}; }

// What a server does, and what it saw. Survives the client, as a server does.
struct Server {
  std::deque<Fetched> script;
  Fetched otherwise = status(201);
  std::function<Fetched(ClientWorld::Moment)> by_time; // instead of the script
  std::vector<std::string> keys;
  std::vector<Millis> arrivals; // since the beginning
  std::vector<std::string> heads;
  Time wall{Millis(1'700'000'000'000)};
};

class ScriptedWorld final : public ClientWorld {
 public:
  ScriptedWorld(Server& server, std::uint32_t seed) : server_(server), random_(seed) {}

  Moment now() override { return now_; }
  Time wall_clock() override { return server_.wall + std::chrono::duration_cast<Millis>(now_ - Moment{}); }
  void sleep(Millis duration) override { now_ += duration; }
  double chance() override { return std::uniform_real_distribution<double>(0, 1)(random_); }
  Fetched exchange(const FetchRequest& request, Moment due) override {
    EXPECT_GT(due, now_);
    server_.keys.emplace_back(request.headers.get("Idempotency-Key").value_or("none"));
    server_.arrivals.push_back(std::chrono::duration_cast<Millis>(now_ - Moment{}));
    server_.heads.push_back(request.headers.lines());
    if (server_.by_time) return server_.by_time(now_);
    if (server_.script.empty()) return server_.otherwise;
    Fetched next = std::move(server_.script.front());
    server_.script.pop_front();
    return next;
  }

 private:
  Server& server_;
  std::mt19937 random_;
  Moment now_{};
};

std::unique_ptr<Client> client_of(Server& server, ClientOptions options = {}, std::uint32_t seed = 1) {
  auto client = ClientInTests::open(std::move(options), std::make_unique<ScriptedWorld>(server, seed));
  EXPECT_TRUE(client.ok()) << (client.ok() ? "" : client.fault().message);
  return *std::move(client);
}

ClientRequest charge(std::string body = "amount=1") {
  ClientRequest request;
  request.url = "http://api.test/v1/charges";
  request.body = std::move(body);
  return request;
}

// Of one run. With an answer that is final everywhere.
ClientAnswer sent(Client& client, const ClientRequest& request = charge()) {
  auto answer = client.send(request);
  EXPECT_TRUE(answer.ok()) << (answer.ok() ? "" : answer.fault().message);
  return *std::move(answer);
}

TEST(Client, SendsOneKeyForAllTriesOfAnOperation) {
  Server server;
  server.script = {refused_connection(), lost(), status(503), status(429), status(409), status(425)};
  const auto client = client_of(server);
  const ClientAnswer answer = sent(*client);
  EXPECT_EQ(answer.ending, Ending::succeeded);
  EXPECT_EQ(answer.attempts, 7u);
  EXPECT_EQ(answer.response->status, 201);
  ASSERT_EQ(server.keys.size(), 7u);
  EXPECT_THAT(server.keys, testing::Each(answer.key));
  EXPECT_EQ(answer.key.size(), 36u);
}

TEST(Client, MakesANewKeyForEveryOperation) {
  Server server;
  const auto client = client_of(server);
  EXPECT_NE(sent(*client).key, sent(*client).key);
}

TEST(Client, SendsTheCallersKeyIfThereIsOne) {
  Server server;
  ClientRequest request = charge();
  request.key = "order-17";
  sent(*client_of(server), request);
  EXPECT_THAT(server.keys, ElementsAre("order-17"));
}

TEST(Client, SpellsTheKeyAsTheServerWantsIt) {
  Server server;
  ClientOptions options;
  options.key_spelling = KeySpelling::quoted;
  ClientRequest request = charge();
  request.key = "a\"b\\c";
  sent(*client_of(server, options), request);
  EXPECT_THAT(server.keys, ElementsAre("\"a\\\"b\\\\c\""));

  options.key_header = "PayPal-Request-Id";
  options.key_spelling = KeySpelling::bare;
  request.key = "order-17";
  sent(*client_of(server, options), request);
  EXPECT_THAT(server.heads.back(), HasSubstr("PayPal-Request-Id: order-17\r\n"));
}

TEST(Client, RequestsThatChangeNothingNeedNoKey) {
  Server server;
  for (const char* method : {"GET", "HEAD", "OPTIONS"}) {
    ClientRequest request = charge("");
    request.method = method;
    EXPECT_EQ(sent(*client_of(server), request).key, "");
  }
  ClientRequest request = charge("");
  request.method = "DELETE";
  EXPECT_NE(sent(*client_of(server), request).key, "");
  EXPECT_THAT(server.keys, ElementsAre("none", "none", "none", testing::Ne("none")));
}

TEST(Client, FinalAnswersAreNotTriedAgain) {
  for (const int code : {400, 401, 402, 403, 404, 422}) {
    Server server;
    server.script = {status(code)};
    const ClientAnswer answer = sent(*client_of(server));
    EXPECT_EQ(answer.ending, Ending::refused) << code;
    EXPECT_EQ(answer.attempts, 1u) << code;
    EXPECT_FALSE(answer.key_kept) << code;
  }
}

TEST(Client, GivesUpAfterItsTries) {
  Server server;
  server.otherwise = status(503);
  ClientOptions options;
  options.retry.max_attempts = 3;
  const ClientAnswer answer = sent(*client_of(server, options));
  EXPECT_EQ(answer.ending, Ending::gave_up);
  EXPECT_EQ(answer.attempts, 3u);
  EXPECT_EQ(answer.response->status, 503);
  EXPECT_THAT(answer.reason, HasSubstr("after 3 tries"));
  EXPECT_TRUE(answer.key_kept);
}

TEST(Client, DoesNotTryAgainWhatFailsForGood) {
  Server server;
  server.otherwise = FetchFailure{FetchFailure::Kind::not_sent, "certificate verify failed", true};
  const ClientAnswer answer = sent(*client_of(server));
  EXPECT_EQ(answer.ending, Ending::gave_up);
  EXPECT_EQ(answer.attempts, 1u);
  EXPECT_EQ(answer.reason, "certificate verify failed");
}

TEST(Decided, IsAFinalAnswer) {
  Server server;
  EXPECT_EQ(decided(client_of(server)->send(charge())).response->status, 201);
  server.script = {status(402)};
  EXPECT_EQ(decided(client_of(server)->send(charge())).ending, Ending::refused);
}

TEST(Decided, ThrowsUnlessTheAnswerIsFinal) {
  Server server;
  // Refused, but the try before it may have had an effect.
  for (const int late : {400, 401, 403}) {
    server.script = {lost(), status(late)};
    EXPECT_THROW(decided(client_of(server)->send(charge())), Undecided) << late;
  }
  // The caller's own key: an earlier run may have sent it, and a refusal of the caller says nothing about that.
  ClientRequest own_key = charge();
  own_key.key = "order-17";
  for (const int about_the_caller : {401, 403, 407}) {
    server.script = {status(about_the_caller)};
    EXPECT_THROW(decided(client_of(server)->send(own_key)), Undecided) << about_the_caller;
  }
  server.script = {status(403, {{"Idempotent-Replayed", "true"}})};
  EXPECT_EQ(decided(client_of(server)->send(own_key)).ending, Ending::refused);
  server.script = {status(402)};
  EXPECT_EQ(decided(client_of(server)->send(own_key)).ending, Ending::refused);
  // The server does not know the outcome itself.
  server.script = {status(409, {}, R"({"type":"urn:oncekey:problem:indeterminate"})")};
  EXPECT_THROW(decided(client_of(server)->send(charge())), Undecided);
  // Nothing was sent.
  ClientRequest bad = charge();
  bad.url = "nowhere";
  EXPECT_THROW(decided(client_of(server)->send(bad)), Undecided);
  // Gave up.
  server.otherwise = status(503);
  const auto client = client_of(server);
  const auto answer = client->send(charge());
  try {
    decided(*answer);
    ADD_FAILURE() << "it was not decided";
  } catch (const Undecided& undecided) {
    EXPECT_THAT(undecided.what(), HasSubstr("503, after 8 tries"));
    EXPECT_THAT(undecided.what(), HasSubstr(answer->key));
  }
}

TEST(Client, DoesNotWaitForATryThatTheDeadlineForbids) {
  Server server;
  server.otherwise = status(503, {{"Retry-After", "7"}});
  ClientOptions options;
  options.retry.deadline = seconds(10);
  const ClientAnswer answer = sent(*client_of(server, options));
  EXPECT_EQ(answer.ending, Ending::gave_up);
  EXPECT_EQ(answer.attempts, 2u);
  EXPECT_THAT(answer.reason, HasSubstr("deadline"));
}

TEST(Client, WaitsAsLongAsTheServerAsks) {
  Server server;
  server.script = {status(503, {{"Retry-After", "7"}}),
                   status(429, {{"Retry-After", "Tue, 14 Nov 2023 22:13:40 GMT"}})};
  sent(*client_of(server));
  ASSERT_EQ(server.arrivals.size(), 3u);
  EXPECT_GE(server.arrivals[1], Millis(7'000));
  EXPECT_LE(server.arrivals[1], Millis(7'500));
  // 20 s after the wall clock's beginning, which is 13 s after the second try, more or less.
  EXPECT_GE(server.arrivals[2], Millis(20'000));
  EXPECT_LE(server.arrivals[2], Millis(22'000));
}

Fetched still_running(const char* retry_after) {
  return status(409, {{"Retry-After", retry_after}}, R"({"type":"urn:oncekey:problem:in_progress"})");
}

TEST(Client, FollowsARequestThatIsStillRunningCloselyAndNotByItsBackoff) {
  Server server;
  for (int i = 0; i < 11; ++i) server.script.push_back(still_running("1"));
  server.script.push_back(status(409, {{"Retry-After", "1"}, {"Stripe-Should-Retry", "true"}},
                                 R"({"error":{"code":"idempotency_key_in_use"}})"));
  ClientOptions options;
  options.retry.max_attempts = 2; // of which none is used up
  const ClientAnswer answer = sent(*client_of(server, options));
  EXPECT_EQ(answer.ending, Ending::succeeded);
  ASSERT_EQ(server.arrivals.size(), 13u);
  for (std::size_t i = 1; i < server.arrivals.size(); ++i) {
    EXPECT_GE(server.arrivals[i] - server.arrivals[i - 1], Millis(1'000));
    EXPECT_LE(server.arrivals[i] - server.arrivals[i - 1], Millis(1'250));
  }
}

TEST(Client, GivesUpARequestThatRunsForEverAtItsDeadline) {
  Server server;
  server.otherwise = still_running("10");
  const ClientAnswer answer = sent(*client_of(server));
  EXPECT_EQ(answer.ending, Ending::gave_up);
  EXPECT_THAT(answer.reason, HasSubstr("deadline"));
  EXPECT_GT(server.arrivals.back(), seconds(100));
}

TEST(Client, TellsOfEveryRetryBeforeItWaits) {
  Server server;
  server.script = {lost(), status(503)};
  ClientOptions options;
  std::vector<std::string> told;
  options.on_retry = [&](const RetryNotice& notice) {
    told.push_back(std::to_string(notice.attempt) + " " + notice.reason);
    EXPECT_GE(notice.wait, Millis(500));
  };
  sent(*client_of(server, options));
  EXPECT_THAT(told, ElementsAre("1 connection reset", "2 503"));
}

TEST(Client, RefusesRequestsThatAreNone) {
  Server server;
  const auto client = client_of(server);
  const auto fault_of = [&](const std::function<void(ClientRequest&)>& change) {
    ClientRequest request = charge();
    change(request);
    const auto answer = client->send(request);
    return answer.ok() ? std::string("sent") : answer.fault().message;
  };
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.url = "api.test"; }), HasSubstr("http://"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.method = "PO ST"; }), HasSubstr("got \"PO ST\""));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.method = "post"; }), HasSubstr("capital letters"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.key = "a b"; }), HasSubstr("key"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.key = std::string(256, 'k'); }), HasSubstr("key"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.headers.add("X Y", "z"); }), HasSubstr("header 1"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.headers.add("X", "y\r\nZ: w"); }), HasSubstr("header 1"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.headers.add("content-length", "3"); }), HasSubstr("Content-Length"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.headers.add("Host", "other"); }), HasSubstr("Host"));
  EXPECT_THAT(fault_of([](ClientRequest& r) { r.headers.add("idempotency-key", "k"); }),
              HasSubstr("give the key itself"));
  EXPECT_TRUE(server.keys.empty());
}

// What a refusal says about the tries before it.

bool key_kept_after(std::deque<Fetched> script) {
  Server server;
  server.script = std::move(script);
  const ClientAnswer answer = sent(*client_of(server));
  EXPECT_EQ(answer.ending, Ending::refused);
  return answer.key_kept;
}

TEST(ClientKey, IsLetGoWhenNoTryCanHaveHadAnEffect) {
  EXPECT_FALSE(key_kept_after({refused_connection(), status(402)}));
  EXPECT_FALSE(key_kept_after({status(429), status(400)}));
}

TEST(ClientKey, IsKeptWhenARefusalSaysNothingAboutAnEarlierTry) {
  EXPECT_TRUE(key_kept_after({lost(), status(401)}));
  EXPECT_TRUE(key_kept_after({status(503), status(400)}));
  EXPECT_TRUE(key_kept_after({status(409), status(403)}));
}

TEST(ClientKey, IsLetGoWhenTheRefusalIsTheEarlierTrysAnswer) {
  EXPECT_FALSE(key_kept_after({lost(), status(402, {{"Idempotent-Replayed", "true"}})}));
}

TEST(ClientKey, IsKeptWhenTheServerDoesNotKnowTheOutcomeItself) {
  EXPECT_TRUE(key_kept_after({status(500, {{"Stripe-Should-Retry", "false"}})}));
  EXPECT_TRUE(key_kept_after({status(500, {{"Stripe-Should-Retry", "false"}, {"Idempotent-Replayed", "true"}})}));
  EXPECT_TRUE(key_kept_after({status(409, {}, R"({"type":"urn:oncekey:problem:indeterminate"})")}));
}

// The journal.

class ClientJournal : public testing::Test {
 protected:
  ClientJournal() {
    std::string pattern = testing::TempDir() + "oncekey-client-XXXXXX";
    folder_ = ::mkdtemp(pattern.data());
    options.journal = folder_ + "/keys";
    options.retry.max_attempts = 2;
  }
  ~ClientJournal() override { std::filesystem::remove_all(folder_); }

  // One run of a program that makes this call and ends.
  ClientAnswer run(const ClientRequest& request = charge()) { return sent(*client_of(server, options), request); }
  std::string fault_of(const ClientRequest& request) {
    const auto answer = client_of(server, options)->send(request);
    if (answer.ok()) return "sent";
    EXPECT_EQ(answer.fault().kind, FaultKind::conflict);
    return answer.fault().message;
  }

  Server server;
  ClientOptions options;

 private:
  std::string folder_;
};

TEST_F(ClientJournal, ARunThatGaveUpIsGoneOnWithUnderTheSameKey) {
  server.script = {lost(), lost()};
  const ClientAnswer first = run();
  EXPECT_EQ(first.ending, Ending::gave_up);
  const ClientAnswer second = run();
  EXPECT_EQ(second.ending, Ending::succeeded);
  EXPECT_TRUE(second.resumed);
  EXPECT_EQ(second.key, first.key);
}

TEST_F(ClientJournal, ACrashBetweenSendingAndAnsweringIsGoneOnWithUnderTheSameKey) {
  struct Crash {};
  server.by_time = [](ClientWorld::Moment) -> Fetched { throw Crash(); };
  EXPECT_THROW(run(), Crash);
  server.by_time = nullptr;
  EXPECT_TRUE(run().resumed);
  ASSERT_EQ(server.keys.size(), 2u);
  EXPECT_EQ(server.keys[0], server.keys[1]);
}

TEST_F(ClientJournal, AFinalAnswerEndsTheOperation) {
  const std::string first = run().key;
  const ClientAnswer second = run();
  EXPECT_FALSE(second.resumed);
  EXPECT_NE(second.key, first);
  server.script = {status(402)};
  const std::string third = run().key;
  EXPECT_NE(run().key, third);
}

ClientRequest order_1(std::string body = "amount=1") {
  ClientRequest request = charge(std::move(body));
  request.operation = "order 1";
  return request;
}

TEST_F(ClientJournal, ANamedOperationThatHasEndedStaysEnded) {
  const ClientAnswer first = run(order_1());
  EXPECT_FALSE(first.ended_before.has_value());
  server.wall += std::chrono::hours(23);
  const ClientAnswer second = run(order_1());
  EXPECT_EQ(second.key, first.key);
  EXPECT_TRUE(second.resumed);
  EXPECT_EQ(second.ended_before, Time(Millis(1'700'000'000'000)));
  EXPECT_EQ(second.ending, Ending::succeeded);
  EXPECT_FALSE(second.key_kept);
}

TEST_F(ClientJournal, AnEndedOperationCanBeginAgain) {
  const std::string first = run(order_1()).key;
  ClientRequest again = order_1("amount=2"); // another request, too
  again.again = true;
  server.script = {lost(), lost()};
  const std::string second = run(again).key;
  EXPECT_NE(second, first);
  // It has not ended: `again` goes on with it.
  EXPECT_EQ(run(again).key, second);
  again.again = false;
  EXPECT_EQ(run(again).key, second);
}

TEST_F(ClientJournal, AnEndedOperationIsNotDoneUnderANewKeyWithAnotherRequest) {
  run(order_1());
  const std::string message = fault_of(order_1("amount=2"));
  EXPECT_THAT(message, HasSubstr("another method, URL or body"));
  EXPECT_THAT(message, HasSubstr("ended with 201 at 2023-11-14 22:13:20 UTC"));
  EXPECT_THAT(message, HasSubstr("--again"));
  ClientRequest other_key = order_1();
  other_key.key = "mine";
  EXPECT_THAT(fault_of(other_key), HasSubstr("another key"));
  EXPECT_EQ(server.keys.size(), 1u);
}

// It was resumed late, and killed after the answer: the server may have forgotten the key that the answer was for.
TEST_F(ClientJournal, AnEndedOperationWhoseKeyIsTooOldIsNotSent) {
  server.script = {lost(), lost()};
  run(order_1());
  server.wall += std::chrono::hours(23);
  run(order_1());
  server.wall += std::chrono::hours(2);
  EXPECT_THAT(fault_of(order_1()), HasSubstr("longer ago than servers remember keys"));
  server.wall += std::chrono::hours(22);
  EXPECT_FALSE(run(order_1()).resumed);
}

TEST_F(ClientJournal, ARefusalEndsANamedOperationToo) {
  server.otherwise = status(402);
  const std::string first = run(order_1()).key;
  const ClientAnswer second = run(order_1());
  EXPECT_EQ(second.key, first);
  EXPECT_FALSE(second.key_kept); // nothing was done before
}

ClientRequest order_1_again() {
  ClientRequest request = order_1();
  request.again = true;
  return request;
}

TEST_F(ClientJournal, ARunAfterARefusalThatGaveUpLeavesTheOperationOpen) {
  server.script = {status(401), lost(), lost()};
  const std::string key = run(order_1()).key;
  EXPECT_EQ(run(order_1()).ending, Ending::gave_up);
  // The lost tries may have done it: a new key could do it twice.
  const ClientAnswer again = run(order_1_again());
  EXPECT_EQ(again.key, key);
  EXPECT_FALSE(again.ended_before.has_value());
  EXPECT_EQ(run(order_1()).key, key);
}

TEST_F(ClientJournal, ARunAfterARefusalThatWasKilledLeavesTheOperationOpen) {
  struct Crash {};
  server.script = {status(401)};
  const std::string key = run(order_1()).key;
  server.by_time = [](ClientWorld::Moment) -> Fetched { throw Crash(); };
  EXPECT_THROW(run(order_1()), Crash);
  server.by_time = nullptr;
  // A refusal of the caller settles nothing now.
  server.script = {status(401)};
  const auto refused = client_of(server, options)->send(order_1());
  EXPECT_THROW(decided(refused), Undecided);
  EXPECT_EQ(run(order_1_again()).key, key);
}

TEST_F(ClientJournal, ARunAfterASuccessThatWasKilledLeavesItEnded) {
  struct Crash {};
  const std::string key = run(order_1()).key;
  server.by_time = [](ClientWorld::Moment) -> Fetched { throw Crash(); };
  EXPECT_THROW(run(order_1()), Crash);
  server.by_time = nullptr;
  const ClientAnswer next = run(order_1());
  EXPECT_EQ(next.key, key);
  EXPECT_TRUE(next.ended_before.has_value());
  EXPECT_NE(run(order_1_again()).key, key);
}

TEST_F(ClientJournal, AnEndedRefusalThatIsRefusedBeforeSendingStaysEnded) {
  server.script = {status(401)};
  const std::string key = run(order_1()).key;
  EXPECT_THAT(fault_of(order_1("amount=2")), HasSubstr("ended with 401"));
  EXPECT_NE(run(order_1_again()).key, key);
}

// The first of two runs at the same time is refused while the second may be doing it.
TEST_F(ClientJournal, ARefusalOfOneRunDoesNotEndWhatAnotherHasBegun) {
  for (const ClientRequest& request : {order_1(), charge()}) {
    Server other;
    other.script = {lost(), lost()};
    server.by_time = [&](ClientWorld::Moment) -> Fetched {
      EXPECT_EQ(sent(*client_of(other, options), request).ending, Ending::gave_up);
      return status(401);
    };
    const auto first = client_of(server, options)->send(request, [](const ClientAnswer& received) {
      EXPECT_TRUE(received.key_kept);
      return ok_status();
    });
    server.by_time = nullptr;
    ASSERT_TRUE(first.ok());
    EXPECT_TRUE(first->key_kept);
    ClientRequest again = request;
    again.again = !request.operation.empty();
    EXPECT_EQ(run(again).key, first->key);
  }
}

// As before, with a second run that begins after the first one's caller has its answer.
TEST_F(ClientJournal, ARefusalDoesNotEndARunThatBeginsWhileItIsReceived) {
  server.script = {status(401), lost(), lost()};
  const auto first = client_of(server, options)->send(order_1(), [&](const ClientAnswer&) {
    run(order_1());
    return ok_status();
  });
  ASSERT_TRUE(first.ok());
  EXPECT_TRUE(first->key_kept);
  EXPECT_EQ(run(order_1_again()).key, first->key);
}

TEST_F(ClientJournal, ARefusalAfterASuccessSaysNothingAboutIt) {
  const std::string first = run(order_1()).key;
  server.script = {status(401)};
  const ClientAnswer second = run(order_1());
  EXPECT_EQ(second.ending, Ending::refused);
  EXPECT_TRUE(second.key_kept);
  EXPECT_EQ(run(order_1()).key, first);
}

TEST_F(ClientJournal, AnEndedOperationCanBeForgotten) {
  const std::string first = run(order_1()).key;
  EXPECT_TRUE(*client_of(server, options)->forget(order_1()));
  EXPECT_NE(run(order_1()).key, first);
}

TEST_F(ClientJournal, ARefusalThatSettlesNothingKeepsTheKey) {
  server.script = {lost(), lost()};
  const std::string key = run().key;
  server.script = {status(401)};
  const ClientAnswer unauthorized = run();
  EXPECT_EQ(unauthorized.ending, Ending::refused);
  EXPECT_TRUE(unauthorized.key_kept);
  // With a good token, the operation is still the same one.
  EXPECT_EQ(run().key, key);
}

TEST_F(ClientJournal, TheKeyIsKeptUntilTheCallerHasTheAnswer) {
  struct Crash {};
  const auto crash = [](const ClientAnswer& answer) -> Status {
    EXPECT_EQ(answer.response->status, 201);
    throw Crash();
  };
  EXPECT_THROW({ const auto ignored = client_of(server, options)->send(charge(), crash); }, Crash);
  const auto full = [](const ClientAnswer&) -> Status { return unavailable("disk full"); };
  const auto answer = client_of(server, options)->send(charge(), full);
  EXPECT_EQ(answer.fault().message, "disk full");
  EXPECT_TRUE(run().resumed);
  EXPECT_THAT(server.keys, testing::Each(server.keys[0]));
  EXPECT_FALSE(run().resumed);
}

TEST_F(ClientJournal, OperationsAreToldApartByTheirNames) {
  server.otherwise = lost();
  ClientRequest one = charge();
  one.operation = "order 1";
  ClientRequest two = charge();
  two.operation = "order 2";
  const std::string first = run(one).key;
  EXPECT_NE(run(two).key, first);
  EXPECT_NE(run(charge()).key, first);
  EXPECT_EQ(run(one).key, first);
}

TEST_F(ClientJournal, WithoutANameTheRequestIsTheOperation) {
  server.otherwise = lost();
  const std::string first = run(charge("amount=1")).key;
  EXPECT_NE(run(charge("amount=2")).key, first);
  EXPECT_EQ(run(charge("amount=1")).key, first);
}

TEST_F(ClientJournal, CredentialsMayChangeBetweenRuns) {
  server.script = {lost(), lost()};
  ClientRequest request = charge();
  request.operation = "order 1";
  const std::string key = run(request).key;
  request.headers.add("Authorization", "Bearer new");
  EXPECT_EQ(run(request).key, key);
}

TEST_F(ClientJournal, AnotherRequestUnderTheSameNameIsRefusedAndNotSent) {
  server.script = {lost(), lost()};
  ClientRequest request = charge("amount=1");
  request.operation = "order 1";
  run(request);
  request.body = "amount=2";
  const std::string message = fault_of(request);
  EXPECT_THAT(message, HasSubstr("another method, URL or body"));
  EXPECT_THAT(message, HasSubstr("POST http://api.test/v1/charges"));
  EXPECT_THAT(message, HasSubstr("2023-11-14 22:13:20 UTC"));
  EXPECT_EQ(server.keys.size(), 2u);
  request.body = "amount=1";
  request.key = "another";
  EXPECT_THAT(fault_of(request), HasSubstr("another key"));
}

TEST_F(ClientJournal, AKeyThatServersMayHaveForgottenIsNotSentAgainUnasked) {
  server.script = {lost(), lost()};
  const std::string key = run().key;
  server.wall += std::chrono::hours(23);
  server.script = {lost(), lost()};
  EXPECT_EQ(run().key, key);
  server.wall += std::chrono::hours(2);
  EXPECT_THAT(fault_of(charge()), HasSubstr("longer ago than servers remember keys"));
  options.key_lifetime = std::chrono::hours(48);
  EXPECT_EQ(run().key, key);
}

TEST_F(ClientJournal, AForgottenOperationBeginsAnew) {
  server.script = {lost(), lost()};
  const std::string key = run().key;
  const auto client = client_of(server, options);
  EXPECT_TRUE(*client->forget(charge()));
  EXPECT_FALSE(*client->forget(charge()));
  const ClientAnswer answer = run();
  EXPECT_FALSE(answer.resumed);
  EXPECT_NE(answer.key, key);
}

TEST_F(ClientJournal, ThatCannotBeOpenedMeansThatNothingIsSent) {
  options.journal += "/no/such/folder";
  const auto client = ClientInTests::open(options, std::make_unique<ScriptedWorld>(server, 1));
  EXPECT_FALSE(client.ok());
}

// Storms.

constexpr int kClients = 1000;
// Of all clients, the most that come back within one tenth of a second after they all failed at the same moment. The
// first retries are spread over half a second: a fifth each, and some chance. Without jitter it would be all of them.
constexpr double kPeakShareMax = 0.25;

// The largest share of the clients that arrive within 100 ms, not counting the first tries, which are simultaneous.
double peak_share(const std::function<Fetched(ClientWorld::Moment)>& behaviour, std::size_t& tries) {
  std::map<std::int64_t, int> arrivals;
  tries = 0;
  for (std::uint32_t seed = 1; seed <= kClients; ++seed) {
    Server server;
    server.by_time = behaviour;
    sent(*client_of(server, {}, seed));
    tries += server.arrivals.size();
    for (std::size_t i = 1; i < server.arrivals.size(); ++i) ++arrivals[server.arrivals[i].count() / 100];
  }
  int peak = 0;
  for (const auto& [tenth, count] : arrivals) peak = std::max(peak, count);
  return static_cast<double>(peak) / kClients;
}

TEST(ClientStorm, AThousandClientsThatFailTogetherDoNotComeBackTogether) {
  std::size_t tries = 0;
  const double share = peak_share(
      [](ClientWorld::Moment now) -> Fetched {
        if (now.time_since_epoch() < seconds(3)) return lost();
        return status(201);
      },
      tries);
  RecordProperty("peak_share_percent", static_cast<int>(100 * share));
  EXPECT_LT(share, kPeakShareMax);
  // Three seconds of failure cost each of them its first try and about two more, not a hammering.
  EXPECT_LT(tries, 5u * kClients);
}

TEST(ClientStorm, NeitherDoThoseWhoWereToldTheSameSecond) {
  std::size_t tries = 0;
  const double share = peak_share(
      [](ClientWorld::Moment now) -> Fetched {
        if (now.time_since_epoch() < seconds(2)) return status(503, {{"Retry-After", "2"}});
        return status(201);
      },
      tries);
  EXPECT_LT(share, kPeakShareMax);
  EXPECT_EQ(tries, 2u * kClients);
}

TEST(ClientStorm, TheBudgetCapsWhatAFailingServerIsSent) {
  Server server;
  server.otherwise = status(503);
  ClientOptions options;
  options.budget.refill = Millis(0);
  const auto client = client_of(server, options);
  int gave_up_early = 0;
  for (int i = 0; i < kClients; ++i) {
    const ClientAnswer answer = sent(*client);
    EXPECT_EQ(answer.ending, Ending::gave_up);
    gave_up_early += answer.reason.find("budget") != std::string::npos ? 1 : 0;
  }
  // A tenth of the operations and the reserve; without a budget it would be eight tries each.
  EXPECT_LE(server.keys.size(), static_cast<std::size_t>(kClients * 1.1) + 20);
  EXPECT_GT(gave_up_early, kClients * 8 / 10);
}

TEST(ClientStorm, TheBudgetDoesNotHinderASingleFailure) {
  Server server;
  server.script = {lost(), lost(), lost(), lost(), lost(), lost(), lost()};
  EXPECT_EQ(sent(*client_of(server)).ending, Ending::succeeded);
}

} // namespace
} // namespace oncekey
