// What the code of phases and foreign calls may do, what is found out and refused, and what is told of it.
#include "runs.h"

namespace oncekey {
namespace {

class PhaseCode : public Runs {};

TEST_P(PhaseCode, ForeignCallsRunOutsideTransactions) {
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

TEST_P(PhaseCode, APhaseWithNothingToRecordGoesOnWithTheNextStep) {
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

TEST_P(PhaseCode, MistakesInAnOperationAreFaultsAndLeaveNothingBehind) {
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

TEST_P(PhaseCode, APhaseThatEndsTheTransactionItselfIsFoundOut) {
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

TEST_P(PhaseCode, AResponseThatWouldBreakAMessageIsRefusedAndRolledBack) {
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
  EXPECT_THAT(with("X Space", "a"), HasSubstr("\"X Space\", which is not a valid header name"));
  EXPECT_THAT(with("", "a"), HasSubstr("no header name"));
  EXPECT_THAT(with("content-length", "5"), HasSubstr("Content-Length, which the server or the library sets"));
  EXPECT_THAT(with("Connection", "close"), HasSubstr("Connection"));
  EXPECT_THAT(with("Transfer-Encoding", "chunked"), HasSubstr("Transfer-Encoding"));
  EXPECT_THAT(with("Idempotent-Replayed", "true"), HasSubstr("Idempotent-Replayed"));
  EXPECT_THAT(fault_of([](StoredResponse& response) { response.reason = "OK\r\nX: 1"; }), HasSubstr("reason"));
  EXPECT_EQ(rides(), 0);
}

TEST_P(PhaseCode, ARequestThatIsNotTextIsRefusedOnEveryDatabaseAlike) {
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

TEST_P(PhaseCode, DifferentTroublesHaveDifferentAnswers) {
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

TEST_P(PhaseCode, AFullPoolIsAFaultOfItsOwn) {
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

TEST_P(PhaseCode, ALeaseThatNoClockCouldHaveGivenIsNotToldToClients) {
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

TEST_P(PhaseCode, DeclarationMistakesNameTheOperationAndTheStep) {
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

TEST_P(PhaseCode, NotesAndCallOutcomesHaveTypes) {
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

TEST_P(PhaseCode, ColumnsHaveNamesAndValuesMayBeMissing) {
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

TEST_P(PhaseCode, WhatWouldEndTheTransactionIsRefusedBeforehand) {
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

TEST_P(PhaseCode, ASavepointLetsAPhaseGoOnAfterAFailedStatement) {
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

TEST_P(PhaseCode, EveryStepIsTold) {
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

TEST_P(PhaseCode, ConnectionsOfTheApplicationsPoolServeEverythingAndNeverDuringACall) {
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

ONCEKEY_ON_EVERY_DATABASE(PhaseCode);

} // namespace
} // namespace oncekey
