// Bucket: a stretch of time that records expire in together.
//
// Expiry costs nothing per record: a record is kept with all others that expire in the same stretch, and when the
// stretch is over the whole bucket is dropped. The width follows the retention: a quarter of it, rounded up to a power
// of two of milliseconds, so a quarter to half of it (24 h: 9.3 h). A lookup has few buckets to ask, and a record is
// kept for at most a width longer than needed, for half a width on average.
//
// A record's bucket follows from its expiry and retention (bucket_of). A record whose expiry is put off, because its
// lease was renewed past it, moves to a later bucket of the same width (bucket_outliving).
#pragma once

#include <oncekey/time.h>

#include <charconv>
#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>

namespace oncekey {

// Creating a bucket costs a few syncs of RocksDB's manifest; more than one of them a second would be felt.
inline constexpr int kNarrowestBucketLog2 = 10;
// 2^40 ms are 34 years: wider than any retention, so that widths fit every computation below.
inline constexpr int kWidestBucketLog2 = 40;

struct BucketId {
  int width_log2 = 0;
  std::int64_t index = 0;

  Time begin() const { return Time{Millis{index << width_log2}}; }
  // The first instant at which everything in it has expired.
  Time end() const { return Time{Millis{(index + 1) << width_log2}}; }
  Millis width() const { return Millis{std::int64_t{1} << width_log2}; }

  friend auto operator<=>(const BucketId&, const BucketId&) = default;
};

inline int bucket_width_log2(Millis retention) {
  int log2 = kNarrowestBucketLog2;
  while (log2 < kWidestBucketLog2 && (std::int64_t{1} << log2) < retention.count() / 4) ++log2;
  return log2;
}

inline BucketId bucket_of(Time expires_at, Millis retention) {
  const int log2 = bucket_width_log2(retention);
  return {log2, expires_at.time_since_epoch().count() >> log2};
}

// The bucket of a record whose expiry has been put off: the present one, or a later one of the same width.
inline BucketId bucket_outliving(const BucketId& bucket, Time expires_at) {
  if (expires_at < bucket.end()) return bucket;
  return {bucket.width_log2, expires_at.time_since_epoch().count() >> bucket.width_log2};
}

// "bucket-25-53192": the width's exponent and the index.
inline std::string to_string(const BucketId& id) {
  return "bucket-" + std::to_string(id.width_log2) + "-" + std::to_string(id.index);
}
// Nothing if the text is not such a name.
inline std::optional<BucketId> bucket_from_name(std::string_view name) {
  constexpr std::string_view kPrefix = "bucket-";
  if (!name.starts_with(kPrefix)) return std::nullopt;
  BucketId id;
  const char* const end = name.data() + name.size();
  const auto [dash, width_error] = std::from_chars(name.data() + kPrefix.size(), end, id.width_log2);
  if (width_error != std::errc{} || dash == end || *dash != '-') return std::nullopt;
  const auto [rest, index_error] = std::from_chars(dash + 1, end, id.index);
  if (index_error != std::errc{} || rest != end) return std::nullopt;
  if (id.width_log2 < kNarrowestBucketLog2 || id.width_log2 > kWidestBucketLog2) return std::nullopt;
  return id;
}

} // namespace oncekey
