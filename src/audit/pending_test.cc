#include "audit/pending.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

PendingAction action(const std::string& reason) {
  return {"2026-01-02T03:04:05.678Z", "command line (root@eu-1)", "accept_loss", "done", reason};
}

TEST(PendingActions, WhatIsEncodedIsDecoded) {
  const std::vector<PendingAction> actions{action("quote \" and\nline"), action("")};
  EXPECT_EQ(*decode_pending(encode_pending(actions)), actions);
  EXPECT_EQ(encode_pending({}), "");
  EXPECT_TRUE(decode_pending("")->empty());
}

TEST(PendingActions, TheNewestAreKept) {
  std::vector<PendingAction> actions;
  for (std::size_t i = 0; i < kPendingMax + 5; ++i) actions.push_back(action(std::to_string(i)));
  const auto kept = decode_pending(encode_pending(actions));
  ASSERT_EQ(kept->size(), kPendingMax);
  EXPECT_EQ(kept->front().reason, "5");
}

TEST(PendingActions, AnotherTextIsAFault) {
  for (const std::string_view text : {"{}", "{}\n", "x\n", "[1]\n", "{\"time\":1}\n"})
    EXPECT_EQ(decode_pending(text).fault().kind, FaultKind::corrupt) << text;
}

} // namespace
} // namespace oncekey
