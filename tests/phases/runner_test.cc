// What a run promises, on both databases.
#include "database_under_test.h"
#include "ride_app.h"

#include <oncekey/inbox.h>
#include <oncekey/runner.h>
#include <oncekey/workers.h>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <libpq-fe.h>

#include <atomic>
#include <latch>
#include <set>
#include <stdexcept>
#include <thread>

namespace oncekey {
namespace {

using namespace std::chrono_literals;

struct Declined : std::runtime_error {
  using std::runtime_error::runtime_error;
};

class Runs : public OnEveryDatabase {
 protected:
  Runs() : world(place.folder()) { make_ride_tables(*database); }

  RunOutcome run(Runner& runner, const OperationRequest& request) {
    auto outcome = runner.run(request);
    if (outcome.ok()) return std::move(outcome).value();
    ADD_FAILURE() << outcome.fault().message;
    return Mismatch{};
  }
  Finished finished(const RunOutcome& outcome) {
    if (const auto* const done = std::get_if<Finished>(&outcome)) return *done;
    ADD_FAILURE() << "not finished but outcome " << outcome.index();
    return {};
  }
  // An operation of one phase.
  static Operation one_phase(Operation::PhaseFunction code) {
    Operation operation("book_ride");
    operation.phase("started", std::move(code));
    return operation;
  }
  std::int64_t rides() { return number(*database, "SELECT count(*) FROM ride"); }
  std::int64_t unfinished() { return number(*database, "SELECT count(*) FROM oncekey_operation"); }
  void insert_ride(Transaction& transaction) {
    transaction.execute("INSERT INTO ride (principal, key) VALUES ('u', 'k')");
  }

  OutsideWorld world;
};

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

TEST_P(Runs, ForeignCallsRunOutsideTransactions) {
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        // On SQLite this would wait for the writer, which is us, until the budget is used up.
        run_sql(*database, "INSERT INTO audit (what) VALUES ('call')");
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", ""); });
  Runner runner(*database, {book});
  finished(run(runner, ride_request("k1")));
  EXPECT_EQ(number(*database, "SELECT count(*) FROM audit"), 1);
}

TEST_P(Runs, APhaseWithNothingToRecordGoesOnWithTheNextStep) {
  std::string order;
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) {
    order += "a";
    return phase.stay();
  });
  book.phase("second", [&](Phase& phase) -> PhaseEnd {
    order += "b";
    if (order == "ab") throw Declined("crash");
    return phase.respond(200, "", "");
  });
  Runner runner(*database, {book});
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  finished(run(runner, ride_request("k1")));
  EXPECT_EQ(order, "abab");
}

TEST_P(Runs, MistakesInAnOperationAreFaultsAndLeaveNothingBehind) {
  const auto fault_of = [&](Operation::PhaseFunction code) {
    static int count = 0;
    Runner runner(*database, {one_phase([&](Phase& phase) {
      insert_ride(phase);
      return code(phase);
    })});
    const auto outcome = runner.run(ride_request(fmt::format("mistake{}", ++count)));
    EXPECT_FALSE(outcome.ok());
    return outcome.ok() ? std::string() : outcome.fault().message;
  };
  EXPECT_THAT(fault_of([](Phase& phase) { return phase.next("nowhere"); }), testing::HasSubstr("nowhere"));
  EXPECT_THAT(fault_of([](Phase& phase) { return phase.stay(); }), testing::HasSubstr("last step"));
  EXPECT_THAT(fault_of([](Phase& phase) { return phase.respond(99, "", ""); }), testing::HasSubstr("status"));
  EXPECT_THAT(fault_of([](Phase& phase) {
                phase.keep_note("big", std::string(kNotesBytesMax, 'x'));
                return phase.respond(200, "", "");
              }),
              testing::HasSubstr("notes"));
  EXPECT_EQ(rides(), 0);
}

TEST_P(Runs, APhaseThatEndsTheTransactionItselfIsFoundOut) {
  int count = 0;
  for (const char* const sql : {"COMMIT", "ROLLBACK", "COMMIT; BEGIN", "ROLLBACK; BEGIN"}) {
    Runner runner(*database, {one_phase([&](Phase& phase) {
      if (sqlite3* const handle = phase.sqlite()) {
        sqlite3_exec(handle, sql, nullptr, nullptr, nullptr);
      } else {
        PQclear(PQexec(phase.postgres(), sql));
      }
      insert_ride(phase);
      return phase.respond(200, "", "");
    })});
    const auto outcome = runner.run(ride_request(fmt::format("k{}", ++count)));
    ASSERT_FALSE(outcome.ok()) << sql;
    EXPECT_EQ(outcome.fault().kind, FaultKind::invalid) << sql;
    EXPECT_THAT(outcome.fault().message, testing::HasSubstr("ended the transaction itself")) << sql;
    EXPECT_EQ(number(*database, "SELECT count(*) FROM oncekey_answer"), 0) << sql;
  }
}

TEST_P(Runs, AResponseThatWouldBreakAMessageIsRefusedAndRolledBack) {
  int count = 0;
  const auto fault_of = [&](const std::function<void(StoredResponse&)>& change) {
    Runner runner(*database, {one_phase([&](Phase& phase) {
      insert_ride(phase);
      StoredResponse response;
      response.status = 200;
      change(response);
      return phase.respond(response);
    })});
    const auto outcome = runner.run(ride_request(fmt::format("k{}", ++count)));
    EXPECT_FALSE(outcome.ok());
    if (outcome.ok()) return std::string();
    EXPECT_EQ(outcome.fault().kind, FaultKind::invalid);
    return outcome.fault().message;
  };
  const auto with = [&](std::string_view name, std::string_view value) {
    return fault_of([&](StoredResponse& response) { response.headers.add(name, value); });
  };
  using testing::HasSubstr;
  EXPECT_THAT(with("Content-Type", "text/plain\r\nX-Evil: 1\r\n\r\nsmuggled"),
              HasSubstr("operation book_ride, phase at started: the response's header Content-Type has a line break"));
  EXPECT_THAT(with("Location", "/orders/a\nX-Evil: 1"), HasSubstr("Location has a line break"));
  EXPECT_THAT(with("X-Zero", std::string_view("a\0b", 3)), HasSubstr("X-Zero"));
  EXPECT_THAT(with("X Space", "a"), HasSubstr("\"X Space\", which is no header name"));
  EXPECT_THAT(with("", "a"), HasSubstr("no header name"));
  EXPECT_THAT(with("content-length", "5"), HasSubstr("Content-Length, which is not a phase's to give"));
  EXPECT_THAT(with("Connection", "close"), HasSubstr("Connection"));
  EXPECT_THAT(with("Transfer-Encoding", "chunked"), HasSubstr("Transfer-Encoding"));
  EXPECT_THAT(with("Idempotent-Replayed", "true"), HasSubstr("Idempotent-Replayed"));
  EXPECT_THAT(fault_of([](StoredResponse& response) { response.reason = "OK\r\nX: 1"; }), HasSubstr("reason"));
  EXPECT_EQ(rides(), 0);
}

TEST_P(Runs, ARequestThatIsNotTextIsRefusedOnEveryDatabaseAlike) {
  Runner runner(*database, {ride_operation(world)});
  OperationRequest path = ride_request("k"), principal = ride_request("k"), method = ride_request("k"),
                   type = ride_request("k");
  path.path = "/\xff";
  principal.principal = std::string("user\0:42", 8);
  method.method = "P\xc3ST";
  type.content_type = std::string("a/\0", 3);
  for (const auto& [request, what] : {std::pair(path, "path is not UTF-8"),
                                      {principal, "principal has a zero byte"},
                                      {method, "method is not UTF-8"},
                                      {type, "content type has a zero byte"}}) {
    const auto outcome = runner.run(request);
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    ASSERT_TRUE(std::holds_alternative<RequestInvalid>(*outcome)) << what;
    const HttpAnswer answer = runner.http_answer(request, outcome);
    EXPECT_EQ(answer.status, 400);
    EXPECT_THAT(answer.body, testing::HasSubstr(what));
    EXPECT_THAT(answer.body, testing::HasSubstr("urn:oncekey:problem:request_invalid"));
    EXPECT_FALSE(answer.headers.has("Retry-After"));
  }
  EXPECT_EQ(unfinished(), 0);
}

TEST_P(Runs, DifferentTroublesHaveDifferentAnswers) {
  Runner runner(*database, {ride_operation(world)});
  const auto request = ride_request("k1");
  const auto type_of = [](const HttpAnswer& answer) {
    const std::string_view mark = "urn:oncekey:problem:";
    const std::size_t at = answer.body.find(mark) + mark.size();
    return fmt::format("{} {}{}", answer.status, answer.body.substr(at, answer.body.find('"', at) - at),
                       answer.headers.has("Retry-After") ? " retry" : "");
  };
  EXPECT_EQ(type_of(runner.http_answer_after_exception(request)), "503 not_finished retry");
  EXPECT_EQ(type_of(runner.http_answer(request, invalid("a mistake"))), "500 application_mistake");
  EXPECT_EQ(type_of(runner.http_answer(request, Fault{FaultKind::exhausted, "full"})), "503 overloaded retry");
  EXPECT_EQ(type_of(runner.http_answer(request, unavailable("down"))), "503 record_not_written retry");
  OperationRequest unknown = request;
  unknown.operation = "no_such";
  EXPECT_EQ(type_of(runner.http_answer(unknown, runner.run(unknown))), "500 application_mistake");
  const RunOutcome elsewhere = NotDeclared{NotDeclared::Part::recovery_point, ""};
  EXPECT_EQ(type_of(runner.http_answer(request, elsewhere)), "503 not_finished retry");
}

TEST_P(Runs, AFullPoolIsAFaultOfItsOwn) {
  DatabaseOptions options;
  options.connections_max = 1;
  options.wait_max = 20ms;
  const auto narrow = place.open(options);
  Runner runner(*narrow, {one_phase([&](Phase& phase) {
    Runner inner(*narrow, {one_phase([](Phase& inside) { return inside.respond(200, "", ""); })});
    const auto outcome = inner.run(ride_request("inner"));
    EXPECT_FALSE(outcome.ok());
    if (!outcome.ok()) {
      EXPECT_EQ(outcome.fault().kind, FaultKind::exhausted);
      EXPECT_THAT(outcome.fault().message, testing::HasSubstr("all 1 connections to the database were in use"));
    }
    return phase.respond(200, "", "");
  })});
  finished(run(runner, ride_request("k1")));
}

TEST_P(Runs, ALeaseThatNoClockCouldHaveGivenIsNotToldToClients) {
  const auto ahead = place.open_later(1h);
  Runner other(*database, {one_phase([](Phase& inside) { return inside.respond(200, "", ""); })});
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) { // the clock is put right while the owner is at work
        const RunOutcome outcome = run(other, ride_request("k1"));
        const auto* const busy = std::get_if<InProgress>(&outcome);
        EXPECT_TRUE(busy && busy->retry_after <= 60s);
        return 0;
      },
      [](Phase& phase, int) { return phase.respond(200, "", ""); });
  Runner owner(*ahead, {book});
  finished(run(owner, ride_request("k1")));
}

TEST_P(Runs, DeclarationMistakesNameTheOperationAndTheStep) {
  const auto message_of = [](const std::function<void()>& declare) -> std::string {
    try {
      declare();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "nothing was thrown";
  };
  const auto done = [](Phase& phase) { return phase.respond(200, "", ""); };
  const auto call = [](const ForeignCall&) { return 1; };
  const auto after = [](Phase& phase, int) { return phase.respond(200, "", ""); };
  using testing::HasSubstr;
  EXPECT_THAT(message_of([&] { Operation("book").phase("a", done).phase("a", done); }),
              HasSubstr("operation book: two steps start at the recovery point a"));
  EXPECT_THAT(message_of([&] {
                Operation("book").call_then_phase("a", "x", call, after).call_then_phase("b", "x", call, after);
              }),
              HasSubstr("operation book: the calls at a and b both have the label x"));
  EXPECT_THAT(message_of([&] { Operation("book").call_then_phase("a", "", call, after); }), HasSubstr("has no label"));
  EXPECT_THAT(message_of([&] { Operation("book").phase("a", nullptr); }), HasSubstr("the phase at a has no code"));
  EXPECT_THAT(message_of([&] { Runner(*database, {Operation("book")}); }),
              HasSubstr("operation book: it has no steps"));
  EXPECT_THAT(message_of([&] {
                Runner(*database, {one_phase(done), one_phase(done)});
              }),
              HasSubstr("two operations are named book_ride"));
  EXPECT_THAT(message_of([&] { Runner(*database, {Operation("book").phase("a", done).alias("old", "b")}); }),
              HasSubstr("operation book: the alias old leads to b, where no step starts"));
}

TEST_P(Runs, NotesAndCallOutcomesHaveTypes) {
  struct Charge {
    std::int64_t cents;
    std::string id;
  };
  Operation book("book_ride");
  book.phase("started", [](Phase& phase) {
    phase.keep_note("order", std::int64_t{-17});
    phase.keep_note("size", std::uint64_t{1} << 63);
    phase.keep_note("fare", 0.1);
    phase.keep_note("express", true);
    phase.keep_note("name", "amy");
    return phase.next("noted");
  });
  book.call_then_phase(
      "noted", {.label = "charge", .key_memory = 1h},
      [](const ForeignCall& call) {
        return Charge{call.note<std::int64_t>("order"), call.note<std::string>("name")};
      },
      [](Phase& phase, const Charge& charge) {
        EXPECT_EQ(charge.cents, -17);
        EXPECT_EQ(charge.id, "amy");
        EXPECT_EQ(phase.note<int>("order"), -17);
        EXPECT_EQ(phase.note<std::uint64_t>("size"), std::uint64_t{1} << 63);
        EXPECT_EQ(phase.note<double>("fare"), 0.1);
        EXPECT_TRUE(phase.note<bool>("express"));
        const auto thrown = [&](const std::function<void()>& read) -> std::string {
          try {
            read();
          } catch (const NoteError& error) {
            return error.what();
          }
          return "nothing was thrown";
        };
        EXPECT_EQ(thrown([&] { (void)phase.note<int>("missing"); }), "no earlier phase kept a note \"missing\"");
        EXPECT_EQ(thrown([&] { (void)phase.note<int>("name"); }), "the note \"name\" is \"amy\", not an integer");
        EXPECT_EQ(thrown([&] { (void)phase.note<unsigned>("order"); }),
                  "the note \"order\" is \"-17\", not an integer without a sign");
        EXPECT_EQ(thrown([&] { (void)phase.note<int>("size"); }),
                  "the note \"size\" is \"9223372036854775808\", not an integer");
        return phase.respond(200, "text/plain", "done");
      });
  Runner runner(*database, {book});
  const Finished done = finished(run(runner, ride_request("k1")));
  EXPECT_EQ(done.response.reason, "OK");
}

TEST_P(Runs, ColumnsHaveNamesAndValuesMayBeMissing) {
  const auto ran = run_transaction(*database, [&](Transaction& transaction) {
    transaction.execute("CREATE TABLE sold (id bigint, name text, price numeric)");
    const std::optional<std::string> name = "amy";
    const std::vector<SqlValue> values{std::uint64_t{7}, name, 12};
    transaction.execute("INSERT INTO sold VALUES ($1, $2, $3)", values);
    transaction.execute("INSERT INTO sold VALUES ($1, $2, $3)", {8u, std::optional<std::string>(), 30});
    const auto rows = transaction.execute("SELECT id, name, price FROM sold ORDER BY id").rows;
    EXPECT_EQ(rows.at(0)["id"].integer(), 7);
    EXPECT_EQ(rows.at(0)["name"].text(), "amy");
    EXPECT_TRUE(rows.at(1)["name"].is_null());
    EXPECT_EQ(rows.at(0)["price"].integer(), 12);
    EXPECT_EQ(rows.at(0)["price"].real(), 12.0);
    const auto sum = transaction.execute("SELECT sum(id) AS total, sum(id) / 2.0 AS half FROM sold").rows.at(0);
    EXPECT_EQ(sum["total"].integer(), 15);
    EXPECT_EQ(sum["half"].real(), 7.5);
    const auto thrown = [](const std::function<void()>& read) -> std::string {
      try {
        read();
      } catch (const ColumnError& error) {
        return error.what();
      }
      return "nothing was thrown";
    };
    EXPECT_EQ(thrown([&] { (void)rows.at(0)["name"].integer(); }),
              "column 1 (name) holds the text \"amy\", not an integer");
    EXPECT_EQ(thrown([&] { (void)rows.at(1)["name"].text(); }), "column 1 (name) holds NULL, not a text");
    EXPECT_EQ(thrown([&] { (void)rows.at(0)["nmae"]; }), "there is no column nmae: the row has id, name, price");
    EXPECT_EQ(thrown([&] { (void)rows.at(0).integer(3); }), "there is no column 3: the row has 3, counted from 0");
    EXPECT_THROW(transaction.execute("SELECT $1", {~std::uint64_t{0}}), std::out_of_range);
  });
  EXPECT_TRUE(ran.ok()) << ran.fault().message;
}

TEST_P(Runs, WhatWouldEndTheTransactionIsRefusedBeforehand) {
  for (const char* const sql : {"COMMIT", " -- well\n commit work", "/* a */ROLLBACK", "end", "BEGIN",
                                "START TRANSACTION", "abort", "PREPARE TRANSACTION 'a'", ";COMMIT"}) {
    Runner runner(*database, {one_phase([&](Phase& phase) {
      insert_ride(phase);
      phase.execute(sql);
      return phase.respond(200, "", "");
    })});
    EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), DatabaseError) << sql;
    EXPECT_EQ(rides(), 0) << sql;
  }
}

TEST_P(Runs, ASavepointLetsAPhaseGoOnAfterAFailedStatement) {
  run_sql(*database, "CREATE TABLE once (id bigint PRIMARY KEY)");
  Runner runner(*database, {one_phase([&](Phase& phase) {
    phase.execute("INSERT INTO once VALUES (1)");
    phase.execute("SAVEPOINT attempt");
    EXPECT_THROW(phase.execute("INSERT INTO once VALUES (1)"), DatabaseError);
    phase.execute("ROLLBACK TO SAVEPOINT attempt");
    insert_ride(phase);
    return phase.respond(200, "", "");
  })});
  finished(run(runner, ride_request("k1")));
  EXPECT_EQ(rides(), 1);
}

TEST_P(Runs, EveryStepIsTold) {
  std::vector<std::string> told;
  RunnerOptions options;
  options.on_step = [&](const StepEvent& event) {
    constexpr const char* kMoments[] = {"began", "ended", "threw", "failed"};
    told.push_back(fmt::format("{} {} {}{} {}", event.operation, event.recovery_point,
                               event.part == StepEvent::Part::call ? "call " : "phase", event.label,
                               kMoments[static_cast<int>(event.moment)]));
  };
  int calls = 0;
  Operation book("book");
  book.phase("started", [](Phase& phase) { return phase.next("charging"); });
  book.call_then_phase(
      "charging", "charge",
      [&](const ForeignCall&) {
        if (++calls == 1) throw Declined("down");
        return 0;
      },
      [](Phase& phase, int) { return phase.respond(200, "", ""); });
  Runner runner(*database, {book}, options);
  OperationRequest request = ride_request("k1");
  request.operation = "book";
  EXPECT_THROW((void)runner.run(request).ok(), Declined);
  EXPECT_THAT(told, testing::ElementsAre("book started phase began", "book started phase ended",
                                         "book charging call charge began", "book charging call charge threw"));
  told.clear();
  finished(run(runner, request));
  EXPECT_THAT(told, testing::ElementsAre("book charging call charge began", "book charging call charge ended",
                                         "book charging phasecharge began", "book charging phasecharge ended"));
}

TEST_P(Runs, ConnectionsOfTheApplicationsPoolServeEverythingAndNeverDuringACall) {
  std::atomic<int> lent{0}, in_all{0};
  DatabaseOptions options;
  options.connections.borrow = [&]() -> Result<OwnConnection> {
    ++lent;
    ++in_all;
    if (on_postgres()) return OwnConnection(PQconnectdb(place.url().c_str()));
    sqlite3* handle = nullptr;
    sqlite3_open(place.sqlite_path().c_str(), &handle);
    return OwnConnection(handle);
  };
  options.connections.give_back = [&](OwnConnection connection, ConnectionProvider::State state) {
    --lent;
    EXPECT_EQ(state, ConnectionProvider::State::idle);
    if (connection.postgres()) PQfinish(connection.postgres());
    if (connection.sqlite()) sqlite3_close(connection.sqlite());
  };
  const auto pooled = place.open(options);
  Runner runner(*pooled, {ride_operation(world, [&] { EXPECT_EQ(lent, 0) << "a connection is held during a call"; })});
  finished(run(runner, ride_request("k1")));
  EXPECT_TRUE(finished(run(runner, ride_request("k1"))).replayed);
  EXPECT_EQ(*process_once(*pooled, "c", "m", [](Transaction&) {}), Processed::done_now);
  Enqueuer enqueuer(*pooled, {{"mail", callback_sink([](const Job&) {})}});
  EXPECT_EQ(enqueuer.run_once()->delivered, 1u);
  Completer completer(runner);
  EXPECT_TRUE(completer.run_once().ok());
  EXPECT_EQ(lent, 0);
  EXPECT_GT(in_all, 5);

  options.connections.borrow = []() -> Result<OwnConnection> { throw std::runtime_error("the pool is closed"); };
  const auto closed = open_database(place.url(), options);
  ASSERT_FALSE(closed.ok());
  EXPECT_THAT(closed.fault().message, testing::HasSubstr("the pool is closed"));
}

// The database goes away in the middle of a phase, and with it whatever would give the lease up.
TEST_P(Runs, AfterTheDatabaseBlinkedTheRunnerGoesOnWithItsOwnLease) {
  bool away = false;
  DatabaseOptions options;
  std::unique_ptr<Database> behind;
  if (on_postgres()) {
    options.connections.borrow = [&]() -> Result<OwnConnection> {
      if (away) return unavailable("away");
      return OwnConnection(PQconnectdb(place.url().c_str()));
    };
    options.connections.give_back = [](OwnConnection lent, ConnectionProvider::State) { PQfinish(lent.postgres()); };
  } else {
    options.connections.borrow = [&]() -> Result<OwnConnection> {
      if (away) return unavailable("away");
      sqlite3* handle = nullptr;
      sqlite3_open(place.sqlite_path().c_str(), &handle);
      return OwnConnection(handle);
    };
    options.connections.give_back = [](OwnConnection lent, ConnectionProvider::State) { sqlite3_close(lent.sqlite()); };
  }
  const auto blinking = place.open(options);
  Operation book("book_ride");
  book.phase("started", [&](Phase& phase) { return phase.next("charging"); });
  book.call_then_phase(
      "charging", "charge",
      [&](const ForeignCall& call) {
        away = world.calls() == 0;
        return world.charge(call.key());
      },
      [](Phase& phase, const std::string& charge) { return phase.respond(200, "", charge); });
  Runner runner(*blinking, {book});
  const auto broken = runner.run(ride_request("k1"));
  ASSERT_FALSE(broken.ok());
  EXPECT_EQ(broken.fault().kind, FaultKind::unavailable);
  away = false;
  Runner elsewhere(*database, {book});
  EXPECT_TRUE(std::holds_alternative<InProgress>(run(elsewhere, ride_request("k1")))) << "others wait for the lease";
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).replayed, false);
  EXPECT_EQ(world.charges(), 1);
  EXPECT_EQ(world.calls(), 2);
}

TEST_P(Runs, AStatementThatFailedCannotBePassedOver) {
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    try {
      phase.execute("INSERT INTO no_such_table VALUES (1)");
    } catch (const DatabaseError& error) {
      EXPECT_EQ(error.advice(), DatabaseError::Advice::give_up);
    }
    return phase.respond(200, "", "");
  })});
  const auto outcome = runner.run(ride_request("k1"));
  // SQLite undoes the statement alone; in Postgres the transaction is lost.
  EXPECT_EQ(outcome.ok(), !on_postgres());
  EXPECT_EQ(rides(), on_postgres() ? 0 : 1);
}

TEST_P(Runs, WhileOneRunsTheOthersAreToldToWait) {
  Operation book("book_ride");
  Runner* retrying = nullptr;
  std::vector<RunOutcome> seen;
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        // Should the retry be let in, its own call must not retry again.
        if (seen.empty()) seen.push_back(run(*retrying, ride_request("k1")));
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", "once"); });
  Runner runner(*database, {book});
  retrying = &runner;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "once");
  ASSERT_EQ(seen.size(), 1u);
  const auto* const busy = std::get_if<InProgress>(&seen[0]);
  ASSERT_TRUE(busy);
  EXPECT_GE(busy->retry_after, 50s);
  EXPECT_LE(busy->retry_after, 60s);
}

TEST_P(Runs, AmongManyAtOnceOneExecutes) {
  constexpr int kThreads = 8;
  std::atomic<int> executed{0}, other{0};
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    return phase.respond(200, "", "once");
  })});
  for (int round = 0; round < 5; ++round) {
    std::latch start(kThreads);
    std::vector<std::jthread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&] {
        start.arrive_and_wait();
        const auto outcome = runner.run(ride_request(fmt::format("round{}", round)));
        ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
        const auto* const done = std::get_if<Finished>(&outcome.value());
        if (done && !done->replayed) {
          ++executed;
        } else if (done || std::holds_alternative<InProgress>(outcome.value())) {
          ++other;
        }
      });
    }
  }
  EXPECT_EQ(executed, 5);
  EXPECT_EQ(other, 5 * (kThreads - 1));
  EXPECT_EQ(rides(), 5);
}

TEST_P(Runs, ARetryThatMeetsTheFinishingCommitIsAReplay) {
  // While the first run commits its answer, a retry claims. In Postgres it waits for that commit with a snapshot from
  // before it, in which there is neither an operation nor an answer; the trigger makes the commit a long one.
  if (on_postgres()) {
    run_sql(*database,
            "CREATE FUNCTION take_long() RETURNS trigger LANGUAGE plpgsql AS"
            " 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END'");
    run_sql(*database,
            "CREATE CONSTRAINT TRIGGER take_long AFTER INSERT ON ride DEFERRABLE INITIALLY DEFERRED"
            " FOR EACH ROW EXECUTE FUNCTION take_long()");
  }
  std::optional<std::jthread> retry;
  std::optional<RunOutcome> seen;
  Runner* second = nullptr;
  bool finishing = false;
  DatabaseOptions options;
  options.on_statement = [&](StatementMoment moment, std::string_view sql) {
    if (moment != StatementMoment::before || retry) return;
    if (sql.find("oncekey_finish") != std::string_view::npos || sql.starts_with("DELETE FROM oncekey_operation")) {
      finishing = sql.find("identity") == std::string_view::npos;
    }
    if (sql != "COMMIT" || !finishing) return;
    retry.emplace([&] {
      std::this_thread::sleep_for(150ms); // the commit is under way
      seen = run(*second, ride_request("k1"));
    });
    if (!on_postgres()) std::this_thread::sleep_for(300ms);
  };
  const auto watched = place.open(options);
  const auto once = one_phase([&](Phase& phase) {
    insert_ride(phase);
    return phase.respond(200, "", "once");
  });
  Runner first(*watched, {once}), other(*database, {once});
  second = &other;
  EXPECT_FALSE(finished(run(first, ride_request("k1"))).replayed);
  ASSERT_TRUE(retry);
  retry->join();
  ASSERT_TRUE(seen);
  // SQLite's retry looked before it waited for the writer, and has seen the operation at work.
  if (on_postgres()) {
    EXPECT_TRUE(finished(*seen).replayed);
  }
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(unfinished(), 0);
}

TEST_P(Runs, ATakeoverAfterTheLeaseLeavesTheOldOwnerWithoutEffect) {
  // The old owner pauses in its foreign call; by then an hour passes on another machine, which finishes the operation.
  const auto later = place.open_later(1h);
  Operation quick("book_ride");
  quick.call_then_phase(
      "started", "charge", [](const ForeignCall& call) { return call.key(); },
      [&](Phase& phase, const std::string& key) {
        insert_ride(phase);
        return phase.respond(200, "", "by the new owner " + key);
      });
  Runner new_owner(*later, {quick});
  Operation slow("book_ride");
  std::string old_key;
  slow.call_then_phase(
      "started", "charge",
      [&](const ForeignCall& call) {
        old_key = call.key();
        EXPECT_FALSE(finished(run(new_owner, ride_request("k1"))).replayed);
        return std::string();
      },
      [&](Phase& phase, const std::string&) {
        ADD_FAILURE() << "the old owner's phase runs";
        insert_ride(phase);
        return phase.respond(500, "", "by the old owner");
      });
  Runner old_owner(*database, {slow});
  const Finished seen = finished(run(old_owner, ride_request("k1")));
  EXPECT_TRUE(seen.replayed);
  EXPECT_EQ(seen.response.body, "by the new owner " + old_key);
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(old_owner.metrics().leases_lost, 1u);
  EXPECT_EQ(new_owner.metrics().takeovers, 1u);
}

TEST_P(Runs, AnOwnerPausedInsideAPhaseKeepsItsRowLocked) {
  if (!on_postgres()) return; // a second SQLite writer waits for the first one's whole transaction
  const auto later = place.open_later(1h);
  Runner thief(*later, {one_phase([](Phase& phase) { return phase.respond(500, "", "stolen"); })});
  Runner runner(*database, {one_phase([&](Phase& phase) {
    EXPECT_TRUE(std::holds_alternative<InProgress>(run(thief, ride_request("k1"))));
    insert_ride(phase);
    return phase.respond(200, "", "mine");
  })});
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "mine");
}

TEST_P(Runs, ALongCallKeepsItsLease) {
  RunnerOptions options;
  options.lease = 300ms;
  Runner* retrying = nullptr;
  int calls = 0;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        if (++calls > 1) return std::string();
        // Longer than the lease, so that without renewal the retry would take over.
        std::this_thread::sleep_for(900ms);
        EXPECT_TRUE(std::holds_alternative<InProgress>(run(*retrying, ride_request("k1"))));
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", "mine"); });
  Runner runner(*database, {book}, options);
  retrying = &runner;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "mine");
  EXPECT_EQ(runner.metrics().takeovers, 0u);
}

TEST_P(Runs, ACallThatHangsIsLeftToItsLease) {
  RunnerOptions options;
  options.lease = 200ms;
  options.call_max = 100ms;
  Operation book("book_ride");
  Runner* other = nullptr;
  int calls = 0;
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) {
        if (++calls == 1) {
          std::this_thread::sleep_for(600ms);
          finished(run(*other, ride_request("k1")));
        }
        return std::string("call ") + std::to_string(calls);
      },
      [](Phase& phase, const std::string& outcome) { return phase.respond(200, "", outcome); });
  Runner runner(*database, {book}, options);
  other = &runner;
  EXPECT_TRUE(finished(run(runner, ride_request("k1"))).replayed);
  EXPECT_EQ(calls, 2);
}

TEST_P(Runs, AForgottenForeignKeyIsNotUsedAgain) {
  int calls = 0;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall&) -> std::string {
        if (++calls == 1) throw Declined("no answer");
        return "paid";
      },
      [](Phase& phase, const std::string& outcome) { return phase.respond(200, "", outcome); });
  Runner runner(*database, {book});
  EXPECT_THROW((void)runner.run(ride_request("k1")).ok(), Declined);
  const auto tomorrow = place.open_later(24h);
  Runner late(*tomorrow, {book});
  EXPECT_TRUE(std::holds_alternative<DeadLettered>(run(late, ride_request("k1"))));
  EXPECT_TRUE(std::holds_alternative<DeadLettered>(run(late, ride_request("k1"))));
  EXPECT_EQ(calls, 1);

  const auto dead = list_dead_operations(*tomorrow);
  ASSERT_TRUE(dead.ok());
  ASSERT_EQ(dead->size(), 1u);
  EXPECT_EQ((*dead)[0].operation.recovery_point, "started");
  EXPECT_THAT((*dead)[0].why, testing::HasSubstr("forgotten"));
  const auto restarted = restart_dead_operation(*tomorrow, (*dead)[0].operation.id, ForeignSide::looked_at);
  ASSERT_TRUE(restarted.ok());
  EXPECT_TRUE(*restarted);
  EXPECT_EQ(finished(run(late, ride_request("k1"))).response.body, "paid");
  EXPECT_FALSE(*restart_dead_operation(*tomorrow, (*dead)[0].operation.id));
}

TEST_P(Runs, AnAnswerIsForgottenAfterTheRetentionAndNotBefore) {
  std::set<std::string> keys;
  Operation book("book_ride");
  book.call_then_phase(
      "started", "charge",
      [&](const ForeignCall& call) {
        keys.insert(call.key());
        return std::string();
      },
      [](Phase& phase, const std::string&) { return phase.respond(200, "", ""); });
  Runner runner(*database, {book});
  finished(run(runner, ride_request("k1")));
  const auto before = place.open_later(23h + 59min);
  const auto after = place.open_later(24h + 1min);
  Runner early(*before, {book}), late(*after, {book});
  EXPECT_TRUE(finished(run(early, ride_request("k1"))).replayed);
  EXPECT_FALSE(finished(run(late, ride_request("k1"))).replayed);
  EXPECT_EQ(keys.size(), 2u) << "a new life of the key must not find the foreign side's old answer";
  EXPECT_TRUE(finished(run(late, ride_request("k1"))).replayed);
}

TEST_P(Runs, AConnectionOfTheApplicationsOwnServesAllPhases) {
  Operation book("book_ride");
  std::set<const void*> handles;
  const auto note_handle = [&](Phase& phase) {
    handles.insert(phase.sqlite() ? static_cast<const void*>(phase.sqlite()) : phase.postgres());
  };
  book.phase("started", [&](Phase& phase) {
    note_handle(phase);
    insert_ride(phase);
    return phase.next("second");
  });
  book.phase("second", [&](Phase& phase) {
    note_handle(phase);
    return phase.respond(200, "", "own");
  });
  Runner runner(*database, {book});
  if (on_postgres()) {
    PGconn* const mine = PQconnectdb(place.url().c_str());
    const auto outcome = runner.run(ride_request("k1"), OwnConnection(mine));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_EQ(handles, std::set<const void*>{mine});
    EXPECT_EQ(PQtransactionStatus(mine), PQTRANS_IDLE);
    EXPECT_EQ(PQpipelineStatus(mine), PQ_PIPELINE_OFF);
    PQfinish(mine);
  } else {
    sqlite3* mine = nullptr;
    ASSERT_EQ(sqlite3_open(place.sqlite_path().c_str(), &mine), SQLITE_OK);
    sqlite3_exec(mine, "PRAGMA synchronous = NORMAL", nullptr, nullptr, nullptr);
    EXPECT_FALSE(runner.run(ride_request("k1"), OwnConnection(mine)).ok()) << "commits would not be durable";
    sqlite3_exec(mine, "PRAGMA synchronous = FULL", nullptr, nullptr, nullptr);
    const auto outcome = runner.run(ride_request("k1"), OwnConnection(mine));
    ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
    EXPECT_EQ(handles, std::set<const void*>{mine});
    EXPECT_NE(sqlite3_get_autocommit(mine), 0);
    EXPECT_EQ(sqlite3_close(mine), SQLITE_OK) << "no statement of ours may stay open on it";
  }
  EXPECT_TRUE(finished(run(runner, ride_request("k1"))).replayed);
}

TEST_P(Runs, ATransactionThatWasAskedToBeRepeatedIsRepeated) {
  int tries = 0;
  Runner runner(*database, {one_phase([&](Phase& phase) {
    insert_ride(phase);
    if (++tries < 4) throw RetryTransaction("seen 40001 on the raw handle");
    return phase.respond(200, "", "");
  })});
  finished(run(runner, ride_request("k1")));
  EXPECT_EQ(tries, 4);
  EXPECT_EQ(rides(), 1);
  EXPECT_EQ(runner.metrics().phases_repeated, 3u);
}

TEST_P(Runs, AUsedUpBudgetIsAConflictThatCanBeTriedAgain) {
  RunnerOptions options;
  options.conflict_budget = 50ms;
  bool busy = true;
  Runner runner(*database, {one_phase([&](Phase& phase) -> PhaseEnd {
    if (busy) throw RetryTransaction("always");
    return phase.respond(200, "", "at last");
  })},
                options);
  EXPECT_TRUE(std::holds_alternative<Conflict>(run(runner, ride_request("k1"))));
  busy = false;
  EXPECT_EQ(finished(run(runner, ride_request("k1"))).response.body, "at last");
}

TEST_P(Runs, AStormOfConflictingPhasesLosesNoUpdate) {
  run_sql(*database, "CREATE TABLE counter (value integer NOT NULL)");
  run_sql(*database, "INSERT INTO counter VALUES (0)");
  Runner runner(*database, {one_phase([](Phase& phase) {
    const auto value = phase.execute("SELECT value FROM counter").rows.at(0).integer(0);
    phase.execute("UPDATE counter SET value = $1", {value + 1});
    return phase.respond(200, "", "");
  })});
  constexpr int kThreads = 4, kRuns = 10;
  std::atomic<int> done{0};
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRuns; ++i) {
          const auto request = ride_request(fmt::format("storm-{}-{}", thread, i));
          for (int tries = 0; tries < 20; ++tries) {
            const auto outcome = runner.run(request);
            ASSERT_TRUE(outcome.ok()) << outcome.fault().message;
            if (std::holds_alternative<Finished>(outcome.value())) {
              ++done;
              break;
            }
          }
        }
      });
    }
  }
  EXPECT_EQ(done, kThreads * kRuns);
  EXPECT_EQ(number(*database, "SELECT value FROM counter"), kThreads * kRuns);
}

TEST_P(Runs, UnrelatedOperationsAreNotInEachOthersWay) {
  if (on_postgres()) {
    // With fresh statistics of an almost empty table the planner would read all of it, which in a serializable
    // transaction conflicts with everybody.
    PGconn* const connection = PQconnectdb(place.url().c_str());
    PQclear(PQexec(connection, "VACUUM ANALYZE oncekey_operation"));
    PQfinish(connection);
  }
  Runner runner(*database, {one_phase([&](Phase& phase) {
    if (on_postgres()) {
      EXPECT_EQ(phase.execute("SHOW enable_seqscan").rows.at(0).text(0), "on");
    }
    phase.execute("INSERT INTO audit (what) VALUES ('x')");
    return phase.respond(200, "", "");
  })});
  constexpr int kThreads = 4, kRuns = 25;
  {
    std::vector<std::jthread> threads;
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        for (int i = 0; i < kRuns; ++i) {
          EXPECT_TRUE(runner.run(ride_request(fmt::format("calm-{}-{}", thread, i))).ok());
        }
      });
    }
  }
  EXPECT_LE(runner.metrics().phases_repeated, 5u);
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
