// A small application for the tests: it books a ride in three phases with a charge in between, against a payment
// processor that remembers its keys. Everything that outlives a process is in files or in the database, so that a test
// can kill the process anywhere and count afterwards.
#pragma once

#include <oncekey/operation.h>
#include <oncekey/runner.h>
#include <oncekey/sinks.h>

#include <sqlite3.h>

#include <functional>
#include <memory>
#include <string>

namespace oncekey {

// The world outside: a payment processor with idempotency keys, and a mailbox. A file of its own, so that it survives
// the application and shares nothing with it.
class OutsideWorld {
 public:
  explicit OutsideWorld(const std::string& folder);
  ~OutsideWorld();
  OutsideWorld(const OutsideWorld&) = delete;
  OutsideWorld& operator=(const OutsideWorld&) = delete;

  // The same key gives the same charge and counts a call.
  std::string charge(const std::string& key);
  void receive_mail(const Job& job);

  std::int64_t charges() const { return number("SELECT count(*) FROM charge"); }
  std::int64_t calls() const { return number("SELECT coalesce(sum(calls), 0) FROM charge"); }
  // Receipts in effect: deliveries with the same id are one.
  std::int64_t mails() const { return number("SELECT count(*) FROM mail"); }
  std::int64_t deliveries() const { return number("SELECT coalesce(sum(deliveries), 0) FROM mail"); }

 private:
  std::int64_t number(const char* sql) const;
  void run(const std::string& sql) const;

  sqlite3* handle_ = nullptr;
};

// The application's tables.
void make_ride_tables(Database& database);

// started → ride_created → (charge) → charge_created → response. `around_call` is called before and after the charge.
Operation ride_operation(
    OutsideWorld& world, std::function<void()> around_call = [] {});

OperationRequest ride_request(const std::string& key);

} // namespace oncekey
