// Operations over several runs of a program: what the journal remembers of them.
#include "support/client_fixture.h"

#include <cstdlib>
#include <filesystem>
#include <string>

namespace oncekey::client_tests {
namespace {

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

} // namespace
} // namespace oncekey::client_tests
