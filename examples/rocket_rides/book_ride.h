// Booking a ride, as an operation of atomic phases:
//
//   started ────────► ride_created ────────► charge_created ────────► finished
//      the ride and      the card is charged,     the receipt is
//      its audit record  the charge recorded      staged, 201
//                        (declined: 402, finished)
#pragma once

#include <oncekey/operation.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>

namespace rides {

inline constexpr std::string_view kBookRide = "book_ride";
inline constexpr std::string_view kMailSink = "mail";
inline constexpr std::int64_t kFareCents = 20'00;
inline constexpr std::string_view kCurrency = "usd";

struct Place {
  double lat = 0;
  double lon = 0;
};
struct RideOrder {
  Place origin;
  Place target;
};
// From {"origin": {"lat": …, "lon": …}, "target": {…}}. Nothing if it is anything else, or not on this planet.
std::optional<RideOrder> ride_order_from(std::string_view body);

// What is asked of the payment processor.
struct ChargeOrder {
  std::int64_t ride = 0;
  std::string customer;
  std::int64_t amount = kFareCents;
  std::string currency{kCurrency};
};

// What the processor decided. Both are final: a declined card stays declined for this booking.
struct Charged {
  std::string charge;
};
struct Declined {
  std::string why;
};
using ChargeDecision = std::variant<Charged, Declined>;

// Charges once for each key, however often it is called. Throws when it does not know whether it charged, or could not
// ask: the booking then stays where it is, and the call is made again later, with the same key.
using ChargeCard = std::function<ChargeDecision(const std::string& key, const ChargeOrder& order)>;

oncekey::Operation book_ride(ChargeCard charge_card);

// "user:42" and back: the name that a user's keys are kept under.
std::string principal_of(std::int64_t user);
std::int64_t user_of(const oncekey::OperationRequest& request);

} // namespace rides
