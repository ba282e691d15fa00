#include "admin/page.h"

#include "admin/record_json.h"
#include "base/durations.h"
#include "base/utf8.h"

#include <boost/json.hpp>

namespace oncekey {

namespace json = boost::json;

namespace {

std::string_view usual_code(int status) {
  switch (status) {
    case 401:
      return "login_required";
    case 404:
      return "not_found";
    case 409:
      return "state";
    case 415:
      return "json_only";
    case 503:
      return "store";
    default:
      return "bad_request";
  }
}

} // namespace

PageAnswer json_answer(const json::object& body, int status) { return {status, json::serialize(body)}; }

PageAnswer refused(int status, std::string_view message, std::string_view code) {
  return json_answer({{"error", json_text(message)}, {"code", json_text(code.empty() ? usual_code(status) : code)}},
                     status);
}

PageAnswer refused(const Fault& fault) {
  switch (fault.kind) {
    case FaultKind::conflict:
      return refused(409, fault.message, "ambiguous");
    case FaultKind::invalid:
      return refused(404, fault.message);
    default:
      return refused(503, fault.message);
  }
}

std::string_view PageRequest::text(std::string_view name) const { return text_member(given, name); }

std::optional<PageAnswer> PageRequest::refuse_unconfirmed(std::string_view whole_id) const {
  const std::string_view digits = whole_id.substr(0, kIdPrefixMin);
  if (!given.contains("confirm") && visitor.means != Visitor::Means::session) return std::nullopt;
  if (text("confirm") == digits) return std::nullopt;
  return refused(422, fmt::format("confirm must be the first {} digits of the id, {}", digits.size(), digits),
                 "confirm");
}

AuditLine PageRequest::audit_line(std::string about, std::string_view what, std::string_view result) const {
  return {wall_clock(),        visitor.name(),          std::string(what),           std::move(about),
          std::string(result), as_utf8(text("reason")), std::string(exchange.peer())};
}

Task<std::optional<PageAnswer>> read_json(Exchange& exchange, std::uint64_t bytes_max, json::object& out,
                                          std::string& text) {
  const std::string_view content_type = exchange.request().headers.get("Content-Type").value_or("");
  if (!starts_with_ignoring_case(content_type, "application/json"))
    co_return refused(415, "send Content-Type: application/json");
  const BodyRead read = co_await exchange.read_body(text, bytes_max);
  if (read == BodyRead::too_large) co_return refused(400, fmt::format("the body has more than {} bytes", bytes_max));
  if (read != BodyRead::whole) co_return refused(400, "the body did not arrive whole");
  boost::system::error_code error;
  json::value parsed = json::parse(text, error);
  if (error || !parsed.is_object()) co_return refused(400, "the body must be a JSON object");
  out = std::move(parsed.get_object());
  co_return std::nullopt;
}

Result<ReceivedBetween> received_between(std::string_view older_than, std::string_view newer_than, Time now) {
  ReceivedBetween between;
  if (!older_than.empty()) {
    const Result<Millis> age = parse_duration(older_than);
    if (!age) return invalid(fmt::format("older_than: {}", age.fault().message));
    between.before = now - *age;
  }
  if (!newer_than.empty()) {
    const Result<Millis> age = parse_duration(newer_than);
    if (!age) return invalid(fmt::format("newer_than: {}", age.fault().message));
    between.from = now - *age;
  }
  return between;
}

Status check_id_prefix(std::string_view id_text) {
  if (id_text.size() >= kIdPrefixMin && id_text.find_first_not_of("0123456789abcdef") == std::string_view::npos)
    return ok_status();
  return invalid(fmt::format("an id is 64 hex digits, or at least the first {} of them", kIdPrefixMin));
}

} // namespace oncekey
