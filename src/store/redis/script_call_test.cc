#include "store/redis/script_call.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

OwnedReply reply_from(std::string_view bytes) {
  ReplyReader reader;
  reader.feed(bytes);
  Result<std::optional<OwnedReply>> reply = reader.next();
  return **std::move(reply);
}

TEST(RedisBatch, AReplyHasAnAnswerForEachCall) {
  const OwnedReply reply = reply_from("*4\r\n:1700\r\n:9\r\n*2\r\n:1\r\n:0\r\n-OOM full\r\n");
  const Result<BatchReply> batch = parse_batch_reply(reply.look(), 2);
  ASSERT_TRUE(batch);
  EXPECT_EQ(batch->now, Time{Millis{1700}});
  EXPECT_EQ(batch->tick, 9u);
  EXPECT_EQ(batch->answer(0)[0].integer(), 1);
  EXPECT_TRUE(batch->answer(1).is_error());
}

TEST(RedisBatch, AReplyOfAnotherShapeLeavesTheOutcomeUnknown) {
  for (const std::string_view bytes :
       {"+OK\r\n", "*2\r\n:1\r\n:0\r\n", "*3\r\n$1\r\n1\r\n:0\r\n:1\r\n", "*3\r\n:1\r\n$1\r\nx\r\n:1\r\n", "$-1\r\n"}) {
    const OwnedReply reply = reply_from(bytes);
    const Result<BatchReply> batch = parse_batch_reply(reply.look(), 1);
    ASSERT_FALSE(batch) << bytes;
    EXPECT_EQ(batch.fault().kind, FaultKind::timeout);
  }
}

TEST(RedisBatch, AForeignMarkerIsTold) {
  const OwnedReply gone = reply_from("*4\r\n$4\r\nLOST\r\n$-1\r\n$-1\r\n$-1\r\n");
  EXPECT_TRUE(parse_batch_reply(gone.look(), 3)->lost);
  EXPECT_FALSE(parse_batch_reply(gone.look(), 3)->met);
  const OwnedReply other = reply_from("*4\r\n$4\r\nLOST\r\n$1\r\ng\r\n$1\r\n*\r\n$2\r\n17\r\n");
  const Result<BatchReply> batch = parse_batch_reply(other.look(), 3);
  EXPECT_TRUE(batch->lost);
  EXPECT_EQ(batch->met->generation, "g");
  EXPECT_EQ(batch->met->replaces, "*");
  EXPECT_EQ(batch->met->tick, 17u);
}

TEST(RedisBatch, KeysComeBeforeArguments) {
  const KeyNames names("p", 1);
  std::vector<CallPtr> calls;
  calls.push_back(std::make_unique<ScriptCall>());
  calls[0]->add("L", 5u);
  const std::string sent = batch_command({names, "sha", "gen", 17, "", true}, 0, calls);
  EXPECT_EQ(sent, command({"EVALSHA", "sha", "2", "p:{0}:marker", names.record({}), "gen", "17", "", "1", "p:settled",
                           "1", "L", "5"}));
}

TEST(RedisBatch, WhatJobsTouchIsNamedForTheSakeOfACluster) {
  const KeyNames names("p", 1);
  std::vector<CallPtr> calls;
  calls.push_back(call_for(Script::jobs, {}, "T"));
  calls[0]->job_route = "hook /h";
  const std::string sent = batch_command({names, "sha", "gen", 0, "", true}, 0, calls);
  EXPECT_EQ(sent, command({"EVALSHA", "sha", "8", "p:{0}:marker", names.job({}), names.message({}), "p:{0}:jobs",
                           "p:{0}:job_counts", "p:{0}:job_expiry", "p:{0}:due:hook /h", "p:{0}:order:0000000000000000",
                           "gen", "0", "", "1", "p:settled", "1", "T"}));
}

TEST(KeyNames, NobodyOfAPartitionIsInIt) {
  const KeyNames names("p", 1024);
  for (std::uint32_t partition = 0; partition < names.partitions(); ++partition) {
    EXPECT_EQ(names.partition_of(names.first_id_in(partition)), partition);
  }
}

} // namespace
} // namespace oncekey::redis
