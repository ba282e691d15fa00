#include "rides_api.h"

#include "book_ride.h"
#include "schema.h"

#include <charconv>
#include <iostream>
#include <string_view>

namespace rides {
namespace {

constexpr std::string_view kBearer = "Bearer ";
constexpr std::string_view kRide = "/rides/";

} // namespace

HttpReply RidesApi::answer(const HttpRequest& request) const try {
  const auto user = user_behind(request);
  if (!user) return error_reply(401, "unauthorized", "Send Authorization: Bearer TOKEN; amy and bob are known.");
  if (request.method == "POST" && request.path == "/rides") return book(request, *user);
  if (request.method == "GET" && request.path.starts_with(kRide)) {
    return show(*user, std::string_view(request.path).substr(kRide.size()));
  }
  return error_reply(404, "not_found", "Try POST /rides or GET /rides/ID.");
} catch (const std::exception& error) {
  std::cerr << "rides api: " << error.what() << std::endl;
  return error_reply(503, "unavailable", "Try the same request again, with the same Idempotency-Key.");
}

HttpReply RidesApi::book(const HttpRequest& request, std::int64_t user) const {
  if (!ride_order_from(request.body)) {
    return error_reply(422, "not_a_ride", "Send {\"origin\":{\"lat\":…,\"lon\":…},\"target\":{\"lat\":…,\"lon\":…}}.");
  }
  if (request.headers.count("Idempotency-Key") > 1) return error_reply(400, "two_keys", "Send one Idempotency-Key.");

  oncekey::OperationRequest booking;
  booking.operation = std::string(kBookRide);
  booking.principal = principal_of(user);
  booking.key = std::string(request.headers.get("Idempotency-Key").value_or(""));
  booking.method = request.method;
  booking.path = request.path;
  booking.body = request.body;
  booking.content_type = std::string(request.headers.get("Content-Type").value_or(""));
  try {
    return runner_.http_answer(booking, runner_.run(booking));
  } catch (const std::exception& error) {
    // The booking stays at its recovery point; the client's next try, or the completer, goes on from there.
    std::cerr << "rides api: " << error.what() << std::endl;
    return runner_.http_answer_after_exception(booking);
  }
}

HttpReply RidesApi::show(std::int64_t user, std::string_view ride) const {
  std::int64_t number = 0;
  const auto read = std::from_chars(ride.data(), ride.data() + ride.size(), number);
  const bool is_number = read.ec == std::errc{} && read.ptr == ride.data() + ride.size();
  const auto found = is_number ? find_ride(runner_.database(), user, number) : std::nullopt;
  return found ? json_reply(200, *found) : error_reply(404, "not_found", "You have no such ride.");
}

std::optional<std::int64_t> RidesApi::user_behind(const HttpRequest& request) const {
  const std::string_view given = request.headers.get("Authorization").value_or("");
  if (!given.starts_with(kBearer)) return std::nullopt;
  return find_user(runner_.database(), given.substr(kBearer.size()));
}

} // namespace rides
