// What a run promises, on both databases.
#include "runs.h"

namespace oncekey {
namespace {

TEST_P(Runs, RowsJobsAndAnswerOfAnOperationCommitTogether) {
  Runner runner(*database, {ride_operation(world)});
  const Finished done = finished(run(runner, ride_request("k1")));
  EXPECT_EQ(done.response.status, 201);
  EXPECT_FALSE(done.replayed);
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM ride WHERE charge IS NOT NULL"), 1);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 1);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_answer"), 1);
  EXPECT_EQ(unfinished(), 0);
  EXPECT_EQ(world.charges(), 1);
}

TEST_P(Runs, ARetryGetsTheFirstAnswerAndNothingIsDoneAgain) {
  Runner runner(*database, {ride_operation(world)});
  const Finished first = finished(run(runner, ride_request("k1")));
  const Finished second = finished(run(runner, ride_request("k1")));
  EXPECT_TRUE(second.replayed);
  EXPECT_EQ(second.response.status, first.response.status);
  EXPECT_EQ(second.response.body, first.response.body);
  EXPECT_EQ(second.response.headers.lines(), first.response.headers.lines());
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(world.calls(), 1);
}

TEST_P(Runs, BodyAndHeadersComeBackByteForByte) {
  StoredResponse response;
  response.status = 200;
  response.reason = "Fine";
  response.headers.add("X-Odd-CASE", "a,  b");
  response.headers.add("X-Odd-CASE", "");
  response.body = std::string("\0\xff{\"b\":1, \"a\":1.10}\r\n", 21);
  Runner runner(*database, {one_phase([&](Phase& phase) { return phase.respond(response); })});
  finished(run(runner, ride_request("k1")));
  const Finished replayed = finished(run(runner, ride_request("k1")));
  EXPECT_EQ(replayed.response.body, response.body);
  EXPECT_EQ(replayed.response.reason, "Fine");
  EXPECT_EQ(replayed.response.headers.lines(), response.headers.lines());
}

TEST_P(Runs, AnotherRequestUnderTheSameKeyIsAMismatchInEveryState) {
  bool fail = true;
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) -> PhaseEnd {
    if (fail) throw Declined("not yet");
    return phase.respond(200, "", "done");
  });
  Operation other("cancel_ride");
  other.phase("started", [](Phase& phase) { return phase.respond(200, "", "other"); });
  RunnerOptions options;
  options.policy.identity = Identity::key;
  Runner runner(*database, {book, other}, options);
  OperationRequest body = ride_request("k1"), path = ride_request("k1"), method = ride_request("k1"),
                   operation = ride_request("k1");
  body.body += " ";
  path.path = "/rides/7";
  method.method = "PATCH";
  operation.operation = "cancel_ride";
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  for (const auto& request : {body, path, method, operation}) {
    EXPECT_TRUE(std::holds_alternative<Mismatch>(run(runner, request))) << request.path;
  }
  fail = false;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "done");
  for (const auto& request : {body, path, method, operation}) {
    EXPECT_TRUE(std::holds_alternative<Mismatch>(run(runner, request))) << request.path;
  }
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "done");
}

TEST_P(Runs, ThePathIsPartOfTheIdentityWhereThePolicySaysSo) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest elsewhere = ride_request("k1");
  elsewhere.path = "/scooters";
  EXPECT_FALSE(finished(run(runner, ride_request("k1"))).replayed);
  EXPECT_FALSE(finished(run(runner, elsewhere)).replayed);
  EXPECT_EQ(world.charges(), 2);
}

TEST_P(Runs, TwoPrincipalsNeverMeet) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest other = ride_request("k1");
  other.principal = "user:43";
  other.body = "something else";
  EXPECT_FALSE(finished(run(runner, ride_request("k1"))).replayed);
  EXPECT_FALSE(finished(run(runner, other)).replayed);
  EXPECT_EQ(rides(), 2);
}

TEST_P(Runs, WhatIsComparedMayBeGivenInsteadOfTheBody) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest first = ride_request("k1"), same = ride_request("k1"), different = ride_request("k1");
  first.compared = "here to there";
  same.compared = "here to there";
  same.body = "{\"trace\":7}";
  different.compared = "there to here";
  EXPECT_FALSE(finished(run(runner, first)).replayed);
  EXPECT_TRUE(finished(run(runner, same)).replayed);
  EXPECT_TRUE(std::holds_alternative<Mismatch>(run(runner, different)));
}

TEST_P(Runs, UnusableKeysAreRefusedBeforeAnythingHappens) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest nobody = ride_request("k1");
  nobody.principal = "";
  for (const std::string& key : {std::string(), std::string(256, 'k'), std::string("a\nb"), std::string("\xc3\xbc")}) {
    EXPECT_TRUE(std::holds_alternative<KeyInvalid>(run(runner, ride_request(key)))) << key;
  }
  EXPECT_TRUE(std::holds_alternative<KeyInvalid>(run(runner, nobody)));
  EXPECT_EQ(finished(run(runner, ride_request(std::string(255, 'k')))).response.status, 201);
  EXPECT_EQ(rides(), 1);
}

TEST_P(Runs, AnUnknownOperationIsAnAnswerOfItsOwn) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest request = ride_request("k1");
  request.operation = "fly";
  const auto outcome = runner.run(request);
  ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
  EXPECT_EQ(std::get<NotDeclared>(*outcome).why, "no operation named fly was declared");
  EXPECT_EQ(unfinished(), 0);
}

TEST_P(Runs, AnExceptionRollsBackFreesTheLeaseAndIsPassedOn) {
  int tries = 0;
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) {
    insert_ride(phase);
    phase.stage_job({.name = "receipt"});
    if (++tries == 1) throw Declined("no");
    return phase.respond(200, "", "yes");
  });
  Runner runner(*database, {book});
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  EXPECT_EQ(rides(), 0);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 0);
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "yes");
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_job"), 1);
}

TEST_P(Runs, ARetryResumesAtTheLastRecoveryPointWithTheSameForeignKey) {
  std::vector<std::string> keys;
  int started = 0;
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) {
    ++started;
    phase.keep_note("odd", std::string("a=b&c%\0d\xff", 10));
    return phase.next("paying");
  });
  book.call_then_phase(
      "paying", "charge",
      [&](const ForeignCall& call) -> std::string {
        EXPECT_EQ(call.note("odd"), std::string("a=b&c%\0d\xff", 10));
        EXPECT_EQ(call.note("none"), std::nullopt);
        keys.push_back(call.key());
        if (keys.size() < 3) throw Declined("connection lost");
        return "paid";
      },
      [&](Phase& phase, const std::string& outcome) { return phase.respond(200, "", outcome); });
  Runner runner(*database, {book});
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "paid");
  EXPECT_EQ(started, 1);
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0], keys[1]);
  EXPECT_EQ(keys[0], keys[2]);
  EXPECT_EQ(keys[0].size(), 36u);
  finished(run(runner, ride_request("k2")));
  EXPECT_NE(keys[3], keys[0]);
}

TEST_P(Runs, AnswersForHttpAreTheGatewaysOwn) {
  Runner runner(*database, {ride_operation(world)});
  const auto request = ride_request("k1");
  const HttpAnswer first = runner.http_answer(request, runner.run(request));
  EXPECT_EQ(first.status, 201);
  EXPECT_EQ(first.headers.get("Idempotency-Key"), "k1");
  EXPECT_FALSE(first.headers.has("Idempotent-Replayed"));
  const HttpAnswer second = runner.http_answer(request, runner.run(request));
  EXPECT_EQ(second.status, 201);
  EXPECT_EQ(second.body, first.body);
  EXPECT_EQ(second.headers.get("Idempotent-Replayed"), "true");
  EXPECT_EQ(second.headers.get("Content-Type"), "application/json");
  const auto answer = [&](RunOutcome outcome) { return runner.http_answer(request, Result<RunOutcome>(outcome)); };
  EXPECT_EQ(answer(Mismatch{}).status, 422);
  EXPECT_EQ(answer(InProgress{7s}).status, 409);
  EXPECT_EQ(answer(InProgress{7s}).headers.get("Retry-After"), "7");
  EXPECT_EQ(answer(Conflict{1s}).status, 409);
  EXPECT_EQ(answer(Conflict{1s}).headers.get("Retry-After"), "1");
  EXPECT_EQ(answer(KeyInvalid{}).status, 400);
  const auto without_key = ride_request("");
  const HttpAnswer missing = runner.http_answer(without_key, runner.run(without_key));
  EXPECT_EQ(missing.status, 400);
  EXPECT_THAT(missing.body, testing::HasSubstr("Idempotency-Key is missing"));
  EXPECT_THAT(missing.body, testing::HasSubstr("such as a UUID. Send it in the header Idempotency-Key."));
  const auto long_key = ride_request(std::string(256, 'k'));
  const HttpAnswer too_long = runner.http_answer(long_key, runner.run(long_key));
  EXPECT_EQ(too_long.status, 400);
  EXPECT_THAT(too_long.body, testing::HasSubstr("Idempotency-Key is invalid"));
  EXPECT_THAT(too_long.body, testing::HasSubstr("ASCII characters. Here the key has 256 characters, 255 are allowed."));
  EXPECT_EQ(answer(DeadLettered{}).status, 409);
  EXPECT_FALSE(answer(DeadLettered{}).headers.has("Retry-After"));
  EXPECT_EQ(runner.http_answer(request, unavailable("down")).status, 503);
}

TEST_P(Runs, StripesPolicyRemembersTheFirstRequestId) {
  RunnerOptions options;
  options.policy = *runner_policy("stripe-v1");
  Runner runner(*database, {ride_operation(world)}, options);
  const auto request = ride_request("k1");
  const HttpAnswer first = runner.http_answer(request, runner.run(request));
  const HttpAnswer second = runner.http_answer(request, runner.run(request));
  ASSERT_TRUE(first.headers.has("Request-Id"));
  EXPECT_EQ(second.headers.get("Original-Request"), first.headers.get("Request-Id"));
  EXPECT_NE(second.headers.get("Request-Id"), first.headers.get("Request-Id"));
}

TEST_P(Runs, AStatementThatIsNotWhatItSeemsThrows) {
  const auto refused = [&](std::string_view sql, std::initializer_list<SqlValue> values) {
    EXPECT_THROW(
        (void)run_transaction(*database, [&](Transaction& transaction) { transaction.execute(sql, values); }).ok(),
        DatabaseError)
        << sql;
  };
  refused("INSERT INTO audit (what) VALUES ('a'); INSERT INTO audit (what) VALUES ('b')", {});
  refused("INSERT INTO audit (what) VALUES ('a'); nonsense", {});
  refused("INSERT INTO audit (what) SELECT coalesce($1, $2)", {"a"});
  refused("INSERT INTO audit (what) VALUES (coalesce($1, 'nothing was given'))", {});
  refused("INSERT INTO audit (what) VALUES ($1)", {"a", "b"});
  if (!on_postgres()) refused("INSERT INTO audit (what) VALUES (coalesce(?, 'nothing was given'))", {"a"});
  EXPECT_EQ(number(*database, "SELECT count(*) FROM audit"), 0);
  run_sql(*database, "INSERT INTO audit (what) VALUES ('a'); -- the end\n /* of it */ ");
  EXPECT_EQ(number(*database, "SELECT count(*) FROM audit"), 1);
}

TEST_P(Runs, ManyBucketsThatNoReaperHasDroppedAreStillLookedThrough) {
  if (on_postgres()) GTEST_SKIP() << "partitions have no such limit";
  Runner runner(*database, {ride_operation(world)});
  finished(run(runner, ride_request("k1")));
  constexpr int kBuckets = 1300;
  const auto made = run_transaction(*database, [&](Transaction& transaction) {
    for (int i = 0; i < kBuckets; ++i) {
      transaction.execute(fmt::format("CREATE TABLE oncekey_answer_10_{} AS SELECT * FROM oncekey_answer_none", i));
      transaction.execute("INSERT INTO oncekey_bucket (kind, name, ends_at) VALUES ('answer', $1, 0)",
                          {fmt::format("bucket-10-{}", i)});
    }
  });
  ASSERT_TRUE(made.ok()) << made.fault().message;
  const auto later = place.open_later(12h); // another bucket, so that the view is made anew
  Runner after(*later, {ride_operation(world)});
  finished(run(after, ride_request("k2")));
  EXPECT_TRUE(finished(run(after, ride_request("k1"))).replayed);
  EXPECT_TRUE(finished(run(after, ride_request("k2"))).replayed);
}

TEST(OpenDatabase, ThatWasNotMigratedSaysHow) {
  const TestPlace place(Dialect::sqlite);
  auto opened = open_database(place.url());
  ASSERT_TRUE(opened.ok());
  OutsideWorld world(place.folder());
  Runner rides(*opened.value(), {ride_operation(world)});
  const auto outcome = rides.run(ride_request("k1"));
  ASSERT_FALSE(outcome.ok());
  EXPECT_THAT(outcome.fault().message, testing::HasSubstr("call migrate()"));
}

TEST_P(Runs, AReaderOfThisCodeCanCountTheRoundTrips) {
  int round_trips = 0;
  DatabaseOptions options;
  options.on_statement = [&](StatementMoment moment, std::string_view) {
    if (moment == StatementMoment::round_trip) ++round_trips;
  };
  const auto counted = place.open(options);
  Runner runner(*counted, {ride_operation(world)});
  finished(run(runner, ride_request("warm")));
  round_trips = 0;
  finished(run(runner, ride_request("k1")));
  // The claim; then for each phase its beginning, its statements (2, 1, 0), and its end with the commit.
  EXPECT_EQ(round_trips, on_postgres() ? 1 + 3 * 2 + 3 : 0);
}

ONCEKEY_ON_EVERY_DATABASE(Runs);

} // namespace
} // namespace oncekey
