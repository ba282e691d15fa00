#include "book_ride.h"

#include <boost/json.hpp>

#include <utility>

namespace rides {
namespace {

namespace json = boost::json;

constexpr std::string_view kUserPrefix = "user:";

std::optional<Place> place_from(const json::object& body, std::string_view name) {
  const json::value* const given = body.if_contains(name);
  if (given == nullptr || !given->is_object()) return std::nullopt;
  const json::value* const lat = given->as_object().if_contains("lat");
  const json::value* const lon = given->as_object().if_contains("lon");
  if (lat == nullptr || lon == nullptr || !lat->is_number() || !lon->is_number()) return std::nullopt;
  const Place place{lat->to_number<double>(), lon->to_number<double>()};
  const bool on_this_planet = place.lat >= -90 && place.lat <= 90 && place.lon >= -180 && place.lon <= 180;
  return on_this_planet ? std::optional(place) : std::nullopt;
}

void audit(oncekey::Phase& phase, std::string_view action, std::int64_t ride, std::string_view detail) {
  phase.execute("INSERT INTO audit_records (action, user_id, ride_id, detail) VALUES ($1, $2, $3, $4)",
                {action, user_of(phase.request()), ride, detail});
}

// Phases and calls may run in another process than the one before: what they need of each other is in the notes.
std::int64_t ride_in(const oncekey::Phase& phase) { return phase.note<std::int64_t>("ride"); }

oncekey::PhaseEnd create_ride(oncekey::Phase& phase) {
  const RideOrder order = ride_order_from(phase.request().body).value();
  const std::int64_t user = user_of(phase.request());
  const auto made = phase.execute(
      "INSERT INTO rides (user_id, origin_lat, origin_lon, target_lat, target_lon) VALUES ($1, $2, $3, $4, $5)"
      " RETURNING id, (SELECT customer FROM users WHERE users.id = user_id) AS customer",
      {user, order.origin.lat, order.origin.lon, order.target.lat, order.target.lon});
  const std::int64_t ride = made.rows.at(0)["id"].integer();
  audit(phase, "ride.created", ride, "");
  phase.keep_note("ride", ride);
  phase.keep_note("customer", made.rows.at(0)["customer"].text());
  return phase.next("ride_created");
}

ChargeDecision charge(const ChargeCard& charge_card, const oncekey::ForeignCall& call) {
  ChargeOrder order;
  order.ride = call.note<std::int64_t>("ride");
  order.customer = call.note<std::string>("customer");
  return charge_card(call.key(), order);
}

oncekey::PhaseEnd refuse_ride(oncekey::Phase& phase, std::string_view why) {
  audit(phase, "ride.declined", ride_in(phase), why);
  const json::object error{{"code", "card_declined"}, {"message", why}};
  return phase.respond(402, "application/json", json::serialize(json::object{{"error", error}}));
}

oncekey::PhaseEnd record_charge(oncekey::Phase& phase, const ChargeDecision& decision) {
  if (const auto* const declined = std::get_if<Declined>(&decision)) return refuse_ride(phase, declined->why);
  const std::string& charge = std::get<Charged>(decision).charge;
  phase.execute("INSERT INTO charges (id, ride_id, amount, currency) VALUES ($1, $2, $3, $4)",
                {charge, ride_in(phase), kFareCents, kCurrency});
  audit(phase, "ride.charged", ride_in(phase), charge);
  phase.keep_note("charge", charge);
  return phase.next("charge_created");
}

oncekey::PhaseEnd send_receipt_and_respond(oncekey::Phase& phase) {
  const std::int64_t ride = ride_in(phase);
  const json::object facts{
      {"ride", ride}, {"charge", phase.note<std::string>("charge")}, {"amount", kFareCents}, {"currency", kCurrency}};
  const std::string text = json::serialize(facts);
  phase.stage_job({.sink = std::string(kMailSink), .name = "send_ride_receipt", .args = text});

  oncekey::StoredResponse response;
  response.status = 201;
  response.reason = "Created";
  response.headers.add("Content-Type", "application/json");
  response.headers.add("Location", "/rides/" + std::to_string(ride));
  response.body = text;
  return phase.respond(std::move(response));
}

} // namespace

std::optional<RideOrder> ride_order_from(std::string_view body) {
  boost::system::error_code error;
  const json::value parsed = json::parse({body.data(), body.size()}, error);
  if (error || !parsed.is_object()) return std::nullopt;
  const auto origin = place_from(parsed.as_object(), "origin");
  const auto target = place_from(parsed.as_object(), "target");
  if (!origin || !target) return std::nullopt;
  return RideOrder{*origin, *target};
}

oncekey::Operation book_ride(ChargeCard charge_card) {
  oncekey::Operation operation{std::string(kBookRide)};
  operation.phase("started", create_ride);
  operation.call_then_phase(
      "ride_created", "charge",
      [charge_card = std::move(charge_card)](const oncekey::ForeignCall& call) { return charge(charge_card, call); },
      record_charge);
  operation.phase("charge_created", send_receipt_and_respond);
  return operation;
}

std::string principal_of(std::int64_t user) { return std::string(kUserPrefix) + std::to_string(user); }

std::int64_t user_of(const oncekey::OperationRequest& request) {
  return std::stoll(request.principal.substr(kUserPrefix.size()));
}

} // namespace rides
