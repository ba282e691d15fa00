#include "cli/identity_memory.h"

#include "store/open_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <utility>
#include <vector>

namespace oncekey {
namespace {

constexpr std::string_view kFormat = "oncekey identity 1\n";
constexpr std::string_view kSince = "since ";
// Longer than replacing all gateways of a store takes, and much shorter than the usual retention.
constexpr std::chrono::hours kReplacing{1};
// Besides those in force.
constexpr std::size_t kOlderSetsMax = 4;
// Gateways that start at the same moment.
constexpr int kTries = 5;

// Rules that were in force from a time on.
struct RuleSet {
  std::int64_t since_ms = 0;
  IdentityRules rules;
};

std::int64_t millis_of(Time time) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch()).count();
}

std::string encode(const std::vector<RuleSet>& sets) {
  std::string text(kFormat);
  for (const RuleSet& set : sets) text += fmt::format("{}{}\n{}", kSince, set.since_ms, encode(set.rules));
  return text;
}

// Those in force first.
Result<std::vector<RuleSet>> decode(std::string_view text) {
  if (!text.starts_with(kFormat)) return corrupt("what the store remembers of the identity rules cannot be read");
  text.remove_prefix(kFormat.size());
  std::vector<RuleSet> sets;
  while (text.starts_with(kSince)) {
    text.remove_prefix(kSince.size());
    RuleSet set;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), set.since_ms);
    if (error != std::errc{} || end == text.data() + text.size() || *end != '\n')
      return corrupt("what the store remembers of the identity rules has no time");
    text.remove_prefix(static_cast<std::size_t>(end - text.data()) + 1);
    // A path begins with / or *, never with the word.
    const std::size_t next = text.starts_with(kSince) ? 0 : text.find("\nsince ");
    const std::size_t length = next == std::string_view::npos ? text.size() : next == 0 ? 0 : next + 1;
    auto rules = decode_identity_rules(text.substr(0, length));
    if (!rules) return std::move(rules).fault();
    set.rules = *std::move(rules);
    text.remove_prefix(length);
    sets.push_back(std::move(set));
  }
  if (sets.empty() || !text.empty()) return corrupt("what the store remembers of the identity rules is incomplete");
  return sets;
}

std::string refusal(const std::vector<std::string>& lost) {
  return fmt::format(
      "the rules by which requests find their keys have changed, and keys in the store would be forgotten: a retry of "
      "what was executed before would be executed again. {}. Put the setting back, or start once with "
      "--accept-identity-change",
      fmt::join(lost, "; "));
}

} // namespace

Result<IdentityVerdict> judge_identity(const std::string& remembered, const IdentityRules& rules, IdentityChange change,
                                       Sharing sharing, Time now) {
  const std::int64_t now_ms = millis_of(now);
  std::vector<RuleSet> next{{now_ms, rules}};
  IdentityVerdict verdict;
  if (remembered.empty()) {
    verdict.write = encode(next);
    return verdict;
  }
  const Result<std::vector<RuleSet>> sets = decode(remembered);
  if (!sets) {
    if (change == IdentityChange::refused)
      return invalid(sets.fault().message + "; start once with --accept-identity-change to write it anew");
    verdict.write = encode(next);
    return verdict;
  }
  if (sets->front().rules == rules) return verdict;
  verdict.lost = lost_identities(sets->front().rules, rules);
  const std::int64_t replacing_ms = std::chrono::milliseconds(kReplacing).count();
  if (!verdict.lost.empty() && change == IdentityChange::refused) {
    for (std::size_t i = 1; i < sets->size() && sharing == Sharing::many_gateways; ++i) {
      // The set before it in the list is the one that replaced it.
      if ((*sets)[i].rules != rules || now_ms - (*sets)[i - 1].since_ms > replacing_ms) continue;
      verdict.lost.clear();
      verdict.older = true;
      return verdict;
    }
    return invalid(refusal(verdict.lost));
  }
  if (sharing == Sharing::many_gateways) {
    for (const RuleSet& set : *sets) {
      if (next.size() <= kOlderSetsMax && set.rules != rules) next.push_back(set);
    }
  }
  verdict.write = encode(next);
  return verdict;
}

Status remember_identity(const std::string& url, const IdentityRules& rules, IdentityChange change, Time now,
                         Log& log) {
  if (url.starts_with("memory:")) return ok_status();
  const Sharing sharing = folder_of_store(url) ? Sharing::one_gateway : Sharing::many_gateways;
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const Result<std::string> remembered = read_identity_note(url, log);
    if (!remembered) return remembered.fault();
    const Result<IdentityVerdict> verdict = judge_identity(*remembered, rules, change, sharing, now);
    if (!verdict) return verdict.fault();
    if (verdict->older)
      log.warning("identity_rules_of_before",
                  {{"meaning", "other gateways on this store have newer rules; this one starts with those before"},
                   {"next", "replace this gateway too: an hour after the change its rules are refused"}});
    for (const std::string& lost : verdict->lost) log.always("identity_change_accepted", {{"lost", lost}});
    if (!verdict->write) return ok_status();
    const Result<bool> written = write_identity_note(url, *remembered, *verdict->write, log);
    if (!written) {
      // A full disk, say: the store itself says what it thinks of that. The rules are compared at the next start.
      log.warning("identity_rules_not_remembered", {{"reason", written.fault().message}});
      return ok_status();
    }
    if (*written) return ok_status();
  }
  return unavailable("other gateways change what the store remembers of the identity rules all the time: try again");
}

} // namespace oncekey
