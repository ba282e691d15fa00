// page: what the pages of the admin listener are made of: a request, an answer, and the refusals they share.
#pragma once

#include "admin/access.h"
#include "admin/audit_trail.h"
#include "admin/record_json.h"

#include <boost/json/object.hpp>

namespace oncekey {

// A request that was let in.
struct PageRequest {
  Exchange& exchange;
  const Visitor& visitor;
  std::string id{};            // the first * of the page's path
  std::string action{};        // the second
  std::string_view query{};    // behind the question mark
  boost::json::object given{}; // the body of a POST
  Bodies bodies = Bodies::hidden;

  std::string_view text(std::string_view name) const; // of `given`; empty if there is none
  // An action on one thing repeats the first digits of its id in `confirm`: a session must, and a wrong one is refused.
  std::optional<PageAnswer> refuse_unconfirmed(std::string_view whole_id) const;
  AuditLine audit_line(std::string about, std::string_view what, std::string_view result) const;
};

// What the audit trail says of an action on one record or job. After a fault it may have happened.
template <class Answer>
std::string result_word(const Result<Answer>& answer) {
  if (!answer) return "fault";
  return *answer == Answer::done ? "done" : fmt::format("refused: {}", enum_name(*answer));
}

// What a visitor may send, an answer for `complete` included; and what a stranger may send to become one.
inline constexpr std::uint64_t kVisitorBytesMax = 16u << 20;
inline constexpr std::uint64_t kLoginBytesMax = 4096;
// Reads the JSON object that a POST comes with, and its text for the caller that compares it with an earlier one. The
// refusal if there is none.
Task<std::optional<PageAnswer>> read_json(Exchange& exchange, std::uint64_t bytes_max, boost::json::object& out,
                                          std::string& text);

// Shorter prefixes of ids often match several.
inline constexpr std::size_t kIdPrefixMin = 8;
Status check_id_prefix(std::string_view id_text);

// The id of the only one of what was found by a prefix. `none` has a place for the prefix.
template <class Lines>
Result<RecordId> only_id(const Lines& found, std::string_view none, std::string_view id_text) {
  if (found.empty()) return invalid(fmt::format(fmt::runtime(none), id_text));
  if (found.size() == 1) return found.front().id;
  return Fault{FaultKind::conflict, fmt::format("several ids begin with {}: give more digits", id_text)};
}

// `older_than` and `newer_than` of a listing, as times of receipt.
struct ReceivedBetween {
  Time from = Time::min();
  Time before = Time::max();
  bool has(Time received) const { return received >= from && received < before; }
};
// Of durations as people write them; empty ones limit nothing.
Result<ReceivedBetween> received_between(std::string_view older_than, std::string_view newer_than, Time now);

} // namespace oncekey
