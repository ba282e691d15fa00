// identity_memory: a store remembers the rules by which its gateways find records, and a start with other rules is
// refused.
//
// With another scope, say, every record is still there but no request finds it: each retry would be executed again
// (config/identity_rules.h). So the first gateway on a store writes its rules into it, with digests of the entries of
// its accounts files, and each later start and reload compares. On a shared store the last rules that were written
// count for all gateways: a gateway with the earlier rules starts again only with --accept-identity-change.
#pragma once

#include "base/log.h"
#include "config/identity_rules.h"
#include "net/loop.h"

#include <oncekey/result.h>

#include <deque>
#include <thread>

namespace oncekey {

enum class IdentityChange { refused, accepted };

// Compares with what the store behind `url` remembers, and writes what is new into it unless told not to. A fault says
// what would be lost and what to do: the gateway must not start. A fault also if writing fails: the gateway must not
// use the new rules. Blocks.
enum class Write { no, yes };
Status remember_identity(const std::string& url, const IdentityBasis& basis, IdentityChange change, Log& log,
                         Write write = Write::yes);

// The same on a text instead of a store: what to write in its place, or nothing if it can stay. For tests.
struct IdentityVerdict {
  std::optional<std::string> write;
  std::vector<std::string> lost;            // what was accepted
  std::map<std::string, std::size_t> added; // credentials that have an account from now on, by file
};
Result<IdentityVerdict> judge_identity(const std::string& remembered, const IdentityBasis& basis,
                                       IdentityChange change);

// Logs that credentials were added to an accounts file, and what that means for them.
void log_added_accounts(Log& log, const std::string& file, std::size_t credentials);

// Calls remember_identity() on a thread of its own, so that a store that hangs does not block the event loop. One call
// at a time, in order. All members are called on the loop's thread.
class IdentityWriter {
 public:
  using Then = std::function<void(Status)>;

  IdentityWriter(Loop& loop, std::string url, Log& log);
  IdentityWriter(const IdentityWriter&) = delete;
  IdentityWriter& operator=(const IdentityWriter&) = delete;

  // `then` is called on the loop, never before this returns.
  void remember(IdentityBasis basis, Then then);

 private:
  struct Job {
    IdentityBasis basis;
    Then then;
  };
  void begin_next();

  Loop& loop_;
  const std::string url_;
  Log& log_;
  std::deque<Job> jobs_; // the first is under way
  std::jthread thread_;  // the last one; assigning another waits for it
};

} // namespace oncekey
