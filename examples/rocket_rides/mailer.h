// The consumer of our staged jobs: sends receipts (counts them, that is) and may get each job more than once.
//
//   POST /receipts   {"ride": 7, …} with Idempotency-Key: <job id>; 200 when the receipt was sent, now or before
//   GET  /receipts   {"deliveries": N, "receipts": [{"job": "1", "ride": 7}, …]}
//
// It remembers jobs in a database of its own, with Oncekey's inbox, so that a restart forgets none.
#pragma once

#include "faults.h"
#include "http.h"

#include <oncekey/database.h>

#include <atomic>
#include <cstdint>
#include <optional>

namespace rides {

class Mailer {
 public:
  // Makes its tables. `drops_percent` of the deliveries are not answered, half of them after the receipt was sent.
  Mailer(oncekey::Database& database, int drops_percent, unsigned seed);

  // Nothing: the connection is to be lost.
  std::optional<HttpReply> answer(const HttpRequest& request);

 private:
  std::optional<HttpReply> send_receipt(const HttpRequest& request);
  HttpReply list() const;

  oncekey::Database& database_;
  Dice dice_;
  std::atomic<std::int64_t> deliveries_ = 0;
};

} // namespace rides
