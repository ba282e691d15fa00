#include "gateway/compression.h"

#include <gtest/gtest.h>

#include <zlib.h>

namespace oncekey {
namespace {

Headers with(std::initializer_list<Field> fields) {
  Headers headers;
  for (const Field& field : fields) headers.add(field.name, field.value);
  return headers;
}

bool accepts(std::string_view value) { return accepts_gzip(with({{"Accept-Encoding", value}})); }

TEST(AcceptsGzip, GoesByTheWeights) {
  for (const std::string_view yes : {"gzip", "GZIP", "x-gzip", "deflate, gzip", "gzip;q=0.001", "gzip; q=1.000", "*",
                                     "*;q=0.1", "identity;q=0.5, gzip", "br;q=1, gzip;q=0.8", "identity;q=0, *"}) {
    EXPECT_TRUE(accepts(yes)) << yes;
  }
  for (const std::string_view no :
       {"", "identity", "br", "gzip;q=0", "gzip;q=0.000", "*, gzip;q=0", "*;q=0", "identity, gzip;q=0.5", "gzip;q=-1",
        "gzip;q=2", "gzip;q=1.5", "gzip;q=0.5x", "gzip;q=0.1234", "gzip;level=1", "gzipped", "gzip;q="}) {
    EXPECT_FALSE(accepts(no)) << no;
  }
  EXPECT_FALSE(accepts_gzip({})) << "a client that says nothing gets what the upstream sent";
  EXPECT_TRUE(accepts_gzip(with({{"Accept-Encoding", "br"}, {"accept-encoding", "gzip"}})));
  EXPECT_FALSE(accepts_gzip(with({{"Accept-Encoding", "gzip"}, {"Cache-Control", "max-age=0, no-transform"}})));
}

TEST(MayCompress, TextOfOneKibibyteAndMore) {
  for (const std::string_view type :
       {"text/html; charset=utf-8", "application/json", "Application/JSON;v=1", "application/problem+json",
        "image/svg+xml", "application/javascript", "application/xml"}) {
    EXPECT_TRUE(may_compress(200, with({{"Content-Type", type}}), kCompressFrom)) << type;
    EXPECT_FALSE(may_compress(200, with({{"Content-Type", type}}), kCompressFrom - 1)) << type;
  }
  for (const std::string_view type : {"image/png", "application/octet-stream", "application/pdf", ""}) {
    EXPECT_FALSE(may_compress(200, with({{"Content-Type", type}}), 5000)) << type;
  }
  EXPECT_FALSE(may_compress(200, {}, 5000));
}

TEST(MayCompress, NotWhatWouldBecomeWrong) {
  for (const int status : {204, 205, 206, 304}) {
    EXPECT_FALSE(may_compress(status, with({{"Content-Type", "text/plain"}}), 5000)) << status;
  }
  const Field others[] = {{"Content-Encoding", "br"},
                          {"Content-Encoding", "identity"},
                          {"Content-Range", "bytes 0-9/9"},
                          {"Cache-Control", "max-age=1, No-Transform"},
                          {"Content-Digest", "sha-256=:x:"},
                          {"Digest", "md5=x"},
                          {"Content-MD5", "x"}};
  for (const Field& field : others) {
    EXPECT_FALSE(may_compress(200, with({{"Content-Type", "text/plain"}, field}), 5000)) << field.name;
  }
}

TEST(Compressed, AStrongTagBecomesWeakAndTheRestStays) {
  const Headers headers = headers_of_compressed(with({{"ETag", "\"v1\""}, {"X-A", "1"}, {"Content-Length", "9"}}));
  EXPECT_EQ(headers.get("ETag"), "W/\"v1\"");
  EXPECT_EQ(headers.get("X-A"), "1");
  EXPECT_EQ(headers.get("Content-Encoding"), "gzip");
  EXPECT_FALSE(headers.has("Content-Length"));
  EXPECT_EQ(headers_of_compressed(with({{"ETag", "W/\"v1\""}})).get("ETag"), "W/\"v1\"");
}

TEST(Compressed, VaryIsAddedOnce) {
  Headers headers;
  add_vary(headers);
  add_vary(headers);
  EXPECT_EQ(headers.count("Vary"), 1u);
  for (const std::string_view there : {"*", "Origin, accept-encoding"}) {
    Headers had = with({{"Vary", there}});
    add_vary(had);
    EXPECT_EQ(had.count("Vary"), 1u) << there;
  }
}

std::string compressed(const std::string& body) {
  Loop loop;
  std::string out;
  bool done = false;
  const auto run = [&]() -> Task<void> {
    out = co_await gzip(loop, body);
    done = true;
  };
  spawn(run());
  loop.run_until([&] { return done; });
  return out;
}

std::string decompressed(const std::string& bytes, std::size_t most) {
  std::string out(most, '\0');
  z_stream stream{};
  EXPECT_EQ(inflateInit2(&stream, 15 + 16), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(inflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  inflateEnd(&stream);
  return out;
}

TEST(Gzip, ComesBackAsItWas) {
  for (const std::size_t size : {kCompressFrom, kCompressAtOnce, kCompressAtOnce + 1, 5 * kCompressAtOnce + 17}) {
    std::string body;
    for (std::size_t i = 0; body.size() < size; ++i) body += "line " + std::to_string(i) + "\n";
    body.resize(size);
    const std::string bytes = compressed(body);
    EXPECT_LT(bytes.size(), body.size());
    EXPECT_EQ(decompressed(bytes, size + 1), body) << size;
  }
}

TEST(Gzip, WhatDoesNotGetShorterIsLeftAlone) {
  std::string noise;
  std::uint64_t state = 1;
  for (std::size_t i = 0; i < 3 * kCompressAtOnce; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    noise.push_back(static_cast<char>(state >> 56));
  }
  EXPECT_EQ(compressed(noise), "");
}

} // namespace
} // namespace oncekey
