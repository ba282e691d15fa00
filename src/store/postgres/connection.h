// Connection: one connection to the server, on which every wait has an end.
//
// A pipeline is several sections, each a transaction of its own, sent in one go; an answer therefore costs one round
// trip whatever is asked. What matters most about a section that failed is whether it can have been committed, and
// SectionOutcome says exactly that.
//
// Nothing here leaves anything behind in the session, so that a pooler may give the next transaction another one.
// Exceptions: LISTEN, which has a connection of its own; and limits of time (server.h) and prepared statements, where
// the session is ours alone.
#pragma once

#include "store/common/deadline.h"
#include "store/postgres/postgres_url.h"
#include "store/postgres/values.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <atomic>
#include <map>
#include <span>

namespace oncekey::postgres {

// What the server, or libpq in its place, said was wrong.
struct SqlError {
  std::string state; // SQLSTATE; empty if it did not come from the server
  std::string message;
  std::string detail;
  std::string table;
};

enum class SectionOutcome {
  committed,
  rolled_back, // the server said so
  not_sent,    // its end never left this machine: the server cannot have committed it
  unknown,     // the connection was lost, or the deadline passed, before the server said how it ended
};

struct Section {
  SectionOutcome outcome = SectionOutcome::not_sent;
  std::vector<ResultPtr> results{}; // one for each statement, if committed
  SqlError error{};                 // if not

  bool committed() const { return outcome == SectionOutcome::committed; }
  const PGresult* result() const { return results.front().get(); }
  Row row() const { return Row(result(), 0); }
};

class Connection {
 public:
  // Gives up early once `stopping` is set.
  static Result<std::unique_ptr<Connection>> open(const PostgresTarget& target, Deadline deadline,
                                                  const std::atomic<bool>& stopping);
  // What the server may still be doing for it is cancelled.
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  // Sends all sections and gives back one result for each. After not_sent or unknown the connection is not usable.
  std::vector<Section> pipeline(std::span<const std::vector<Statement>> sections, Deadline deadline);

  // From now on pipelines prepare each text once and send its name: the server then parses and plans it once. Only
  // where the session is this connection's alone (limit_session() in server.h).
  void prepare_statements() { prepares_ = true; }
  // Was the section rolled back because the session does not have a prepared statement as we know it? Then statements
  // are sent whole from now on, and the caller may ask again.
  bool mends_prepared(const Section& section);

  // One statement, a transaction of its own.
  Section run(const Statement& statement, Deadline deadline) {
    return read_results(statement.send(connection_), deadline);
  }
  // Statements without parameters, several if need be, as the simple protocol has them; results are dropped.
  Section run_script(const std::string& sql, Deadline deadline) {
    return read_results(PQsendQuery(connection_, sql.c_str()) == 1, deadline);
  }
  // The fault of a section that was not committed: `unavailable` or `timeout`, as SectionOutcome says.
  Fault fault_of(const Section& section) const;

  // False once the connection is known to be gone; looks at what has arrived, and does not wait.
  bool usable();
  // Not usable from now on: for a server that answers and is not the one we want.
  void give_up() { broken_ = true; }

  // The payload of the next notification. Waits until something arrives or the time is up; nothing when none has.
  std::optional<std::string> next_notification(Deadline deadline);

  const std::string& name() const { return name_; }
  TextEncoding text_encoding() const { return text_encoding_; }
  // What the other side said its number is: a backend its own, a pooler anything.
  int backend_pid() const { return PQbackendPID(connection_); }

 private:
  Connection(PGconn* connection, std::string name) : connection_(connection), name_(std::move(name)) {}
  // Sends the texts that are not prepared yet, each as a section. Which; nothing if they could not be sent.
  std::optional<std::vector<std::string>> prepare_new(std::span<const std::vector<Statement>> sections,
                                                      Deadline deadline);
  bool send(const Statement& statement);
  bool flush(Deadline deadline);
  std::optional<ResultPtr> next_result(Deadline deadline);
  Section read_section(std::size_t statements, Deadline deadline);
  Section read_results(bool sent, Deadline deadline);
  Section lost(SectionOutcome outcome, const char* when);

  PGconn* const connection_;
  const std::string name_; // the target's
  TextEncoding text_encoding_ = TextEncoding::utf8;
  bool broken_ = false;
  bool prepares_ = false;
  bool sent_prepared_ = false;                               // by the last pipeline
  std::map<std::string, std::string, std::less<>> prepared_; // names by texts
  int names_ = 0;                                            // given so far
};

// Waits for the cancellations that connections of this process have left behind, until the deadline: libpq and what it
// uses must not be at work in another thread while the process ends.
void await_cancellations(Deadline deadline);

} // namespace oncekey::postgres
