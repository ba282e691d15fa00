// Inbox: process each message once, for consumers of anything that delivers at least once.
//
// Webhooks, streams and Oncekey's own enqueuer may hand over the same message twice. process_once runs the consumer's
// code and remembers the message in the same serializable transaction. A second delivery finds it remembered and
// changes nothing; a crash in the middle leaves neither the effects nor the memory of them. Among concurrent deliveries
// of one message one commits; the library runs the others again, they find the message remembered, and do nothing.
//
//     oncekey::process_once(database, "receipts", event.id, [&](oncekey::Transaction& tx) { tx.execute("INSERT …"); });
//
// Only what is written through the transaction happens once. A mail that `code` sends, or a call to a foreign API, may
// happen for each run of it; stage a job instead (jobs.h), or run an operation (operation.h).
//
// The entries are kept in the tables of the library (Database::migrate), in time buckets that the Reaper (workers.h)
// drops whole.
#pragma once

#include <oncekey/database.h>
#include <oncekey/result.h>
#include <oncekey/transaction.h>

#include <functional>
#include <string_view>

namespace oncekey {

// Either way the message is done, and its delivery can be acknowledged.
enum class Processed {
  done_now,    // the code ran and its effects have committed
  done_before, // an earlier delivery did it; the code did not run, or what it wrote was rolled back
};

struct InboxOptions {
  // How long a message is remembered, on the database's clock: at least as long as its sender may deliver it again.
  // Seven days cover every webhook sender that publishes a number. After this a further delivery is processed again.
  Millis remembered = std::chrono::hours(24 * 7);
  // How long the transaction is run again after serialization failures before the answer is a fault of kind `conflict`.
  Millis conflict_budget = std::chrono::seconds(5);
};

// Runs `code`, unless this consumer has processed the message before.
//
//     const auto processed = oncekey::process_once(*database, "payouts", event.id, [&](oncekey::Transaction& t) {
//       t.execute("UPDATE payouts SET state = 'paid' WHERE id = $1", {event.payout});
//     });
//     return processed ? 200 : 503;  // after a fault the sender delivers again
//
// `consumer` keeps the messages of different
// consumers apart. Consumer and message id are compared byte by byte and have 1 to 255 bytes each; others are a fault
// of kind `invalid`.
//
// `code` runs on the calling thread, and may run more than once (transaction.h). What it throws rolls the transaction
// back, leaves the message unprocessed, and is passed on.
//
// When this returns a value, the effects are durable. After a fault of kind `timeout` the commit was sent and never
// answered; after any other fault nothing was changed. In both cases let the sender deliver again. May be called from
// any thread.
Result<Processed> process_once(Database& database, std::string_view consumer, std::string_view message_id,
                               const std::function<void(Transaction&)>& code, const InboxOptions& options = {});

} // namespace oncekey
