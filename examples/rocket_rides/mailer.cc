#include "mailer.h"

#include <oncekey/inbox.h>
#include <oncekey/transaction.h>

#include <boost/json.hpp>

#include <stdexcept>
#include <string>

namespace rides {
namespace {

namespace json = boost::json;

void require(const oncekey::Status& status) {
  if (!status) throw std::runtime_error("the mailer's database: " + status.fault().message);
}

std::optional<std::int64_t> ride_of(const std::string& receipt) {
  boost::system::error_code error;
  const json::value parsed = json::parse(receipt, error);
  if (error || !parsed.is_object()) return std::nullopt;
  const json::value* const ride = parsed.as_object().if_contains("ride");
  return ride != nullptr && ride->is_int64() ? std::optional(ride->as_int64()) : std::nullopt;
}

} // namespace

Mailer::Mailer(oncekey::Database& database, int drops_percent, unsigned seed)
    : database_(database), dice_(0, drops_percent, seed) {
  require(database_.migrate());
  require(oncekey::run_transaction(database_, [](oncekey::Transaction& transaction) {
    transaction.execute("CREATE TABLE IF NOT EXISTS sent_receipts (job TEXT NOT NULL, ride BIGINT NOT NULL)");
  }));
}

std::optional<HttpReply> Mailer::answer(const HttpRequest& request) {
  if (request.path == "/receipts" && request.method == "POST") return send_receipt(request);
  if (request.path == "/receipts" && request.method == "GET") return list();
  return error_reply(404, "not_found", "Try POST /receipts or GET /receipts.");
}

std::optional<HttpReply> Mailer::send_receipt(const HttpRequest& request) {
  ++deliveries_;
  const Fate fate = dice_.draw();
  if (fate == Fate::drop_before) return std::nullopt;

  const std::string job(request.headers.get("Idempotency-Key").value_or(""));
  const auto ride = ride_of(request.body);
  if (job.empty() || !ride) return error_reply(400, "not_a_receipt", "Send a ride, and an Idempotency-Key.");
  const auto done = oncekey::process_once(database_, "receipts", job, [&](oncekey::Transaction& transaction) {
    transaction.execute("INSERT INTO sent_receipts (job, ride) VALUES ($1, $2)", {job, *ride});
  });
  if (!done) return error_reply(503, "unavailable", done.fault().message);

  if (fate == Fate::drop_after) return std::nullopt;
  const bool now = done.value() == oncekey::Processed::done_now;
  return json_reply(200, json::serialize(json::object{{"sent", now ? "now" : "before"}}));
}

HttpReply Mailer::list() const {
  json::array receipts;
  require(oncekey::run_transaction(database_, [&](oncekey::Transaction& transaction) {
    receipts.clear();
    for (const auto& row : transaction.execute("SELECT job, ride FROM sent_receipts ORDER BY job").rows) {
      receipts.push_back(json::object{{"job", row.text(0)}, {"ride", row.integer(1)}});
    }
  }));
  return json_reply(200, json::serialize(json::object{{"deliveries", deliveries_.load()}, {"receipts", receipts}}));
}

} // namespace rides
