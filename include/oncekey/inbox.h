// Inbox: do it once, for consumers of anything that delivers at least once.
//
// Webhooks, streams and our own enqueuer may hand over the same message twice. process_once runs the consumer's code
// and remembers the message in the same serializable transaction: a second delivery finds it remembered and changes
// nothing, a crash in the middle leaves neither. Among concurrent deliveries of one message one commits; the others are
// run again by the library, find it remembered, and do nothing.
//
//     oncekey::process_once(database, "receipts", event.id, [&](oncekey::Transaction& tx) { tx.execute("INSERT …"); });
#pragma once

#include <oncekey/database.h>
#include <oncekey/result.h>
#include <oncekey/transaction.h>

#include <functional>
#include <string_view>

namespace oncekey {

enum class Processed {
  done_now,    // the code ran and its effects have committed
  done_before, // an earlier delivery did it; the code did not run, or what it wrote was rolled back
};

struct InboxOptions {
  // How long a message is remembered: at least as long as its sender may deliver it again. Seven days cover every
  // webhook sender that publishes a number.
  Millis remembered = std::chrono::hours(24 * 7);
  Millis conflict_budget = std::chrono::seconds(5);
};

// `consumer` keeps the messages of different consumers apart. Both texts are compared byte by byte; at most 255 bytes
// each. What `code` throws rolls back, forgets the message, and is passed on.
Result<Processed> process_once(Database& database, std::string_view consumer, std::string_view message_id,
                               const std::function<void(Transaction&)>& code, const InboxOptions& options = {});

} // namespace oncekey
