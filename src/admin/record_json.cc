#include "admin/record_json.h"

#include "base/ascii.h"
#include "base/crypto.h"
#include "base/utf8.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>

namespace oncekey {
namespace {

namespace json = boost::json;

// Cookies, credentials and signatures of an API.
bool may_be_secret(std::string_view header) {
  const std::string name = lower_case(header);
  static constexpr std::array<std::string_view, 8> kSecret{"cookie", "auth",    "token",    "secret",
                                                           "sign",   "api-key", "password", "session"};
  return std::any_of(kSecret.begin(), kSecret.end(),
                     [&](std::string_view part) { return name.find(part) != std::string::npos; });
}

void put_headers(json::object& out, const Headers& headers, Bodies bodies) {
  json::array& fields = out["headers"].emplace_array();
  for (std::size_t i = 0; i < headers.size(); ++i) {
    const bool hidden = bodies == Bodies::hidden && may_be_secret(headers[i].name);
    fields.push_back(
        json::array{json_text(headers[i].name), hidden ? json::value() : json::value(json_text(headers[i].value))});
  }
}

void put_body(json::object& out, std::string_view body, Bodies bodies) {
  out["body_bytes"] = body.size();
  out["body"] = nullptr;
  out["body_encoding"] = nullptr;
  if (bodies == Bodies::hidden) return;
  const bool as_text = is_utf8(body);
  out["body"] = as_text ? json_text(body) : json::string(base64_encode(body));
  out["body_encoding"] = as_text ? "utf-8" : "base64";
}

} // namespace

json::string json_text(std::string_view view) {
  if (is_utf8(view)) return json::string(view.data(), view.size());
  const std::string shown = as_utf8(view);
  return json::string(shown.data(), shown.size());
}

json::object record_json(const RecordId& id, const Record& record, Time now) {
  json::object out;
  out["id"] = to_hex(id);
  out["state"] = json_text(to_string(record.state));
  // The lease is over and no operator has decided yet; with `rerun` one has: the next retry executes.
  out["abandoned"] = record.left_abandoned(now);
  out["rerun"] = record.rerun;
  out["fence"] = record.fence;
  out["version"] = fmt::format_int(record.fence).str();
  out["key"] = json_text(record.key);
  out["route"] = json_text(record.route);
  out["method"] = json_text(record.method);
  out["target"] = json_text(record.target);
  out["first_received"] = iso_time(record.first_received);
  out["lease_until"] =
      record.state == RecordState::in_progress ? json::value(iso_time(record.lease_until)) : json::value();
  out["expires_at"] = iso_time(record.expires_at);
  // When it got its answer, or since when its outcome is unknown.
  const json::value at(iso_time(record.settled_at));
  out["settled_at"] = record.state == RecordState::completed ? at : json::value();
  out["indeterminate_since"] = record.state == RecordState::indeterminate ? at : json::value();
  out["status"] = record.response ? json::value(record.response->status) : json::value();
  out["gateway"] = json_text(record.context.gateway);
  out["trace"] = record.context.trace ? json::value(hex_encode(*record.context.trace)) : json::value();
  return out;
}

std::string version_of(const StoredJob& job) { return fmt::format("{}.{}", to_string(job.state), job.fence); }

json::object job_json(const StoredJob& job, Time now) {
  const auto time_or_null = [](bool there, Time time) { return there ? json::value(iso_time(time)) : json::value(); };
  const JobState state = job.state_at(now);
  json::object out;
  out["id"] = to_hex(job.id);
  out["state"] = json_text(to_string(state));
  out["version"] = version_of(job);
  out["destination"] = json_text(job.route);
  out["key"] = json_text(job.key);
  out["ordered"] = job.ordered;
  out["attempts"] = job.attempts;
  out["last"] = job.attempts != 0 ? json::value(json_text(to_string(job.last().result))) : json::value();
  out["last_at"] = time_or_null(job.attempts != 0, job.last().at);
  out["why_dead"] = state == JobState::dead ? json::value(json_text(job.why_dead)) : json::value();
  out["received"] = iso_time(job.staged_at);
  out["next_attempt"] = time_or_null(state == JobState::waiting, job.due_at);
  out["ended"] = time_or_null(!job.open(), job.ended_at);
  out["remembered_until"] = iso_time(job.expires_at);
  return out;
}

json::object message_json(const Message& message, Bodies bodies) {
  json::object out{{"method", json_text(message.method)}, {"target", json_text(message.target)}};
  put_headers(out, message.headers, bodies);
  put_body(out, message.body, bodies);
  return out;
}

json::object audit_json(const AuditLine& line) {
  return {{"at", iso_time(line.at)},          {"who", json_text(line.who)},
          {"action", json_text(line.action)}, {"id", line.id.empty() ? json::value() : json::value(line.id)},
          {"result", json_text(line.result)}, {"reason", json_text(line.reason)},
          {"peer", json_text(line.peer)}};
}

std::string done_json(const RecordId& id, std::string_view action) {
  return json::serialize(json::object{{"id", to_hex(id)}, {"action", json_text(action)}, {"result", "done"}});
}

json::object response_json(const StoredResponse& response, Bodies bodies) {
  json::object out{{"status", response.status}, {"reason", json_text(response.reason)}};
  if (response.stream != StreamMark::none) out["stream"] = response.stream == StreamMark::whole ? "whole" : "begun";
  if (response.sealed) {
    // In place of what cannot be read without the key.
    out["sealed"] = json::object{{"key_id", response.sealed->key_id}};
    return out;
  }
  put_headers(out, response.headers, bodies);
  if (response.omitted) {
    out["omitted"] = {{"length", response.omitted->length},
                      {"sha256", to_hex(response.omitted->sha256)},
                      {"whole", response.omitted->whole}};
  } else {
    put_body(out, response.body, bodies);
  }
  return out;
}

std::string_view query_of(std::string_view target) {
  const std::size_t question = target.find('?');
  return question == std::string_view::npos ? std::string_view{} : target.substr(question + 1);
}

std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return {};
}

std::string decoded_query_value(std::string_view query, std::string_view name) {
  std::string decoded;
  const std::string_view text = query_value(query, name);
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const bool escape = text[at] == '%' && text.size() - at > 2;
    if (escape && std::from_chars(&text[at + 1], &text[at + 1] + 2, byte, 16).ptr == &text[at + 1] + 2) {
      decoded.push_back(static_cast<char>(byte));
      at += 2;
    } else {
      decoded.push_back(text[at]);
    }
  }
  return decoded;
}

Result<std::size_t> limit_of(std::string_view query, std::size_t usual) {
  const std::string_view text = query_value(query, "limit");
  if (text.empty()) return usual;
  std::size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc{} || end != text.data() + text.size() || limit == 0 || limit > kListMax)
    return invalid(fmt::format("limit is a whole number from 1 to {}", kListMax));
  return limit;
}

std::string_view text_member(const json::object& object, std::string_view name) {
  const json::value* const found = object.if_contains({name.data(), name.size()});
  if (found == nullptr || !found->is_string()) return {};
  return {found->get_string().data(), found->get_string().size()};
}

} // namespace oncekey
