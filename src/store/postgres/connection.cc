#include "store/postgres/connection.h"

#include <fmt/format.h>

#include <poll.h>
#include <pthread.h>

#include <cerrno>
#include <ranges>
#include <thread>

namespace oncekey::postgres {
namespace {

// How long a wait may last before it looks whether the store is being closed.
constexpr Millis kLookUpEvery{50};

constexpr std::string_view kNoSuchStatement = "26000"; // invalid_sql_statement_name

// How many cancellations may be under way at once. A server that hangs does not answer them either, and then more of
// them are of no use: what it is busy with ends by the session's own limits.
constexpr int kCancellationsMax = 16;
constexpr Millis kAwaitedEvery{5};
std::atomic<int> cancellations = 0;

// Asks the server to end what it is doing for this connection, and closes it. A backend that waits for a lock or for a
// standby does not notice that its client is gone: left alone, every call that is given up would leave a session behind
// until the server has no more to give. libpq waits without end for the answer to such a request, hence the thread; and
// the connection stays open until then, because a pooler forgets whose request it was as soon as it is closed.
void cancel_and_close(PGconn* connection) {
  PGcancel* const cancel = PQgetCancel(connection);
  if (cancel == nullptr || cancellations.fetch_add(1) >= kCancellationsMax) {
    if (cancel != nullptr) cancellations.fetch_sub(1);
    PQfreeCancel(cancel);
    return PQfinish(connection);
  }
  std::thread([connection, cancel] {
    pthread_setname_np(pthread_self(), "store-cancel");
    char why_not[256];
    PQcancel(cancel, why_not, sizeof why_not);
    PQfreeCancel(cancel);
    PQfinish(connection);
    cancellations.fetch_sub(1);
  }).detach();
}

int millis_until(Deadline deadline) {
  const auto left = std::chrono::ceil<Millis>(deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<std::int64_t>(left.count(), 0, 60'000));
}

// True once one of the events is there; false when the time is up.
bool poll_socket(int socket, short events, Deadline deadline) {
  pollfd waiting{socket, events, 0};
  for (;;) {
    const int ready = ::poll(&waiting, 1, millis_until(deadline));
    if (ready > 0) return true;
    if (ready < 0 && errno == EINTR) continue;
    if (ready < 0) return false;
    if (std::chrono::steady_clock::now() >= deadline) return false;
  }
}

// libpq's messages are several lines with a line break at the end; ours are one.
std::string one_line(std::string_view message) {
  std::string line(message.substr(0, message.find_last_not_of('\n') + 1));
  std::ranges::replace_if(
      line, [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

SqlError error_of(const PGresult* result) {
  const auto field = [&](int code) -> std::string {
    const char* const text = PQresultErrorField(result, code);
    return text != nullptr ? text : "";
  };
  SqlError error{field(PG_DIAG_SQLSTATE), field(PG_DIAG_MESSAGE_PRIMARY), field(PG_DIAG_MESSAGE_DETAIL),
                 field(PG_DIAG_TABLE_NAME)};
  if (error.message.empty()) error.message = one_line(PQresultErrorMessage(result));
  return error;
}

bool is_error(const PGresult* result) {
  const ExecStatusType status = PQresultStatus(result);
  return status != PGRES_COMMAND_OK && status != PGRES_TUPLES_OK && status != PGRES_EMPTY_QUERY;
}

} // namespace

Result<std::unique_ptr<Connection>> Connection::open(const PostgresTarget& target, Deadline deadline,
                                                     const std::atomic<bool>& stopping) {
  std::vector<const char*> keywords;
  std::vector<const char*> values;
  for (const auto& [keyword, value] : target.keywords) {
    keywords.push_back(keyword.c_str());
    values.push_back(value.c_str());
  }
  keywords.push_back(nullptr);
  values.push_back(nullptr);
  std::unique_ptr<Connection> opening(
      new Connection(PQconnectStartParams(keywords.data(), values.data(), 1), target.name));
  PGconn* const connection = opening->connection_;
  if (connection == nullptr) return unavailable("no memory for a connection to Postgres");

  const auto failed = [&](std::string_view why) {
    return unavailable(fmt::format("no connection to Postgres at {}: {}", target.name, why));
  };
  PostgresPollingStatusType next = PGRES_POLLING_WRITING;
  while (PQstatus(connection) != CONNECTION_BAD && next != PGRES_POLLING_OK) {
    if (next == PGRES_POLLING_FAILED) break;
    const short events = next == PGRES_POLLING_READING ? POLLIN : POLLOUT;
    const bool ready = poll_socket(PQsocket(connection), events, std::min(deadline, deadline_in(kLookUpEvery)));
    if (stopping) return failed("the store is being closed");
    if (ready) {
      next = PQconnectPoll(connection);
    } else if (std::chrono::steady_clock::now() >= deadline) {
      return failed("it did not answer in time");
    }
  }
  if (PQstatus(connection) != CONNECTION_OK) {
    const char* const password = PQpass(connection);
    return failed(without_secret(one_line(PQerrorMessage(connection)), password != nullptr ? password : ""));
  }
  if (PQsetnonblocking(connection, 1) != 0) return failed("it cannot be made non-blocking");
  // Notices (a table exists already) would go to standard error, and say nothing of use.
  PQsetNoticeProcessor(
      connection, [](void*, const char*) {}, nullptr);
  const char* const encoding = PQparameterStatus(connection, "server_encoding");
  if (encoding != nullptr && std::string_view(encoding) != "UTF8") opening->text_encoding_ = TextEncoding::ascii;
  return opening;
}

void await_cancellations(Deadline deadline) {
  while (cancellations > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(kAwaitedEvery);
  }
}

Connection::~Connection() {
  const bool busy = PQstatus(connection_) == CONNECTION_OK && PQtransactionStatus(connection_) == PQTRANS_ACTIVE;
  busy ? cancel_and_close(connection_) : PQfinish(connection_);
}

// The connection is not usable any more.
Section Connection::lost(SectionOutcome outcome, const char* when) {
  broken_ = true;
  const bool gone = PQstatus(connection_) == CONNECTION_BAD;
  const std::string why = gone ? one_line(PQerrorMessage(connection_)) : "no answer in time";
  return {outcome, {}, {"", fmt::format("{}: {}", when, why), "", ""}};
}

Fault Connection::fault_of(const Section& section) const {
  std::string message = fmt::format("Postgres at {}: {}", name_, section.error.message);
  if (!section.error.detail.empty()) message += " (" + section.error.detail + ")";
  if (section.outcome == SectionOutcome::unknown) return Fault{FaultKind::timeout, std::move(message)};
  return unavailable(std::move(message));
}

// Sends what libpq has gathered. It reads meanwhile: a server that cannot send stops receiving.
bool Connection::flush(Deadline deadline) {
  int pending = PQflush(connection_);
  while (pending > 0 && poll_socket(PQsocket(connection_), POLLIN | POLLOUT, deadline) &&
         PQconsumeInput(connection_) != 0) {
    pending = PQflush(connection_);
  }
  return pending == 0;
}

// Null at the end of a statement's results; nothing when the time is up or the connection is gone.
std::optional<ResultPtr> Connection::next_result(Deadline deadline) {
  while (PQisBusy(connection_) != 0) {
    if (!poll_socket(PQsocket(connection_), POLLIN, deadline) || PQconsumeInput(connection_) == 0) return std::nullopt;
  }
  ResultPtr result(PQgetResult(connection_));
  if (PQstatus(connection_) == CONNECTION_BAD) return std::nullopt;
  return result;
}

Section Connection::read_section(std::size_t statements, Deadline deadline) {
  std::vector<ResultPtr> results;
  std::optional<SqlError> error;
  for (int ends_in_a_row = 0;;) {
    std::optional<ResultPtr> next = next_result(deadline);
    // Two ends without a result between them: libpq has nothing more to tell, though the section's end is missing.
    ends_in_a_row = next && *next ? 0 : ends_in_a_row + 1;
    if (!next || ends_in_a_row > 2) return lost(SectionOutcome::unknown, "waiting for the answer");
    if (!*next) continue;
    const ExecStatusType status = PQresultStatus(next->get());
    if (status == PGRES_PIPELINE_SYNC) break;
    if (status == PGRES_PIPELINE_ABORTED) continue;
    if (!is_error(next->get())) {
      results.push_back(*std::move(next));
    } else if (!error) {
      error = error_of(next->get());
    }
  }
  if (error) return {SectionOutcome::rolled_back, {}, *std::move(error)};
  if (results.size() == statements) return {SectionOutcome::committed, std::move(results), {}};
  broken_ = true;
  return {SectionOutcome::unknown, {}, {"", "the answer has another number of parts than the question", "", ""}};
}

std::optional<std::vector<std::string>> Connection::prepare_new(std::span<const std::vector<Statement>> sections,
                                                                Deadline deadline) {
  std::vector<std::string> texts;
  for (const Statement& statement : std::views::join(sections)) {
    if (!prepares_ || prepared_.contains(std::string_view(statement.text()))) continue;
    const std::string name = fmt::format("oncekey_{}", ++names_);
    if (!statement.prepare(connection_, name) || PQpipelineSync(connection_) != 1) return std::nullopt;
    prepared_.emplace(statement.text(), name);
    texts.emplace_back(statement.text());
  }
  if (!flush(deadline)) return std::nullopt;
  return texts;
}

bool Connection::send(const Statement& statement) {
  const auto known = prepares_ ? prepared_.find(std::string_view(statement.text())) : prepared_.end();
  return known != prepared_.end() ? statement.send_prepared(connection_, known->second) : statement.send(connection_);
}

bool Connection::mends_prepared(const Section& section) {
  // feature_not_supported: "cached plan must not change result type".
  const bool is_theirs = section.error.state == kNoSuchStatement || section.error.state == "0A000";
  if (section.outcome != SectionOutcome::rolled_back || !is_theirs || !sent_prepared_) return false;
  prepares_ = false;
  return true;
}

std::vector<Section> Connection::pipeline(std::span<const std::vector<Statement>> sections, Deadline deadline) {
  std::vector<Section> answers(sections.size());
  PQenterPipelineMode(connection_);
  sent_prepared_ = prepares_;
  const std::optional<std::vector<std::string>> preparing = prepare_new(sections, deadline);
  std::size_t sent = 0;
  for (; preparing && sent < sections.size(); ++sent) {
    const auto taken = [&](const Statement& statement) { return send(statement); };
    if (!std::ranges::all_of(sections[sent], taken) || PQpipelineSync(connection_) != 1 || !flush(deadline)) break;
  }
  SqlError refused;
  for (const std::string& text : preparing.value_or(std::vector<std::string>{})) {
    const Section prepared = read_section(1, deadline);
    if (prepared.outcome != SectionOutcome::rolled_back) continue;
    prepared_.erase(text);
    refused = prepared.error;
  }
  for (std::size_t at = sent; at < sections.size(); ++at) answers[at] = lost(SectionOutcome::not_sent, "sending");
  for (std::size_t at = 0; at < sent; ++at) {
    answers[at] = read_section(sections[at].size(), deadline);
    // What is wrong with the statement was said when it was prepared.
    if (!refused.state.empty() && answers[at].error.state == kNoSuchStatement) answers[at].error = refused;
    if (answers[at].outcome != SectionOutcome::unknown) continue;
    for (std::size_t later = at + 1; later < sent; ++later) {
      answers[later] = {SectionOutcome::unknown, {}, answers[at].error};
    }
    break;
  }
  if (!broken_ && PQexitPipelineMode(connection_) != 1) broken_ = true;
  return answers;
}

Section Connection::read_results(bool sent, Deadline deadline) {
  if (!sent || !flush(deadline)) return lost(SectionOutcome::not_sent, "sending");
  Section section{SectionOutcome::committed};
  for (;;) {
    std::optional<ResultPtr> next = next_result(deadline);
    if (!next) return lost(SectionOutcome::unknown, "waiting for the answer");
    if (!*next) return section;
    if (!is_error(next->get())) {
      section.results.push_back(*std::move(next));
    } else if (section.committed()) {
      section.outcome = SectionOutcome::rolled_back;
      section.error = error_of(next->get());
    }
  }
}

bool Connection::usable() {
  if (broken_ || PQstatus(connection_) == CONNECTION_BAD) return false;
  // Nothing was asked: what is there is a notice, a good-bye, or the end. A good-bye is followed by the end, and two
  // looks are enough to see both.
  for (int look = 0; look < 2 && !broken_; ++look) {
    if (!poll_socket(PQsocket(connection_), POLLIN, std::chrono::steady_clock::now())) return true;
    if (PQconsumeInput(connection_) == 0) broken_ = true;
    PQisBusy(connection_); // lets libpq read what it has received
  }
  return !broken_ && PQstatus(connection_) != CONNECTION_BAD;
}

std::optional<std::string> Connection::next_notification(Deadline deadline) {
  for (;;) {
    if (PGnotify* const notify = PQnotifies(connection_)) {
      std::string payload(notify->extra != nullptr ? notify->extra : "");
      PQfreemem(notify);
      return payload;
    }
    if (!poll_socket(PQsocket(connection_), POLLIN, deadline)) return std::nullopt;
    if (PQconsumeInput(connection_) == 0) {
      broken_ = true;
      return std::nullopt;
    }
  }
}

} // namespace oncekey::postgres
