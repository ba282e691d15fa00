#include "processor.h"

#include <string_view>
#include <thread>
#include <utility>

namespace rides {
namespace {

namespace json = boost::json;

std::string charge_id(std::int64_t number) {
  std::string digits = std::to_string(number);
  digits.insert(0, digits.size() < 6 ? 6 - digits.size() : 0, '0');
  return "ch_" + digits;
}

bool is_charge_order(std::string_view body) {
  boost::system::error_code error;
  const json::value order = json::parse({body.data(), body.size()}, error);
  if (error || !order.is_object()) return false;
  const json::value* const amount = order.as_object().if_contains("amount");
  const json::value* const customer = order.as_object().if_contains("customer");
  return amount != nullptr && amount->is_int64() && customer != nullptr && customer->is_string();
}

} // namespace

std::optional<HttpReply> Processor::answer(const HttpRequest& request) {
  if (request.path == "/charges" && request.method == "POST") return charge(request);
  if (request.path == "/charges" && request.method == "GET") return list();
  if (request.path == "/counts" && request.method == "GET") return show_counts();
  return error_reply(404, "not_found", "Try POST /charges, GET /charges or GET /counts.");
}

std::optional<HttpReply> Processor::charge(const HttpRequest& request) {
  const std::string key(request.headers.get("Idempotency-Key").value_or(""));
  if (key.empty()) return error_reply(400, "key_missing", "Send an Idempotency-Key.");
  if (!is_charge_order(request.body)) return error_reply(400, "not_an_order", "Send an amount and a customer.");
  if (auto refusal = refuse_key(key, request.body)) return refusal;

  const Fate fate = dice_.draw();
  std::this_thread::sleep_for(rules_.latency / 2);
  std::optional<HttpReply> reply;
  if (fate != Fate::error_before && fate != Fate::drop_before) reply = decide(key, request.body);
  std::this_thread::sleep_for(rules_.latency / 2);
  leave(key);

  const std::lock_guard lock(mutex_);
  switch (fate) {
    case Fate::served:
      return reply;
    case Fate::error_before:
    case Fate::error_after:
      ++counts_.errors;
      return error_reply(500, "internal", "Something went wrong here.");
    case Fate::drop_before:
    case Fate::drop_after:
      ++counts_.dropped;
      return std::nullopt;
  }
  return std::nullopt;
}

// Why this key cannot be worked on now; otherwise it is at work from here to leave().
std::optional<HttpReply> Processor::refuse_key(const std::string& key, const std::string& order) {
  const auto now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  ++counts_.requests;
  const auto known = keys_.find(key);
  if (known == keys_.end() || (!known->second.at_work && now - known->second.since > rules_.key_memory)) {
    keys_[key] = Remembered{order, now, true, std::nullopt};
    return std::nullopt;
  }
  if (known->second.order != order) return error_reply(400, "key_reused", "This key was used for something else.");
  if (known->second.at_work) {
    ++counts_.conflicts;
    return error_reply(409, "key_in_use", "A request with this key is being worked on.");
  }
  known->second.at_work = true;
  return std::nullopt;
}

// The answer that is remembered for the key, made now if there is none.
HttpReply Processor::decide(const std::string& key, const std::string& order) {
  const std::lock_guard lock(mutex_);
  Remembered& remembered = keys_.at(key);
  if (remembered.reply) {
    ++counts_.replayed;
    HttpReply again = *remembered.reply;
    again.headers.add("Idempotent-Replayed", "true");
    return again;
  }
  json::object charge = json::parse(order).as_object();
  if (std::string_view(charge.at("customer").as_string()).ends_with("declined")) {
    ++counts_.declined;
    remembered.reply = error_reply(402, "card_declined", "Your card was declined.");
  } else {
    ++counts_.charges;
    charge["id"] = charge_id(counts_.charges);
    remembered.reply = json_reply(201, json::serialize(charge));
    charge["key"] = key;
    charges_.push_back(std::move(charge));
  }
  return *remembered.reply;
}

void Processor::leave(const std::string& key) {
  const std::lock_guard lock(mutex_);
  Remembered& remembered = keys_.at(key);
  remembered.at_work = false;
  // Nothing was decided, so nothing is remembered.
  if (!remembered.reply) keys_.erase(key);
}

HttpReply Processor::list() const {
  const std::lock_guard lock(mutex_);
  return json_reply(200, json::serialize(json::object{{"count", counts_.charges}, {"charges", charges_}}));
}

HttpReply Processor::show_counts() const {
  const std::lock_guard lock(mutex_);
  return json_reply(200, json::serialize(json::object{{"requests", counts_.requests},
                                                      {"charges", counts_.charges},
                                                      {"declined", counts_.declined},
                                                      {"replayed", counts_.replayed},
                                                      {"conflicts", counts_.conflicts},
                                                      {"errors", counts_.errors},
                                                      {"dropped", counts_.dropped}}));
}

} // namespace rides
