// admin: the listener for operators. Health, metrics, and the JSON API behind `oncekey keys`.
//
//   GET  /livez                     200 while the process runs; "listener":"oncekey-admin" tells it from other servers
//   GET  /readyz                    200 while it takes requests and the store is healthy, else 503 with one word
//                                   (starting, draining, store); with the token, the store's durability and fault too
//   GET  /metrics                   Prometheus text
//   GET  /api/keys?state=&route=&older_than=&limit=&after=
//                                   keys, newest first, without their responses; those that wait for a person come
//                                   first, unless a state is named. `next` goes on with the next page
//   POST /api/keys/find             {"key", "principal", "headers", "route", "method", "path", "limit"}: the records of
//                                   a key
//   GET  /api/keys/ID               one record with its response; ID may be a unique prefix
//   POST /api/keys/ID/ACTION        release, rerun or complete; each leaves an audit line in the log
//   GET  /api/jobs?state=&limit=    messages that are delivered, without their bodies
//   GET  /api/jobs/ID               one message, whole
//   POST /api/jobs/ID/ACTION        retry or drop, in the same way
//   GET  /api/storms                the keys that are retried most at the moment
//   GET  /api/audit?limit=&before=&record=&since=&until=
//                                   lines of the audit log, newest first
//   POST /api/audit/find            the same for a key, in the manner of /api/keys/find
//
// docs/ADMIN_API.md describes them for programs.
//
// Reading records and acting on them needs the token, on loopback too: other users of the machine are not operators.
// Health needs none; metrics need none where the listener is on loopback. Pages in a browser on the same machine are
// not trusted either: requests without the token must name a loopback host, and actions must be JSON, which no page of
// another site can send. Wrong tokens are answered slowly (token_guesses.h) and logged.
#pragma once

#include "admin/key_search.h"
#include "admin/token_guesses.h"
#include "core/job_store.h"
#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "http/door.h"
#include "http/server.h"
#include "net/loop.h"

#include <fmt/format.h>
#include <boost/json/object.hpp>

namespace oncekey {

class Admin final : public Handler {
 public:
  // `gateway` is set once the public listener exists; until then the gateway is not ready.
  Admin(GatewayShared& shared, Loop& timers);
  void serves(const Server& gateway) { gateway_ = &gateway; }

  Task<void> handle(Exchange& exchange) override;

 private:
  struct Answer {
    int status = 200;
    std::string body;
    std::string content_type = "application/json";
  };
  // {"error": "..."}
  static Answer refused(int status, std::string_view message);
  static Answer refused(const Fault& fault); // of a store, or of what it was asked for
  static Answer json_answer(const boost::json::object& body, int status = 200);

  Task<Answer> answer(Exchange& exchange);
  // The refusal of a request without the right credential. Waits before refusing a wrong token.
  Task<std::optional<Answer>> stop_strangers(Exchange& exchange, Credential credential);
  Task<void> wait(std::chrono::milliseconds delay);
  void note_wrong_token(std::string_view peer);
  void log_wrong_tokens();
  enum class Detail { word, all };
  Answer ready(Detail detail) const;
  Answer metrics(const Headers& asked);
  void show_storms();
  Answer storms() const;
  Task<Answer> list_keys(std::string_view query);
  Task<Answer> find_keys(Exchange& exchange);
  Task<Result<BrowsePage>> browse(BrowseRequest request);
  Task<Result<std::optional<Found>>> look_up(const RecordId& id);
  boost::json::object key_json(const RecordId& id, const Record& record, Time now) const;
  boost::json::object page_json(const BrowsePage& page) const;
  Task<Answer> show_key(std::string_view id_text);
  Task<Answer> list_jobs(std::string_view query);
  Task<Answer> find_audit(Exchange& exchange);
  Task<Result<FoundJob>> find_job(std::string_view id_text);
  Task<Answer> show_job(std::string_view id_text);
  Task<Answer> act(Exchange& exchange, std::string_view id_text, std::string_view action_text);
  Task<Answer> act_on_job(Exchange& exchange, std::string_view id_text, std::string_view action_text);
  // The JSON object a request comes with, or the refusal.
  Task<std::optional<Answer>> read_json(Exchange& exchange, boost::json::object& out);
  // The same for an action, which needs a reason.
  Task<std::optional<Answer>> read_action(Exchange& exchange, boost::json::object& out);
  // The error for an operator who acts on a key whose lease is live.
  Task<std::string> why_live(const RecordId& id);
  // A line of the audit trail: it is logged however little else is.
  void audit(const Exchange& exchange, const RecordId& id, const Record* record, std::string_view action,
             std::string_view result, std::string_view reason) const;
  // What an id or the beginning of one names. `invalid`: nothing; `conflict`: several.
  Task<Result<Found>> find(std::string_view id_text, RecordId& id);
  static Status check_id_prefix(std::string_view id_text);
  // The id of the only one of what was found by a prefix.
  template <class Lines>
  static Result<RecordId> only_id(const Lines& found, std::string_view none, std::string_view id_text) {
    if (found.empty()) return invalid(fmt::format(fmt::runtime(none), id_text));
    if (found.size() == 1) return found.front().id;
    return Fault{FaultKind::conflict, fmt::format("several ids begin with {}: give more digits", id_text)};
  }

  GatewayShared& shared_;
  Loop& loop_;
  const bool on_loopback_;
  TokenGuesses guesses_;
  // Wrong tokens since the last line about them, of which there is at most one a second.
  std::uint64_t wrong_tokens_ = 0;
  std::string wrong_from_;
  bool said_lately_ = false;
  Timer say_again_;
  const Server* gateway_ = nullptr;
};

} // namespace oncekey
