#include "core/rate_keeper.h"

#include "base/faults.h"

#include <algorithm>
#include <charconv>
#include <cmath>

namespace oncekey {
namespace {

// More than a gateway can serve: such a rate would not limit anything.
constexpr double kMostPerSecond = 1e6;

std::chrono::milliseconds time_for(double tokens, const Rate& rate) {
  return std::chrono::milliseconds(
      static_cast<std::int64_t>(std::ceil(std::max(0.0, tokens) / rate.per_second * 1000)));
}

double seconds_of(std::string_view unit) {
  if (unit == "s") return 1;
  if (unit == "m") return 60;
  if (unit == "h") return 3600;
  return 0;
}

} // namespace

Result<double> parse_rate(std::string_view text) {
  double count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  const std::string_view rest = text.substr(static_cast<std::size_t>(end - text.data()));
  const double unit = rest.starts_with('/') ? seconds_of(rest.substr(1)) : 0;
  const double per_second = unit > 0 ? count / unit : 0;
  if (error != std::errc{} || !std::isfinite(per_second) || per_second <= 0 || per_second > kMostPerSecond)
    return invalid("\"{}\" is not a rate: write a number of requests and /s, /m or /h, as in \"100/s\"", text);
  return per_second;
}

double TokenBucket::tokens_at(const Rate& rate, Instant now) const {
  if (!used_) return rate.burst;
  const double passed = std::max(0.0, std::chrono::duration<double>(now - at_).count());
  return std::min(rate.burst, tokens_ + passed * rate.per_second);
}

Taken TokenBucket::take(const Rate& rate, Instant now) {
  const double before = tokens_at(rate, now);
  const bool allowed = before >= 1;
  tokens_ = allowed ? before - 1 : before;
  at_ = used_ ? std::max(at_, now) : now; // a thread that read its clock earlier may come later
  used_ = true;
  return {allowed, static_cast<std::uint32_t>(tokens_),
          allowed ? std::chrono::milliseconds{} : time_for(1 - tokens_, rate), time_for(rate.burst - tokens_, rate)};
}

void TokenBucket::give_back(const Rate& rate, Instant now) {
  if (!used_) return; // forgotten since: it is full
  tokens_ = std::min(rate.burst, tokens_at(rate, now) + 1);
  at_ = std::max(at_, now);
}

double TokenBucket::seconds_to_full(const Rate& rate, Instant now) const {
  return (rate.burst - tokens_at(rate, now)) / rate.per_second;
}

bool TokenBucket::full(const Rate& rate, Instant now) const { return tokens_at(rate, now) >= rate.burst; }

} // namespace oncekey
