#include "store/redis/values.h"

#include "core/record_codec.h"

#include <gtest/gtest.h>

namespace oncekey::redis {
namespace {

void append_little_endian(std::string& out, std::uint64_t number, int bytes) {
  for (int i = 0; i < bytes; ++i) out.push_back(static_cast<char>(number >> 8 * i & 0xff));
}

// A completed record as the scripts write it.
std::string value_with(std::uint8_t format, std::uint8_t state, std::string_view answer) {
  ClaimRequest request;
  request.route = "/orders";
  request.key = "k";
  request.method = "POST";
  request.target = "/orders?x=1";
  request.fingerprint.bytes.fill('f');
  request.token.fill('t');
  std::string value;
  append_little_endian(value, format, 1);
  append_little_endian(value, state, 1);
  append_little_endian(value, 3, 1);
  for (const std::uint64_t number : {1500u, 1000u, 9000u, 2000u, 7u}) append_little_endian(value, number, 8);
  return value + encode_identity(request) + std::string(answer);
}

std::string encoded_answer() {
  StoredResponse response;
  response.status = 201;
  response.body = "body";
  std::string bytes;
  append_little_endian(bytes, 201, 2);
  encode_response(response, bytes);
  return bytes;
}

TEST(RedisRecordValue, EveryFieldComesBack) {
  const Result<Record> record = decode_value(value_with(1, 2, encoded_answer()));
  ASSERT_TRUE(record) << record.fault().message;
  EXPECT_EQ(record->state, RecordState::completed);
  EXPECT_TRUE(record->took_over);
  EXPECT_TRUE(record->rerun);
  EXPECT_EQ(record->fence, 7u);
  EXPECT_EQ(record->first_received, Time{Millis{1000}});
  EXPECT_EQ(record->expires_at, Time{Millis{9000}});
  EXPECT_EQ(record->lease_until, Time{Millis{2000}});
  EXPECT_EQ(record->settled_at, Time{Millis{1500}});
  EXPECT_EQ(record->fingerprint.bytes[31], 'f');
  EXPECT_EQ(record->claimed_by[15], 't');
  EXPECT_EQ(record->route + record->key + record->method + record->target, "/orderskPOST/orders?x=1");
  EXPECT_EQ(record->response->body, "body");
}

TEST(RedisRecordValue, NumbersAreWrittenAsTheyAreRead) {
  EXPECT_EQ(encode_number<std::uint64_t>(0x0102030405060708), "\x08\x07\x06\x05\x04\x03\x02\x01");
  EXPECT_EQ(encode_number<std::uint16_t>(201), std::string("\xc9\0", 2));
}

TEST(RedisRecordValue, ASummaryNeedsNoWholeResponse) {
  const std::string cut = value_with(1, 2, encoded_answer().substr(0, 5));
  const Result<Record> record = decode_value(cut, ReadResponse::summary);
  ASSERT_TRUE(record);
  EXPECT_EQ(record->response->status, 201);
  EXPECT_EQ(decode_value(cut).fault().kind, FaultKind::corrupt);
}

TEST(RedisRecordValue, AFrontIsCutUntilItHasTheStatus) {
  const std::string whole = value_with(1, 2, encoded_answer());
  const std::size_t texts_end = value_with(1, 2, "").size();
  for (std::size_t length = 95; length < whole.size(); ++length) {
    EXPECT_EQ(is_cut_in_texts(whole.substr(0, length)), length < texts_end + 2) << length << " bytes";
  }
  EXPECT_FALSE(is_cut_in_texts(value_with(1, 1, "")));
}

TEST(RedisRecordValue, DamageAndForeignValuesAreFaults) {
  const std::string whole = value_with(1, 1, "");
  ASSERT_TRUE(decode_value(whole));
  for (std::size_t length = 0; length < whole.size(); ++length) {
    EXPECT_FALSE(decode_value(whole.substr(0, length))) << length << " bytes";
  }
  EXPECT_EQ(decode_value(value_with(1, 0, "")).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(decode_value(value_with(1, 5, "")).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(decode_value(value_with(1, 2, "")).fault().kind, FaultKind::corrupt);
  EXPECT_EQ(decode_value(value_with(2, 1, "")).fault().kind, FaultKind::newer_format);
}

} // namespace
} // namespace oncekey::redis
