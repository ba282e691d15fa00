#include "cli/admin_client.h"

#include "http/fetch.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <chrono>
#include <variant>

namespace oncekey {
namespace {

// Listing a large store reads all of it.
constexpr std::chrono::seconds kPatience{30};
// A record's body is at most max_stored_body, and base64 in JSON makes it a third longer.
constexpr std::uint64_t kLargestAnswer = 256u << 20;

} // namespace

Status AdminClient::identify() const {
  if (identified_) return ok_status();
  const Result<AdminAnswer> answer = send("GET", "/livez", "", SendToken::no);
  if (!answer) return answer.fault();
  boost::json::error_code error;
  const boost::json::value parsed = boost::json::parse(answer->body, error);
  const boost::json::object* const object = error ? nullptr : parsed.if_object();
  const boost::json::value* const listener = object == nullptr ? nullptr : object->if_contains("listener");
  if (listener == nullptr || *listener != "oncekey-admin") {
    return invalid(fmt::format(
        "{} is not an Oncekey admin listener, so the admin token was not sent there. Give its admin address "
        "with --admin HOST:PORT; `oncekey serve` logs it (event=listening admin=...)",
        url_.authority));
  }
  identified_ = true;
  return ok_status();
}

Result<AdminAnswer> AdminClient::exchange(std::string_view method, std::string_view target,
                                          std::string_view json) const {
  if (const Status known = identify(); !known) return known.fault();
  return send(method, target, json, SendToken::yes);
}

Result<AdminAnswer> AdminClient::send(std::string_view method, std::string_view target, std::string_view json,
                                      SendToken send_token) const {
  // A new connection for each call: a gateway that has been restarted since has closed the last one.
  const auto fetcher = Fetcher::open(ca_file_, {kLargestAnswer, AnswerLimit::Longer::fails});
  if (!fetcher) return fetcher.fault();
  FetchRequest request{std::string(method), url_, {}, json};
  request.url.target = target;
  request.headers.add("User-Agent", "oncekey-keys");
  if (send_token == SendToken::yes && !token_.text.empty())
    request.headers.add("Authorization", fmt::format("Bearer {}", token_.text));
  if (method == "POST") request.headers.add("Content-Type", "application/json");
  Fetched fetched = (*fetcher)->fetch(request, std::chrono::steady_clock::now() + kPatience);
  if (const auto* failure = std::get_if<FetchFailure>(&fetched)) {
    return unavailable(
        fmt::format("cannot reach the gateway's admin listener at {}: {}", url_.authority, failure->reason));
  }
  auto& answer = std::get<FetchedAnswer>(fetched);
  return AdminAnswer{answer.status, std::move(answer.body), token_.from};
}

} // namespace oncekey
