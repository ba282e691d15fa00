#include "core/record_codec.h"

#include "core/codec_parts.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

StoredJob full_job() {
  StoredJob job;
  job.id.bytes[5] = 9;
  for (std::size_t i = 0; i < 32; ++i) job.fingerprint.bytes[i] = static_cast<std::uint8_t>(i);
  job.state = JobState::dead;
  job.ordered = true;
  job.fence = 3;
  job.attempts = 70'000;
  job.staged_at = Time{Millis{1'700'000'000'000}};
  job.due_at = Time{Millis{1'700'000'060'000}};
  job.ended_at = Time{Millis{1'700'000'060'250}};
  job.expires_at = Time{Millis{1'700'086'400'000}};
  job.route = "hook /hooks/stripe";
  job.key = "evt_1";
  job.tried = {{Time{Millis{1'700'000'030'100}}, "eu-1", {0, ""}},
               {Time{Millis{1'700'000'060'200}}, "eu-2", {503, "Service Unavailable"}}};
  job.why_dead = "not delivered within 72h";
  return job;
}

Message full_message() {
  Message message;
  message.method = "PUT";
  message.target = "http://127.0.0.1:9090/events";
  message.headers.add("Content-Type", "application/json");
  message.body = std::string("a\0b", 3);
  return message;
}

std::string encoded(const StoredJob& job) {
  std::string bytes;
  encode_job(job, bytes);
  return bytes;
}
std::string encoded(const Message& message) {
  std::string bytes;
  encode_message(message, bytes);
  return bytes;
}

TEST(JobCodec, WhatIsEncodedIsDecoded) {
  const StoredJob before = full_job();
  const Result<StoredJob> after = decode_job(before.id, encoded(before));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->id, before.id);
  EXPECT_EQ(after->fingerprint, before.fingerprint);
  EXPECT_EQ(after->state, before.state);
  EXPECT_EQ(after->ordered, before.ordered);
  EXPECT_EQ(after->message_kept, before.message_kept);
  EXPECT_EQ(after->fence, before.fence);
  EXPECT_EQ(after->attempts, before.attempts);
  EXPECT_EQ(after->staged_at, before.staged_at);
  EXPECT_EQ(after->due_at, before.due_at);
  EXPECT_EQ(after->ended_at, before.ended_at);
  EXPECT_EQ(after->expires_at, before.expires_at);
  EXPECT_EQ(after->route + after->key, before.route + before.key);
  ASSERT_EQ(after->tried.size(), 2u);
  EXPECT_EQ(after->tried[0].at, before.tried[0].at);
  EXPECT_EQ(after->tried[0].gateway + after->tried[1].gateway, "eu-1eu-2");
  EXPECT_EQ(to_string(after->tried[0].result), "");
  EXPECT_EQ(to_string(after->last().result), "503 Service Unavailable");
  EXPECT_EQ(after->why_dead, before.why_dead);
}

TEST(JobCodec, AMessageIsDecodedAsItWas) {
  const Message before = full_message();
  const Result<Message> after = decode_message(encoded(before));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->method, before.method);
  EXPECT_EQ(after->target, before.target);
  EXPECT_EQ(after->headers.lines(), before.headers.lines());
  EXPECT_EQ(after->body, before.body);
}

TEST(JobCodec, ASealedMessageIsDecodedAsItWas) {
  Message before;
  before.sealed = std::make_shared<const Sealed>(Sealed{7, 3, {}, "ciphertext and its tag"});
  std::string bytes = encoded(before);
  const Result<Message> after = decode_message(bytes);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->sealed->key_id, 7u);
  EXPECT_EQ(after->sealed->fence, 3u);
  EXPECT_EQ(after->sealed->bytes, "ciphertext and its tag");
  bytes.resize(bytes.size() - 8);
  bytes[1] = 2;
  codec::put_checksum(bytes, 0);
  EXPECT_FALSE(decode_message(bytes)) << "an unknown flag";
}

TEST(JobCodec, EveryBrokenByteIsFound) {
  const std::string job = encoded(full_job());
  const std::string message = encoded(full_message());
  for (std::size_t at = 0; at < job.size(); ++at) {
    std::string broken = job;
    broken[at] = static_cast<char>(broken[at] ^ 0x20);
    EXPECT_FALSE(decode_job(RecordId{}, broken)) << at;
    EXPECT_FALSE(decode_job(RecordId{}, job.substr(0, at))) << at;
  }
  for (std::size_t at = 0; at < message.size(); ++at) {
    std::string broken = message;
    broken[at] = static_cast<char>(broken[at] ^ 0x20);
    EXPECT_FALSE(decode_message(broken)) << at;
    EXPECT_FALSE(decode_message(message.substr(0, at))) << at;
  }
}

TEST(JobCodec, UnknownStatesFlagsAndFormatsAreRefused) {
  const auto with = [](std::size_t at, std::uint8_t value) {
    std::string bytes = encoded(full_job());
    bytes.resize(bytes.size() - 8);
    bytes[at] = static_cast<char>(value);
    codec::put_checksum(bytes, 0);
    return decode_job(RecordId{}, bytes);
  };
  EXPECT_TRUE(with(1, 1));
  EXPECT_EQ(with(1, 0).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(with(1, 6).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(with(2, 4).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(with(0, kJobFormat + 1).fault().kind, FaultKind::newer_format);
}

} // namespace
} // namespace oncekey
