#include "cli/admin_client.h"

#include "client/world.h"

#include <fmt/format.h>

#include <chrono>
#include <variant>

namespace oncekey {
namespace {

// Listing a large store reads all of it.
constexpr std::chrono::seconds kPatience{30};
// A record's body is at most max_stored_body, and base64 in JSON makes it a third longer.
constexpr std::uint64_t kLargestAnswer = 256u << 20;

} // namespace

Result<AdminAnswer> AdminClient::exchange(std::string_view method, std::string_view target,
                                          std::string_view json) const {
  // A new connection for each call: a gateway that has been restarted since has closed the last one.
  const Result<std::unique_ptr<ClientWorld>> world = real_world(ca_file_, kLargestAnswer);
  if (!world) return world.fault();
  WireRequest request;
  request.method = method;
  request.url = url_;
  request.url.target = target;
  request.headers.add("Host", url_.authority);
  request.headers.add("User-Agent", "oncekey-keys");
  if (!token_.text.empty()) request.headers.add("Authorization", fmt::format("Bearer {}", token_.text));
  if (method == "POST") request.headers.add("Content-Type", "application/json");
  request.body = json;
  const Tried tried = (*world)->exchange(request, (*world)->now() + kPatience);
  if (const auto* failure = std::get_if<TryFailure>(&tried)) {
    return unavailable(
        fmt::format("cannot reach the gateway's admin listener at {}: {}", url_.authority, failure->reason));
  }
  const auto& answer = std::get<ClientResponse>(tried);
  return AdminAnswer{answer.status, answer.body, token_.from};
}

} // namespace oncekey
