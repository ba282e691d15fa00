#include "processor_client.h"

#include <boost/json.hpp>

namespace rides {
namespace {

namespace json = boost::json;

std::string member(const json::value& object, std::string_view name) {
  return std::string(object.as_object().at(name).as_string());
}

} // namespace

ChargeDecision ProcessorClient::charge(const std::string& key, const ChargeOrder& order) const try {
  oncekey::Headers headers;
  headers.add("Content-Type", "application/json");
  headers.add("Idempotency-Key", key);
  const json::object body{
      {"amount", order.amount}, {"currency", order.currency}, {"customer", order.customer}, {"ride", order.ride}};
  const HttpReply reply = client_.post("/charges", headers, json::serialize(body));

  if (reply.status == 201) return Charged{member(json::parse(reply.body), "id")};
  if (reply.status == 402) return Declined{member(json::parse(reply.body).as_object().at("error"), "message")};
  // 409 and 5xx: perhaps charged, by us a moment ago. 400, 401 and 429: not charged, but that is our trouble and no
  // answer for a customer. In all cases it is asked again.
  throw OutcomeUnknown("the processor answered " + std::to_string(reply.status) + ": " + reply.body);
} catch (const std::exception& error) {
  // Lost, late, or not understood: whatever went wrong on the way, it does not say that nothing was charged.
  throw OutcomeUnknown(error.what());
}

} // namespace rides
