#include "core/record_codec.h"

#include <gtest/gtest.h>
#include <xxhash.h>

#include <cstring>

namespace oncekey {
namespace {

Record full_record() {
  Record record;
  record.state = RecordState::completed;
  for (std::size_t i = 0; i < 32; ++i) record.fingerprint.bytes[i] = static_cast<std::uint8_t>(i);
  record.fence = 3;
  record.first_received = Time{Millis{1'700'000'000'000}};
  record.expires_at = Time{Millis{1'700'086'400'000}};
  record.lease_until = Time{Millis{1'700'000'060'000}};
  record.settled_at = Time{Millis{1'700'000'000'250}};
  record.took_over = true;
  record.route = "/v1/*";
  record.key = "order-42";
  record.method = "POST";
  record.target = "/v1/charges";
  record.context.gateway = "5eaf00d1";
  record.context.lease = Millis(60'000);
  TraceId& trace = record.context.trace.emplace();
  for (std::size_t i = 0; i < trace.size(); ++i) trace[i] = static_cast<std::uint8_t>(0xf0 + i);
  StoredResponse& response = record.response.emplace();
  response.status = 201;
  response.reason = "Created";
  response.headers.add("Content-Type", "application/json");
  response.body = std::string("{\"a\":\0}", 7);
  response.course = Course{.claimed_at = record.first_received,
                           .forwarded_at = record.first_received + Millis(1),
                           .renewals = 2,
                           .renewed_at = record.first_received + Millis(200)};
  return record;
}

std::shared_ptr<const Sealed> sealed(std::uint32_t key_id, std::string bytes) {
  Sealed part{key_id, 3, {}, std::move(bytes)};
  part.nonce.fill(0xee);
  return std::make_shared<const Sealed>(std::move(part));
}

Record sealed_record() {
  Record record = full_record();
  record.response->headers = {};
  record.response->body.clear();
  record.response->sealed = sealed(8, "ciphertext, and its tag");
  record.response->stream = StreamMark::whole;
  return record;
}

std::string encoded(const Record& record) {
  std::string bytes;
  encode_record(record, bytes);
  return bytes;
}

std::string hex(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    text += kDigits[static_cast<unsigned char>(c) >> 4];
    text += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return text;
}

// The bytes with a right checksum, whatever was done to what is before it.
std::string resealed(std::string bytes) {
  bytes.resize(bytes.size() - 8);
  const std::uint64_t checksum = XXH3_64bits(bytes.data(), bytes.size());
  char tail[8];
  std::memcpy(tail, &checksum, 8);
  return bytes.append(tail, 8);
}

TEST(RecordCodec, WhatIsEncodedIsDecoded) {
  const Record before = full_record();
  const Result<Record> after = decode_record(encoded(before));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->state, before.state);
  EXPECT_EQ(after->fingerprint, before.fingerprint);
  EXPECT_EQ(after->fence, before.fence);
  EXPECT_EQ(after->first_received, before.first_received);
  EXPECT_EQ(after->expires_at, before.expires_at);
  EXPECT_EQ(after->lease_until, before.lease_until);
  EXPECT_EQ(after->settled_at, before.settled_at);
  EXPECT_TRUE(after->took_over);
  EXPECT_FALSE(after->rerun);
  EXPECT_EQ(after->route + after->key + after->method + after->target, "/v1/*order-42POST/v1/charges");
  EXPECT_EQ(after->response->status, 201);
  EXPECT_EQ(after->response->reason, "Created");
  EXPECT_EQ(after->response->headers.lines(), before.response->headers.lines());
  EXPECT_EQ(after->response->body, before.response->body);
  EXPECT_FALSE(after->response->omitted);
  EXPECT_EQ(after->context.gateway, "5eaf00d1");
  EXPECT_EQ(after->context.trace, before.context.trace);
  EXPECT_EQ(after->context.lease, Millis(60'000));
  EXPECT_EQ(after->response->course, before.response->course);
  EXPECT_FALSE(after->response->sealed);
  EXPECT_EQ(after->response->stream, StreamMark::none);
}

TEST(RecordCodec, EveryFlagComesBackAlone) {
  const auto comes_back = [](auto change, auto look) {
    Record record = full_record();
    record.took_over = false;
    change(record);
    const Result<Record> after = decode_record(encoded(record));
    return after.ok() && look(*after);
  };
  EXPECT_TRUE(comes_back([](Record& r) { r.took_over = true; }, [](const Record& r) { return r.took_over; }));
  EXPECT_TRUE(comes_back([](Record& r) { r.rerun = true; }, [](const Record& r) { return r.rerun; }));
  EXPECT_TRUE(comes_back([](Record& r) { r.response.reset(); }, [](const Record& r) { return !r.response; }));
  EXPECT_TRUE(
      comes_back([](Record& r) { r.response->course.reset(); }, [](const Record& r) { return !r.response->course; }));
  EXPECT_TRUE(comes_back([](Record& r) { r.context.trace.reset(); }, [](const Record& r) { return !r.context.trace; }));
  EXPECT_TRUE(comes_back([](Record& r) { r.context.account.emplace().fill(0xac); },
                         [](const Record& r) { return r.context.account && r.context.account->back() == 0xac; }));
  for (const StreamMark mark : {StreamMark::none, StreamMark::begun, StreamMark::whole}) {
    EXPECT_TRUE(comes_back([&](Record& r) { r.response->stream = mark; },
                           [&](const Record& r) { return r.response->stream == mark; }));
  }
}

TEST(RecordCodec, SealedPartsComeBackAsTheyWere) {
  const Result<Record> after = decode_record(encoded(sealed_record()));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->response->status, 201);
  EXPECT_EQ(after->response->sealed->key_id, 8u);
  EXPECT_EQ(after->response->sealed->fence, 3u);
  EXPECT_EQ(after->response->sealed->nonce[11], 0xee);
  EXPECT_EQ(after->response->sealed->bytes, "ciphertext, and its tag");
  EXPECT_TRUE(after->response->body.empty());
}

TEST(RecordCodec, ASealedResponseWithoutItsBodyStillNamesItsKey) {
  const Result<Record> after = decode_record(encoded(sealed_record()), DecodeBody::no);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->response->sealed->key_id, 8u);
  EXPECT_TRUE(after->response->sealed->bytes.empty());
}

TEST(RecordCodec, AContextAloneComesBackAndRefusesEveryOtherLength) {
  std::string bytes;
  encode_context(full_record().context, bytes);
  const Result<ClaimContext> after = decode_context(bytes);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->gateway, "5eaf00d1");
  EXPECT_EQ(after->trace, full_record().context.trace);
  EXPECT_EQ(after->lease, Millis(60'000));
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_FALSE(decode_context(std::string_view(bytes).substr(0, length))) << length;
  }
  EXPECT_FALSE(decode_context(bytes + "x"));
  bytes[14] = 4;
  EXPECT_FALSE(decode_context(bytes)) << "unknown flag";
}

TEST(RecordCodec, AnOmittedBodyKeepsItsLengthAndHash) {
  Record before = full_record();
  before.rerun = true;
  before.response->body.clear();
  OmittedBody& omitted = before.response->omitted.emplace();
  omitted.length = 5'000'000'000;
  omitted.sha256.bytes.fill(0xab);
  omitted.whole = true;
  const Result<Record> after = decode_record(encoded(before));
  ASSERT_TRUE(after);
  EXPECT_TRUE(after->rerun);
  EXPECT_EQ(after->response->omitted->length, 5'000'000'000u);
  EXPECT_EQ(after->response->omitted->sha256, omitted.sha256);
  EXPECT_TRUE(after->response->omitted->whole);
}

TEST(RecordCodec, WithoutTheBodyAllElseIsThere) {
  const Result<Record> after = decode_record(encoded(full_record()), DecodeBody::no);
  ASSERT_TRUE(after);
  EXPECT_EQ(after->response->status, 201);
  EXPECT_TRUE(after->response->headers.empty());
  EXPECT_TRUE(after->response->body.empty());
  EXPECT_EQ(after->target, "/v1/charges");
}

TEST(RecordCodec, TheBytesAreWhatTheDocumentSays) {
  EXPECT_EQ(hex(encoded(full_record())),
            "01"               // format
            "02"               // state: completed
            "0501"             // flags: took over, a response follows, its course
            "0300000000000000" // fence
            "0068e5cf8b010000" // first received
            "00c40bd58b010000" // expires at
            "6052e6cf8b010000" // lease until
            "fa68e5cf8b010000" // settled at
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f"         // fingerprint
            "05002f76312f2a"                                                           // route
            "08006f726465722d3432"                                                     // key
            "0400504f5354"                                                             // method
            "0b002f76312f63686172676573"                                               // target
            "08003565616630306431"                                                     // context: the gateway's name
            "60ea0000"                                                                 // context: the lease
            "01f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff"                                       // context: a trace follows
            "c900"                                                                     // status
            "070043726561746564"                                                       // reason
            "0068e5cf8b010000"                                                         // course: claimed at
            "0168e5cf8b010000"                                                         // course: forwarded at
            "02000000"                                                                 // course: renewals
            "c868e5cf8b010000"                                                         // course: renewed at
            "20000000436f6e74656e742d547970653a206170706c69636174696f6e2f6a736f6e0d0a" // headers
            "070000007b2261223a007d"                                                   // body
            "b5ea2800bf9adcbd");                                                       // checksum
}

TEST(RecordCodec, EncodingAppends) {
  std::string bytes = "before";
  encode_record(full_record(), bytes);
  EXPECT_EQ(bytes, "before" + encoded(full_record()));
}

TEST(RecordCodec, ATextForPeopleIsCutAtItsLimit) {
  Record record = full_record();
  record.target.assign(kTextBytesMax + 10, 't');
  const Result<Record> after = decode_record(encoded(record));
  ASSERT_TRUE(after);
  EXPECT_EQ(after->target.size(), kTextBytesMax);
}

// What must be refused.

TEST(RecordCodec, EveryTruncationIsRefused) {
  for (const std::string& bytes : {encoded(full_record()), encoded(sealed_record())})
    for (std::size_t length = 0; length < bytes.size(); ++length) {
      const Result<Record> record = decode_record(std::string_view(bytes).substr(0, length));
      ASSERT_FALSE(record) << "cut at " << length;
      EXPECT_EQ(record.fault().kind, FaultKind::corrupt);
      if (length > 8) {
        ASSERT_FALSE(decode_record(resealed(bytes.substr(0, length)))) << "with a right checksum " << length;
      }
    }
}

TEST(RecordCodec, EveryFlippedBitIsRefused) {
  std::string bytes = encoded(full_record());
  for (std::size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    const char mask = static_cast<char>(1 << (bit % 8));
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
    const Result<Record> record = decode_record(bytes);
    ASSERT_FALSE(record) << "bit " << bit;
    EXPECT_EQ(record.fault().kind, FaultKind::corrupt);
    bytes[bit / 8] = static_cast<char>(bytes[bit / 8] ^ mask);
  }
}

TEST(RecordCodec, ANewerFormatIsRefusedNamingBothVersions) {
  std::string bytes = encoded(full_record());
  bytes[0] = 9;
  const Result<Record> record = decode_record(resealed(bytes));
  ASSERT_FALSE(record);
  EXPECT_EQ(record.fault().kind, FaultKind::newer_format);
  EXPECT_NE(record.fault().message.find("has format 9"), std::string::npos);
  EXPECT_NE(record.fault().message.find("up to 1"), std::string::npos);
}

TEST(RecordCodec, AWrongShapeUnderARightChecksumIsRefused) {
  const std::string good = encoded(full_record());
  const auto with_byte = [&](std::size_t at, int value) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(value);
    return decode_record(resealed(bytes));
  };
  EXPECT_FALSE(with_byte(0, 0)) << "format zero";
  EXPECT_FALSE(with_byte(1, 0)) << "no such state";
  EXPECT_FALSE(with_byte(1, 4)) << "no such state";
  EXPECT_FALSE(with_byte(2, 0x85)) << "a sealed response that is none";
  EXPECT_FALSE(with_byte(2, 1)) << "a response that no flag announces";
  for (int flag = 0x08; flag <= 0x80; flag <<= 1) EXPECT_FALSE(with_byte(3, flag)) << "unknown flag " << flag;
  EXPECT_FALSE(with_byte(76, 200)) << "a length that runs past the end";
}

// Any bytes, even with a right checksum, give a record or a fault, never a crash: run under the sanitizers.
TEST(RecordCodec, ArbitraryBytesUnderARightChecksumAreNeverReadPastTheirEnd) {
  std::uint64_t state = 42;
  const auto next = [&state] { return state = state * 6364136223846793005u + 1442695040888963407u, state >> 33; };
  const std::string plain = encoded(full_record());
  const std::string sealed = encoded(sealed_record());
  std::size_t refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    const std::string& good = round % 2 == 0 ? plain : sealed;
    std::string bytes = good.substr(0, 9 + next() % (good.size() - 8));
    for (std::uint64_t flips = 1 + next() % 4; flips > 0; --flips) {
      bytes[next() % bytes.size()] = static_cast<char>(next());
    }
    refused += decode_record(resealed(bytes)) ? 0 : 1;
  }
  EXPECT_GT(refused, 10'000u);
}

TEST(RecordCodec, TheFrontOfAResponseTellsItsStatus) {
  StoredResponse response;
  response.status = 402;
  response.body = std::string(1000, 'x');
  std::string bytes;
  encode_response(response, bytes);
  EXPECT_EQ(response_at_front(std::string_view(bytes).substr(0, kResponseFrontBytes)).status, 402);
  EXPECT_EQ(response_at_front(std::string_view(bytes).substr(0, kResponseFrontBytes)).reason, response.reason);
  EXPECT_EQ(response_at_front(std::string_view(bytes).substr(0, 6)).status, 402);
  EXPECT_EQ(response_at_front(std::string_view(bytes).substr(0, 6)).reason, "");
  EXPECT_EQ(response_at_front(std::string_view(bytes).substr(0, 4)).status, 0);
}

TEST(RecordCodec, AResponseAloneComesBackAndRefusesDamage) {
  StoredResponse before = *full_record().response;
  before.omitted = OmittedBody{9'000'000, {}, true};
  std::string bytes;
  encode_response(before, bytes);
  const Result<StoredResponse> after = decode_response(bytes);
  ASSERT_TRUE(after) << after.fault().message;
  EXPECT_EQ(after->status, before.status);
  EXPECT_EQ(after->reason, before.reason);
  EXPECT_EQ(after->headers.lines(), before.headers.lines());
  EXPECT_EQ(after->body, before.body);
  EXPECT_EQ(after->omitted->length, 9'000'000u);
  EXPECT_TRUE(after->omitted->whole);
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    EXPECT_FALSE(decode_response(damaged)) << at;
  }
  std::string unannounced = bytes;
  unannounced[1] = 0;
  EXPECT_FALSE(decode_response(resealed(unannounced)));
}

} // namespace
} // namespace oncekey
