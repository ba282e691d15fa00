// News: hears which awaited records were settled by other gateways.
//
// The server tells (LISTEN) on a connection kept for that. Through a pooler it may not, since the session that listens
// is not kept for us; so a message of our own is sent and waited for, and where it does not arrive the awaited ids are
// asked for many times a second. Where it does, they are asked for once a second all the same: a net that costs little.
#pragma once

#include "base/backoff.h"
#include "store/postgres/postgres_state.h"

#include <thread>

namespace oncekey::postgres {

class News {
 public:
  explicit News(PostgresState& state);
  // After state.stop().
  ~News();

 private:
  void run();
  bool connect();
  bool test_hearing();
  void wait_for_news(Deadline until);
  bool ask_for_awaited();
  void hear(std::string_view payload);

  PostgresState& state_;
  std::unique_ptr<Connection> connection_;
  Backoff backoff_;
  bool hears_ = false;
  bool was_heard_ = false; // our own message, of the test under way
  std::string test_;
  std::thread thread_;
};

} // namespace oncekey::postgres
