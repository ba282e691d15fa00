// admin: the listener for operators. Health, metrics, and the JSON API behind `oncekey keys`.
//
//   GET  /livez                     200 while the process runs
//   GET  /readyz                    200 while it takes requests and the store is healthy, else 503 with the reason
//   GET  /metrics                   Prometheus text
//   GET  /api/keys?state=&limit=    records, without their responses
//   GET  /api/keys/ID               one record with its response; ID may be a unique prefix
//   POST /api/keys/ID/ACTION        release, rerun or complete; each leaves an audit line in the log
//   GET  /api/jobs?state=&limit=    messages that are delivered, without their bodies
//   GET  /api/jobs/ID               one message, whole
//   POST /api/jobs/ID/ACTION        retry or drop, in the same way
//   GET  /api/storms                the keys that are retried most at the moment
//
// Reached without a token only on loopback (the configuration sees to that). A browser on the same machine is not
// trusted for being there: requests must name a loopback host and actions must be JSON, which no page of another site
// can send.
#pragma once

#include "gateway/await_store.h"
#include "gateway/shared.h"
#include "http/server.h"

#include <boost/json/object.hpp>

#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

class Admin final : public Handler {
 public:
  // `gateway` is set once the public listener exists; until then the gateway is not ready.
  Admin(GatewayShared& shared, asio::io_context& context) : shared_(shared), wakeups_(context) {}
  void serves(const Server& gateway) { gateway_ = &gateway; }

  Task<void> handle(Exchange& exchange) override;

 private:
  struct Answer {
    int status = 200;
    std::string content_type = "application/json";
    std::string body;
  };

  Task<Answer> answer(Exchange& exchange);
  Answer ready() const;
  Answer metrics();
  void show_storms();
  Answer storms() const;
  Task<Answer> list_keys(std::string_view query);
  Task<Answer> show_key(std::string_view id_text);
  Task<Answer> list_jobs(std::string_view query);
  Task<Answer> show_job(std::string_view id_text);
  Task<Answer> act(Exchange& exchange, std::string_view id_text, std::string_view action_text);
  Task<Answer> act_on_job(Exchange& exchange, std::string_view id_text, std::string_view action_text);
  // The JSON object an action comes with, or the refusal.
  Task<std::optional<Answer>> read_action(Exchange& exchange, boost::json::object& out);
  Task<Answer> operate(Exchange& exchange, const RecordId& id, OperatorAction action, StoredResponse response,
                       std::string_view shown_as, std::string_view reason);
  // What an id or the beginning of one names. `invalid`: nothing; `conflict`: several.
  Task<Result<Found>> find(std::string_view id_text, RecordId& id);
  static int status_of(const Fault& fault);
  Task<Result<RecordId>> resolve(std::string_view id_text);

  GatewayShared& shared_;
  Wakeups wakeups_;
  const Server* gateway_ = nullptr;
};

} // namespace oncekey
