#include "core/settle.h"

#include "../../tests/tables/decision_table.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

std::vector<std::string> outcomes() {
  std::vector<std::string> names = {"not_sent", "unknown"};
  for (const int status : {200, 201, 202, 204, 301, 303, 304, 400, 401, 402, 403, 404, 405, 408, 409, 410,
                           412, 413, 422, 423, 424, 425, 428, 429, 451, 500, 501, 502, 503, 504, 599}) {
    names.push_back(std::to_string(status));
  }
  for (const std::string status : {"000", "200", "201", "400", "401", "409", "429", "500", "503"})
    names.push_back("unusable_" + status);
  for (const std::string status : {"200", "400", "500"}) {
    for (const std::string what : {"not_executed_", "should_retry_", "should_not_retry_"})
      names.push_back(what + status);
  }
  return names;
}

Settlement settled(const Policy& policy, const std::string& outcome) {
  if (outcome == "not_sent") return settle(policy, NotSent{});
  if (outcome == "unknown") return settle(policy, Unknown{});
  Headers headers;
  headers.add("Content-Type", "application/json");
  if (outcome.starts_with("not_executed")) headers.add("oncekey-outcome", "Not-Executed");
  if (outcome.starts_with("should_retry")) headers.add("stripe-should-retry", "true");
  if (outcome.starts_with("should_not_retry")) headers.add("Stripe-Should-Retry", "false");
  const int status = std::stoi(outcome.substr(outcome.size() - 3));
  if (outcome.starts_with("unusable")) return settle(policy, Unusable{status, headers});
  return settle(policy, Answered{status, headers});
}

TEST(Settle, EveryCellOfTheTable) {
  DecisionTable table("settle.txt", 2);
  for (const std::string& name : policy_names()) {
    const Policy policy = *policy_by_name(name);
    for (const std::string& outcome : outcomes()) {
      table.expect({name, outcome}, std::string(to_string(settled(policy, outcome))));
    }
  }
  table.expect_every_line_was_a_cell();
}

TEST(Settle, AnUnknownWordOfTheUpstreamChangesNothing) {
  Headers headers;
  headers.add("Oncekey-Outcome", "executed");
  EXPECT_EQ(settle(*policy_by_name("classic"), Answered{200, headers}), Settlement::keep);
}

TEST(Settle, AnUnusableBodyBehindASoundHeadIsSettledByTheHead) {
  Headers headers;
  headers.add("Oncekey-Outcome", "not-executed");
  EXPECT_EQ(settle(*policy_by_name("classic"), Unusable{200, headers}), Settlement::release);
}

TEST(Settle, ARouteMayKeepOtherStatuses) {
  Policy policy = *policy_by_name("classic");
  policy.kept = *StatusSet::parse("200-299");
  const Headers none;
  EXPECT_EQ(settle(policy, Answered{404, none}), Settlement::release);
  policy.on_unknown = OnUnknown::hold;
  EXPECT_EQ(settle(policy, Unknown{}), Settlement::hold);
}

} // namespace
} // namespace oncekey
