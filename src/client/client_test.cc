#include "support/client_fixture.h"

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace oncekey::client_tests {
namespace {

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
  // The server has seen the key with another request, which may have been done.
  for (const char* const mismatch :
       {R"({"type":"urn:oncekey:problem:mismatch"})", R"({"error":{"type":"idempotency_error"}})"}) {
    server.script = {status(422, {}, mismatch)};
    EXPECT_THROW(decided(client_of(server)->send(own_key)), Undecided) << mismatch;
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

TEST(ClientStorm, ComingBackForTheAnswerOfARunningCallTakesNothingFromTheBudget) {
  Server server;
  for (int i = 0; i < 50; ++i) server.script.push_back(still_running("1"));
  ClientOptions options;
  options.budget.reserve = 1;
  options.budget.refill = Millis(0);
  const auto client = client_of(server, options);
  EXPECT_EQ(sent(*client).ending, Ending::succeeded);
  server.script = {lost()};
  EXPECT_EQ(sent(*client).ending, Ending::succeeded) << "the one retry of the reserve is still there";
}

TEST(ClientStorm, TheBudgetDoesNotHinderASingleFailure) {
  Server server;
  server.script = {lost(), lost(), lost(), lost(), lost(), lost(), lost()};
  EXPECT_EQ(sent(*client_of(server)).ending, Ending::succeeded);
}

} // namespace
} // namespace oncekey::client_tests
