#include "audit/pending.h"

#include "base/json_text.h"

#include <boost/json.hpp>

#include <algorithm>
#include <array>
#include <utility>

namespace oncekey {
namespace {

namespace json = boost::json;

using Member = std::pair<std::string_view, std::string PendingAction::*>;
constexpr std::array<Member, 5> kMembers{{{"time", &PendingAction::time},
                                          {"who", &PendingAction::who},
                                          {"action", &PendingAction::action},
                                          {"result", &PendingAction::result},
                                          {"reason", &PendingAction::reason}}};

} // namespace

std::string encode_pending(const std::vector<PendingAction>& actions) {
  std::string text;
  const std::size_t left_out = actions.size() - std::min(actions.size(), kPendingMax);
  for (std::size_t at = left_out; at < actions.size(); ++at) {
    char before = '{';
    for (const auto& [name, member] : kMembers) {
      text.append(1, std::exchange(before, ',')).append("\"").append(name).append("\":");
      append_json_string(text, actions[at].*member);
    }
    text += "}\n";
  }
  return text;
}

Result<std::vector<PendingAction>> decode_pending(std::string_view text) {
  const Fault bad = corrupt("the actions that the store keeps for the audit log cannot be read");
  std::vector<PendingAction> actions;
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    if (end == std::string_view::npos) return bad;
    json::error_code error;
    const json::value line = json::parse(json::string_view(text.data(), end), error);
    if (error || !line.is_object()) return bad;
    PendingAction& action = actions.emplace_back();
    for (const auto& [name, member] : kMembers) {
      const json::value* const value = line.get_object().if_contains(json::string_view(name.data(), name.size()));
      if (value == nullptr || !value->is_string()) return bad;
      action.*member = std::string(value->get_string());
    }
    text.remove_prefix(end + 1);
  }
  return actions;
}

} // namespace oncekey
