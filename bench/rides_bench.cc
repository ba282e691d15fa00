// The three-phase ride on the library, and the same work written by hand; and how quickly staged jobs are drained.
//
//   rides_bench --measure library|hand --database URL --threads N --seconds S
//   rides_bench --measure drain --database URL --jobs N --batch N
//
// Prints one JSON object. The processor is a function that answers at once. By hand means what a careful team would
// write with libpq: prepared statements, one connection a thread, the claim one INSERT ON CONFLICT, then three
// serializable transactions with a lock on the key's row in each. bench/rides.py runs it.
#include "book_ride.h"
#include "schema.h"

#include <oncekey/runner.h>
#include <oncekey/transaction.h>
#include <oncekey/workers.h>

#include <fmt/format.h>
#include <libpq-fe.h>

#include <sys/resource.h>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <initializer_list>
#include <iostream>
#include <map>
#include <memory>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::string_view kBody = R"({"origin":{"lat":37.77,"lon":-122.42},"target":{"lat":48.85,"lon":2.35}})";
constexpr std::size_t kStagedAtATime = 5000;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

template <class T>
T need(oncekey::Result<T> result) {
  if (!result) throw std::runtime_error(result.fault().message);
  return std::move(result).value();
}

// Calls ride(thread) on so many threads until the time is over; prints what came of it.
void measure(int threads, double seconds, const std::function<void(int)>& ride,
             const std::atomic<std::uint64_t>& round_trips) {
  std::atomic<std::uint64_t> rides = 0;
  for (int thread = 0; thread < threads; ++thread) ride(thread); // connections and prepared statements
  const std::uint64_t trips_before = round_trips;
  const double cpu_before = cpu_seconds();
  const auto start = Clock::now();
  {
    std::vector<std::jthread> running;
    for (int thread = 0; thread < threads; ++thread) {
      running.emplace_back([&, thread] {
        while (seconds_since(start) < seconds) {
          ride(thread);
          ++rides;
        }
      });
    }
  }
  std::cout << fmt::format(R"({{"rides": {}, "seconds": {:.3f}, "round_trips": {}, "cpu_us": {:.0f}}})", rides.load(),
                           seconds_since(start), round_trips - trips_before, (cpu_seconds() - cpu_before) * 1e6)
            << std::endl;
}

// As clients make them: random, so that neither side's index grows at one end alone.
std::string random_key() {
  thread_local std::mt19937_64 random{std::random_device{}()};
  return fmt::format("{:016x}-{:016x}", random(), random());
}

void library_rides(const std::string& url, int threads, double seconds) {
  std::atomic<std::uint64_t> round_trips = 0;
  oncekey::DatabaseOptions options;
  options.connections_max = static_cast<std::size_t>(threads);
  options.on_statement = [&](oncekey::StatementMoment moment, std::string_view) {
    if (moment == oncekey::StatementMoment::round_trip) ++round_trips;
  };
  const auto database = need(oncekey::open_database(url, options));
  rides::prepare_database(*database);
  const auto charge = [](const std::string& key, const rides::ChargeOrder&) { return rides::Charged{"ch_" + key}; };
  oncekey::Runner runner(*database, {rides::book_ride(charge)});
  measure(
      threads, seconds,
      [&](int) {
        oncekey::OperationRequest request;
        request.operation = std::string(rides::kBookRide);
        request.principal = rides::principal_of(1);
        request.key = random_key();
        request.path = "/rides";
        request.body = std::string(kBody);
        request.content_type = "application/json";
        const auto outcome = need(runner.run(request));
        if (!std::holds_alternative<oncekey::Finished>(outcome)) throw std::runtime_error("a ride was not finished");
      },
      round_trips);
}

struct SerializationFailure {};

// One connection, and the ride written by hand on it.
class ByHand {
 public:
  ByHand(const std::string& url, std::atomic<std::uint64_t>& round_trips)
      : round_trips_(round_trips), connection_(PQconnectdb(url.c_str()), PQfinish) {
    if (PQstatus(connection_.get()) != CONNECTION_OK) throw std::runtime_error(PQerrorMessage(connection_.get()));
    // A ROLLBACK after a failed COMMIT is worth a warning to Postgres, and none to us.
    PQsetNoticeProcessor(
        connection_.get(), [](void*, const char*) {}, nullptr);
    for (const auto& [name, sql] : kStatements) check(PQprepare(connection_.get(), name, sql, 0, nullptr));
  }

  static void make_tables(const std::string& url) {
    const std::unique_ptr<PGconn, decltype(&PQfinish)> connection(PQconnectdb(url.c_str()), PQfinish);
    PQsetNoticeProcessor(
        connection.get(), [](void*, const char*) {}, nullptr);
    for (const char* const sql :
         {"CREATE TABLE IF NOT EXISTS hand_keys (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, user_id bigint "
          "NOT NULL, key text NOT NULL, method text NOT NULL, path text NOT NULL, params text NOT NULL, "
          "recovery_point text NOT NULL, locked_at timestamptz, created_at timestamptz NOT NULL DEFAULT now(), "
          "status int, headers text, response text, UNIQUE (user_id, key))",
          "CREATE TABLE IF NOT EXISTS hand_jobs (id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT "
          "NULL, args text NOT NULL)"}) {
      PQclear(PQexec(connection.get(), sql));
    }
  }

  void ride(const std::string& key) {
    const std::string id = claim(key);
    const std::string ride = serializable([&] { return create_ride(id); });
    const std::string charge = "ch_" + key;
    serializable([&] { return record_charge(id, ride, charge); });
    serializable([&] { return stage_receipt_and_respond(id, ride, charge); });
  }

 private:
  using Result = std::unique_ptr<PGresult, decltype(&PQclear)>;

  static constexpr std::pair<const char*, const char*> kStatements[] = {
      {"claim",
       "INSERT INTO hand_keys (user_id, key, method, path, params, recovery_point, locked_at) VALUES (1, $1, 'POST', "
       "'/rides', $2, 'started', now()) ON CONFLICT DO NOTHING RETURNING id"},
      {"lock", "SELECT recovery_point, locked_at FROM hand_keys WHERE id = $1 FOR UPDATE"},
      {"ride",
       "INSERT INTO rides (user_id, origin_lat, origin_lon, target_lat, target_lon) VALUES (1, $1, $2, $3, $4) "
       "RETURNING "
       "id, (SELECT customer FROM users WHERE users.id = user_id)"},
      {"audit", "INSERT INTO audit_records (action, user_id, ride_id, detail) VALUES ($1, 1, $2, $3)"},
      {"charge", "INSERT INTO charges (id, ride_id, amount, currency) VALUES ($1, $2, 2000, 'usd')"},
      {"point", "UPDATE hand_keys SET recovery_point = $2, locked_at = now() WHERE id = $1"},
      {"job", "INSERT INTO hand_jobs (name, args) VALUES ('send_ride_receipt', $1)"},
      {"finish",
       "UPDATE hand_keys SET recovery_point = 'finished', locked_at = NULL, status = 201, headers = $2, response = $3 "
       "WHERE id = $1"},
  };

  std::string claim(const std::string& key) {
    const Result claimed = execute("claim", {key, std::string(kBody)});
    if (PQntuples(claimed.get()) != 1) throw std::runtime_error("the key is taken");
    return PQgetvalue(claimed.get(), 0, 0);
  }

  std::string create_ride(const std::string& id) {
    execute("lock", {id});
    const Result made = execute("ride", {"37.77", "-122.42", "48.85", "2.35"});
    std::string ride = PQgetvalue(made.get(), 0, 0);
    execute("audit", {"ride.created", ride, ""});
    execute("point", {id, "ride_created"});
    return ride;
  }

  std::string record_charge(const std::string& id, const std::string& ride, const std::string& charge) {
    execute("lock", {id});
    execute("charge", {charge, ride});
    execute("audit", {"ride.charged", ride, charge});
    execute("point", {id, "charge_created"});
    return ride;
  }

  std::string stage_receipt_and_respond(const std::string& id, const std::string& ride, const std::string& charge) {
    const std::string facts =
        fmt::format(R"({{"ride":{},"charge":"{}","amount":2000,"currency":"usd"}})", ride, charge);
    execute("lock", {id});
    execute("job", {facts});
    execute("finish", {id, "Content-Type: application/json\r\nLocation: /rides/" + ride + "\r\n", facts});
    return ride;
  }

  std::string serializable(const std::function<std::string()>& phase) {
    for (;;) {
      try {
        query("BEGIN ISOLATION LEVEL SERIALIZABLE");
        std::string result = phase();
        query("COMMIT");
        return result;
      } catch (const SerializationFailure&) {
        query("ROLLBACK");
      }
    }
  }

  void query(const char* sql) {
    ++round_trips_;
    check(PQexec(connection_.get(), sql));
  }

  Result execute(const char* name, std::initializer_list<std::string> values) {
    ++round_trips_;
    std::vector<const char*> pointers;
    for (const std::string& value : values) pointers.push_back(value.c_str());
    return check(PQexecPrepared(connection_.get(), name, static_cast<int>(pointers.size()), pointers.data(), nullptr,
                                nullptr, 0));
  }

  Result check(PGresult* given) {
    Result result(given, PQclear);
    const auto status = PQresultStatus(given);
    if (status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK) return result;
    const char* const code = PQresultErrorField(given, PG_DIAG_SQLSTATE);
    const std::string_view state = code == nullptr ? "" : code;
    if (state == "40001" || state == "40P01") throw SerializationFailure{};
    throw std::runtime_error(PQresultErrorMessage(given));
  }

  std::atomic<std::uint64_t>& round_trips_;
  std::unique_ptr<PGconn, decltype(&PQfinish)> connection_;
};

void rides_by_hand(const std::string& url, int threads, double seconds) {
  rides::prepare_database(*need(oncekey::open_database(url)));
  ByHand::make_tables(url);
  std::atomic<std::uint64_t> round_trips = 0;
  std::vector<std::unique_ptr<ByHand>> connections;
  for (int thread = 0; thread < threads; ++thread) connections.push_back(std::make_unique<ByHand>(url, round_trips));
  measure(
      threads, seconds, [&](int thread) { connections[static_cast<std::size_t>(thread)]->ride(random_key()); },
      round_trips);
}

void drain(const std::string& url, std::size_t jobs, std::size_t batch) {
  const auto database = need(oncekey::open_database(url));
  need(database->migrate());
  const std::string args = R"({"ride":123456,"charge":"ch_123456","amount":2000,"currency":"usd"})";
  for (std::size_t staged = 0; staged < jobs; staged += kStagedAtATime) {
    need(oncekey::run_transaction(*database, [&](oncekey::Transaction& transaction) {
      for (std::size_t i = 0; i < kStagedAtATime; ++i)
        transaction.stage_job({.sink = "bench", .name = "job", .args = args, .delay = {}});
    }));
  }
  std::size_t accepted = 0;
  std::shared_ptr<oncekey::Sink> sink = oncekey::callback_sink([&](const oncekey::Job&) { ++accepted; });
  oncekey::EnqueuerOptions options;
  options.batch = batch;
  oncekey::Enqueuer enqueuer(*database, {{"bench", sink}}, options);
  const auto start = Clock::now();
  while (need(enqueuer.run_once()).claimed > 0) continue;
  const double seconds = seconds_since(start);
  if (accepted < jobs) throw std::runtime_error("jobs are left");
  std::cout << fmt::format(R"({{"jobs": {}, "seconds": {:.3f}}})", accepted, seconds) << std::endl;
}

} // namespace

int main(int argc, char** argv) {
  std::map<std::string, std::string> flags{
      {"--threads", "1"}, {"--seconds", "3"}, {"--jobs", "100000"}, {"--batch", "1000"}};
  for (int at = 1; at + 1 < argc; at += 2) flags[argv[at]] = argv[at + 1];
  const std::string& url = flags["--database"];
  const int threads = std::atoi(flags["--threads"].c_str());
  const double seconds = std::atof(flags["--seconds"].c_str());
  try {
    if (flags["--measure"] == "library")
      library_rides(url, threads, seconds);
    else if (flags["--measure"] == "hand")
      rides_by_hand(url, threads, seconds);
    else
      drain(url, std::stoul(flags["--jobs"]), std::stoul(flags["--batch"]));
  } catch (const std::exception& error) {
    std::cerr << "rides_bench: " << error.what() << std::endl;
    return 1;
  }
  return 0;
}
