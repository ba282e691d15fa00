#include "admin/record_json.h"

#include "base/crypto.h"
#include "base/utf8.h"

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

namespace oncekey {
namespace {

namespace json = boost::json;

// Records hold what clients and upstreams sent, and JSON is UTF-8.
json::string text(std::string_view view) {
  if (is_utf8(view)) return json::string(view.data(), view.size());
  const std::string shown = as_utf8(view);
  return json::string(shown.data(), shown.size());
}

json::string hex_of(const TraceId& trace) {
  const std::string hex = hex_encode({static_cast<const char*>(static_cast<const void*>(trace.data())), trace.size()});
  return json::string(hex.data(), hex.size());
}

// Stands in place of what cannot be read without the key.
json::object sealed_json(const Sealed& sealed) { return {{"key_id", sealed.key_id}}; }

} // namespace

std::string iso_time(Time time) {
  const auto since_epoch = time.time_since_epoch();
  const auto seconds = std::chrono::floor<std::chrono::seconds>(since_epoch);
  const std::time_t whole = seconds.count();
  std::tm parts{};
  gmtime_r(&whole, &parts);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", parts, (since_epoch - seconds).count());
}

json::object record_json(const RecordId& id, const Record& record, Time now) {
  json::object out;
  out["id"] = to_hex(id);
  out["state"] = text(to_string(record.state));
  // The lease is over and no operator has decided yet; with `rerun` one has: the next retry executes.
  out["abandoned"] = record.left_abandoned(now);
  out["rerun"] = record.rerun;
  out["fence"] = record.fence;
  out["key"] = text(record.key);
  out["route"] = text(record.route);
  out["method"] = text(record.method);
  out["target"] = text(record.target);
  out["first_received"] = iso_time(record.first_received);
  out["lease_until"] =
      record.state == RecordState::in_progress ? json::value(iso_time(record.lease_until)) : json::value();
  out["expires_at"] = iso_time(record.expires_at);
  // When it got its answer, or since when its outcome is unknown.
  const json::value at(iso_time(record.settled_at));
  out["settled_at"] = record.state == RecordState::completed ? at : json::value();
  out["indeterminate_since"] = record.state == RecordState::indeterminate ? at : json::value();
  out["status"] = record.response ? json::value(record.response->status) : json::value();
  out["gateway"] = text(record.context.gateway);
  out["trace"] = record.context.trace ? json::value(hex_of(*record.context.trace)) : json::value();
  if (record.context.sealed) out["sealed"] = sealed_json(*record.context.sealed);
  return out;
}

std::string_view job_state(const Record& record, Time now) {
  if (record.state == RecordState::completed)
    return record.response && record.response->reason == kDropped ? "dropped" : "delivered";
  if (record.state == RecordState::indeterminate) return "dead";
  return record.resting || record.lease_over(now) ? "waiting" : "delivering";
}

json::object job_json(const RecordId& id, const Record& record, Time now) {
  const std::string_view state = job_state(record, now);
  const bool over = record.state != RecordState::in_progress;
  json::object out;
  out["id"] = to_hex(id);
  out["state"] = text(state);
  out["endpoint"] = text(record.route);
  out["key"] = text(record.key);
  out["method"] = text(record.method);
  out["target"] = text(record.target);
  out["ordered"] = record.ordered;
  // The message counts its attempts in its status, and says in its reason how the last one went.
  out["attempts"] = record.response ? record.response->status : 0;
  out["last"] =
      record.response && !record.response->reason.empty() ? json::value(text(record.response->reason)) : json::value();
  out["received"] = iso_time(record.first_received);
  out["next_attempt"] = state == "waiting" ? json::value(iso_time(record.lease_until)) : json::value();
  out["ended"] = over ? json::value(iso_time(record.settled_at)) : json::value();
  out["remembered_until"] = iso_time(record.expires_at);
  return out;
}

json::object response_json(const StoredResponse& response) {
  json::object out;
  out["status"] = response.status;
  out["reason"] = text(response.reason);
  json::array headers;
  for (std::size_t i = 0; i < response.headers.size(); ++i) {
    const Field field = response.headers[i];
    headers.push_back(json::array{text(field.name), text(field.value)});
  }
  if (response.stream != StreamMark::none) out["stream"] = response.stream == StreamMark::whole ? "whole" : "begun";
  if (response.sealed) {
    out["sealed"] = sealed_json(*response.sealed);
    return out;
  }
  out["headers"] = std::move(headers);
  if (response.omitted) {
    json::object omitted;
    omitted["length"] = response.omitted->length;
    omitted["sha256"] = to_hex(response.omitted->sha256);
    omitted["whole"] = response.omitted->whole;
    out["omitted"] = std::move(omitted);
  } else if (is_utf8(response.body)) {
    out["body"] = text(response.body);
    out["body_encoding"] = "utf-8";
  } else {
    out["body"] = base64_encode(response.body);
    out["body_encoding"] = "base64";
  }
  return out;
}

} // namespace oncekey
