// Runs of the ride operation on the database under test.
#pragma once

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

} // namespace oncekey
