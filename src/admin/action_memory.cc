#include "admin/action_memory.h"

#include "base/crypto.h"

#include <algorithm>

namespace oncekey {
namespace {

std::string name_of(std::string_view who, std::string_view key) { return sha256_hex({who, "\n", key}); }

} // namespace

std::list<ActionMemory::Remembered>::iterator ActionMemory::find(std::string_view who, std::string_view key) {
  const std::string name = name_of(who, key);
  return std::find_if(actions_.begin(), actions_.end(), [&](const Remembered& each) { return each.name == name; });
}

ActionMemory::Asked ActionMemory::begin(std::string_view who, std::string_view key, std::string_view request) {
  const std::string hash = sha256_hex({request});
  const auto known = find(who, key);
  if (known != actions_.end()) {
    if (known->request != hash) return Other{};
    if (!known->answer) return UnderWay{};
    return *known->answer;
  }
  if (actions_.size() >= kMost) {
    const auto ended =
        std::find_if(actions_.begin(), actions_.end(), [](const Remembered& each) { return each.answer.has_value(); });
    if (ended != actions_.end()) actions_.erase(ended);
  }
  actions_.push_back({name_of(who, key), hash, std::nullopt});
  return First{};
}

void ActionMemory::end(std::string_view who, std::string_view key, const PageAnswer& answer) {
  const auto known = find(who, key);
  if (known != actions_.end()) known->answer = answer;
}

void ActionMemory::forget(std::string_view who, std::string_view key) {
  const auto known = find(who, key);
  if (known != actions_.end()) actions_.erase(known);
}

} // namespace oncekey
