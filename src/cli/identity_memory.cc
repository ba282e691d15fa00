#include "cli/identity_memory.h"

#include "base/faults.h"
#include "store/open_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kNoteBegin = "oncekey identity ";
constexpr std::uint64_t kNoteFormat = 1;
// Attempts to write while other gateways that start at the same moment write too.
constexpr int kTries = 5;

std::string noted(const IdentityBasis& basis) {
  return fmt::format("{}{}\n{}", kNoteBegin, kNoteFormat, encode(basis));
}

Result<IdentityBasis> decode(std::string_view text) {
  const std::optional<std::uint64_t> format = format_number_in(text, kNoteBegin);
  if (format && *format > kNoteFormat)
    return newer_format("what the store remembers of the identity rules", *format, kNoteFormat);
  if (format != kNoteFormat) return corrupt("what the store remembers of the identity rules cannot be read");
  return decode_identity_basis(text.substr(text.find('\n') + 1));
}

std::string refusal(const std::vector<std::string>& lost) {
  return fmt::format(
      "these rules find keys in another way than the store remembers, and keys in the store would be forgotten: a "
      "retry of what was executed before would be executed again. {}. Put it back (on a shared store: give this "
      "gateway the configuration of the others), or start once with --accept-identity-change",
      fmt::join(lost, "; "));
}

} // namespace

Result<IdentityVerdict> judge_identity(const std::string& remembered, const IdentityBasis& basis,
                                       IdentityChange change) {
  IdentityVerdict verdict;
  std::string next = noted(basis);
  if (next == remembered) return verdict;
  if (next.size() > bytes_max_of(StoreNote::identity))
    return invalid(
        fmt::format("the routes and the entries of the accounts files take {} bytes, and a store remembers {}",
                    next.size(), bytes_max_of(StoreNote::identity)));
  verdict.write = std::move(next);
  if (remembered.empty()) return verdict;
  const Result<IdentityBasis> before = decode(remembered);
  if (!before) {
    // To write it anew would make the newer gateways forget their rules.
    if (before.fault().kind == FaultKind::newer_format) return before.fault();
    if (change == IdentityChange::accepted) return verdict;
    return invalid(before.fault().message + "; start once with --accept-identity-change to write it anew");
  }
  verdict.lost = lost_identities(*before, basis);
  if (!verdict.lost.empty() && change == IdentityChange::refused) return invalid(refusal(verdict.lost));
  verdict.added = added_accounts(before->accounts, basis.accounts);
  return verdict;
}

Status remember_identity(const std::string& url, const IdentityBasis& basis, IdentityChange change, Log& log,
                         Write write) {
  if (url.starts_with("memory:")) return ok_status();
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Result<std::string> remembered = read_store_note(url, StoreNote::identity, log);
    if (!remembered) return remembered.fault();
    const Result<IdentityVerdict> verdict = judge_identity(*remembered, basis, change);
    if (!verdict) return verdict.fault();
    if (!verdict->write || write == Write::no) return ok_status();
    // Written only if the store still remembers what was compared: two gateways with different rules cannot both start.
    const Result<bool> written = write_store_note(url, StoreNote::identity, *remembered, *verdict->write, log);
    if (!written)
      return unavailable(
          fmt::format("the store cannot remember by which rules keys are found: {}", written.fault().message));
    if (!*written) continue; // another gateway was first
    for (const std::string& lost : verdict->lost) log.always("identity_change_accepted", {{"lost", lost}});
    for (const auto& [file, credentials] : verdict->added) log_added_accounts(log, file, credentials);
    return ok_status();
  }
  return unavailable("other gateways change what the store remembers of the identity rules all the time: try again");
}

void log_added_accounts(Log& log, const std::string& file, std::size_t credentials) {
  log.always("accounts_added", {{"file", file},
                                {"credentials", credentials},
                                {"meaning",
                                 "a credential that sent keys before it had an entry was an account of its own: those "
                                 "keys are not found any more, and a retry of one executes again"}});
}

IdentityWriter::IdentityWriter(Loop& loop, std::string url, Log& log) : loop_(loop), url_(std::move(url)), log_(log) {}

void IdentityWriter::remember(IdentityBasis basis, Then then) {
  jobs_.push_back({std::move(basis), std::move(then)});
  if (jobs_.size() == 1) begin_next();
}

void IdentityWriter::begin_next() {
  thread_ = std::jthread([this, basis = jobs_.front().basis] {
    Status done = remember_identity(url_, basis, IdentityChange::refused, log_);
    loop_.post([this, done = std::move(done)] {
      const Then then = std::move(jobs_.front().then);
      jobs_.pop_front();
      if (!jobs_.empty()) begin_next();
      then(done);
    });
  });
}

} // namespace oncekey
