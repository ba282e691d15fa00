#include "store/journal/log_format.h"

#include "base/faults.h"

#include <oncekey/check.h>

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

namespace oncekey {
namespace {

// What the last bytes of a sector say about it.
struct SectorMark {
  std::uint32_t epoch;
  std::uint32_t batch;
  std::uint64_t checksum; // of the bytes before it, and of where they are
};
static_assert(sizeof(SectorMark) == 16);
constexpr std::size_t kPayloadBytes = kSectorBytes - sizeof(SectorMark);

// In front of the payload.
struct BatchHeader {
  std::uint32_t magic;
  std::uint32_t payload_bytes;
  std::uint32_t epoch;
  std::uint32_t batch;
  std::uint64_t sequence;
  std::uint64_t offset;
  std::uint64_t previous; // checksum of the batch before it
  std::uint64_t checksum; // of header (this field zero) and payload
};
static_assert(sizeof(BatchHeader) == 48);
// "OKJ" and the format as a digit.
constexpr std::uint32_t kBatchMagic = 0x00'4A4B4F;
constexpr std::uint32_t kMagicMask = 0x00'FFFFFF;
constexpr std::uint32_t kLogFormat = 1;

constexpr std::uint32_t magic_of(std::uint32_t format) { return kBatchMagic | ('0' + format) << 24; }
// Nothing if a batch does not begin so.
std::optional<std::uint32_t> format_in(std::uint32_t magic) {
  const std::uint32_t digit = (magic >> 24) - '0';
  return (magic & kMagicMask) == kBatchMagic && digit <= 9 ? std::optional(digit) : std::nullopt;
}

std::uint64_t seed_of(const SegmentName& segment, std::uint64_t sector) {
  return segment.salt ^ ((std::uint64_t{segment.number} << 40 | sector) * 0x9E3779B97F4A7C15);
}

std::uint64_t checksum_of(const SegmentName& segment, std::uint64_t sector, const char* bytes) {
  return XXH3_64bits_withSeed(bytes, kSectorBytes - sizeof(std::uint64_t), seed_of(segment, sector));
}

std::uint64_t checksum_of(BatchHeader header, std::uint64_t salt, std::string_view payload) {
  header.checksum = 0;
  return XXH3_64bits_withSeed(payload.data(), payload.size(), XXH3_64bits_withSeed(&header, sizeof header, salt));
}

enum class SectorIs { blank, marked, damaged };
struct Sector {
  SectorIs is = SectorIs::damaged;
  std::uint32_t epoch = 0;
  std::uint32_t batch = 0;
};

Sector look_at(const SegmentName& segment, std::string_view bytes, std::uint64_t sector) {
  const char* const at = bytes.data() + sector * kSectorBytes;
  SectorMark mark;
  std::memcpy(&mark, at + kPayloadBytes, sizeof mark);
  if (mark.epoch == 0) {
    static constexpr std::array<char, kSectorBytes> kBlank{};
    const bool blank = std::memcmp(at, kBlank.data(), kSectorBytes) == 0;
    return {blank ? SectorIs::blank : SectorIs::damaged};
  }
  if (checksum_of(segment, sector, at) != mark.checksum) return {};
  return {SectorIs::marked, mark.epoch, mark.batch};
}

Fault damaged(const SegmentName& segment, std::uint64_t offset, std::string_view how) {
  return corrupt(
      fmt::format("segment {} of the journal is damaged at byte {}: {}; answers that clients have got may be "
                  "missing, so the store is not opened: restore a backup, or move the folder away to start "
                  "with an empty store",
                  segment.number, offset, how));
}

// One segment, read from its first batch to the end of its part of the log.
class SegmentReader {
 public:
  SegmentReader(const SegmentName& name, std::string_view bytes, std::uint32_t epoch)
      : name_(name), bytes_(bytes), epoch_(epoch) {}

  // The next batch after `end`, which is changed to it; nothing at the end of the log in this segment.
  Result<std::optional<std::string_view>> next(LogEnd& end) {
    const std::uint64_t first = offset_ / kSectorBytes;
    if (offset_ + kBlockBytes > bytes_.size()) return std::optional<std::string_view>{};
    const Sector sector = look_at(name_, bytes_, first);
    if (sector.is == SectorIs::damaged) return damaged(name_, offset_, "a sector fails its checksum");
    if (!is_of(sector, batch_ + 1)) return std::optional<std::string_view>{}; // old: it was never written whole

    BatchHeader header;
    std::memcpy(&header, bytes_.data() + offset_, sizeof header);
    const std::optional<std::uint32_t> format = format_in(header.magic);
    if (format && *format > kLogFormat) {
      return newer_format(fmt::format("segment {} of the journal at byte {}", name_.number, offset_), *format,
                          kLogFormat);
    }
    const std::size_t size = batch_bytes(header.payload_bytes);
    if (format != kLogFormat || header.epoch != epoch_ || header.batch != batch_ + 1 || header.offset != offset_ ||
        size > bytes_.size() - offset_) {
      return damaged(name_, offset_, "it does not have the shape of a batch");
    }
    bool torn = false;
    for (std::uint64_t at = first; at < first + size / kSectorBytes; ++at) {
      const Sector part = look_at(name_, bytes_, at);
      if (part.is == SectorIs::damaged) return damaged(name_, at * kSectorBytes, "a sector fails its checksum");
      if (!is_of(part, batch_ + 1)) torn = true;
    }
    if (torn) return std::optional<std::string_view>{};

    gather(first, header.payload_bytes);
    if (checksum_of(header, name_.salt, payload_) != header.checksum) {
      return damaged(name_, offset_, "a batch fails its checksum");
    }
    if (header.sequence != end.sequence + 1 || header.previous != end.checksum) {
      return damaged(name_, offset_, fmt::format("batch {} follows batch {}", header.sequence, end.sequence));
    }
    ++batch_;
    offset_ += size;
    end = {epoch_, batch_, header.sequence, header.checksum};
    return std::optional<std::string_view>(payload_);
  }

  // Nothing of this epoch may stand behind its end but parts of the one batch that was being written.
  Status look_behind_the_end() const {
    for (std::uint64_t at = offset_ / kSectorBytes; at < bytes_.size() / kSectorBytes; ++at) {
      const Sector sector = look_at(name_, bytes_, at);
      if (sector.is == SectorIs::marked && sector.epoch == epoch_ && sector.batch != batch_ + 1) {
        return damaged(name_, offset_, "a batch is missing, and later ones are there");
      }
    }
    return ok_status();
  }

 private:
  bool is_of(const Sector& sector, std::uint32_t batch) const {
    return sector.is == SectorIs::marked && sector.epoch == epoch_ && sector.batch == batch;
  }
  void gather(std::uint64_t sector, std::size_t payload_bytes) {
    payload_.clear();
    std::size_t skipped = sizeof(BatchHeader);
    for (; payload_.size() < payload_bytes; ++sector) {
      const char* const begin = bytes_.data() + sector * kSectorBytes + skipped;
      payload_.append(begin, std::min(payload_bytes - payload_.size(), kPayloadBytes - skipped));
      skipped = 0;
    }
  }

  const SegmentName name_;
  const std::string_view bytes_;
  const std::uint32_t epoch_;
  std::uint64_t offset_ = 0;
  std::uint32_t batch_ = 0;
  std::string payload_;
};

struct NamedSegment {
  SegmentBytes segment;
  std::uint32_t epoch = 0;
};

} // namespace

std::size_t batch_bytes(std::size_t payload_bytes) {
  const std::size_t sectors = (sizeof(BatchHeader) + payload_bytes + kPayloadBytes - 1) / kPayloadBytes;
  return (sectors * kSectorBytes + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

LogEnd lay_out_batch(const SegmentName& segment, const LogEnd& end, std::uint32_t epoch, std::uint64_t offset,
                     std::string_view payload, std::span<char> out) {
  const std::uint32_t batch = end.epoch == epoch ? end.batch + 1 : 1;
  BatchHeader header{magic_of(kLogFormat),
                     static_cast<std::uint32_t>(payload.size()),
                     epoch,
                     batch,
                     end.sequence + 1,
                     offset,
                     end.checksum,
                     0};
  header.checksum = checksum_of(header, segment.salt, payload);
  ONCEKEY_CHECK(out.size() == batch_bytes(payload.size()), "a batch has the size it was given room for");
  char* at = out.data();
  std::size_t used = sizeof header;
  std::memcpy(at, &header, sizeof header);
  for (std::uint64_t sector = offset / kSectorBytes; at != out.data() + out.size(); ++sector, at += kSectorBytes) {
    const std::size_t fits = std::min(payload.size(), kPayloadBytes - used);
    std::memcpy(at + used, payload.data(), fits);
    std::memset(at + used + fits, 0, kPayloadBytes - used - fits);
    payload.remove_prefix(fits);
    used = 0;
    SectorMark mark{epoch, batch, 0};
    std::memcpy(at + kPayloadBytes, &mark, sizeof mark);
    mark.checksum = checksum_of(segment, sector, at);
    std::memcpy(at + kPayloadBytes, &mark, sizeof mark);
  }
  return {epoch, batch, header.sequence, header.checksum};
}

Result<RecoveredLog> recover_log(std::uint64_t salt, const LogEnd& sealed, const std::vector<SegmentBytes>& segments,
                                 const BatchVisitor& visit) {
  RecoveredLog log{sealed, {}, {}, sealed.epoch};
  std::vector<NamedSegment> unsealed;
  for (const SegmentBytes& segment : segments) {
    const SegmentName name{salt, segment.number};
    const Sector front = look_at(name, segment.bytes, 0);
    if (front.is == SectorIs::damaged) return damaged(name, 0, "its first sector fails its checksum");
    for (std::uint64_t at = 0; at < segment.bytes.size() / kSectorBytes; ++at) {
      const Sector sector = look_at(name, segment.bytes, at);
      if (sector.is != SectorIs::marked) continue;
      log.newest_epoch = std::max(log.newest_epoch, sector.epoch);
      // The first batch of a segment may have been cut off before its first sector was written, no later one.
      if (sector.epoch > front.epoch && sector.epoch > sealed.epoch && sector.batch != 1) {
        return damaged(name, 0, "its first batch is missing, and later ones are there");
      }
    }
    if (front.epoch > sealed.epoch) {
      unsealed.push_back({segment, front.epoch});
    } else {
      log.free.push_back(segment.number);
    }
  }
  std::sort(unsealed.begin(), unsealed.end(), [](const auto& a, const auto& b) { return a.epoch < b.epoch; });
  for (const auto& [segment, epoch] : unsealed) {
    SegmentReader reader({salt, segment.number}, segment.bytes, epoch);
    for (;;) {
      const Result<std::optional<std::string_view>> payload = reader.next(log.end);
      if (!payload) return payload.fault();
      if (!*payload) break;
      if (const Status visited = visit(log.end, **payload); !visited) return visited.fault();
    }
    if (const Status sound = reader.look_behind_the_end(); !sound) return sound.fault();
    if (log.end.epoch == epoch) {
      log.live.push_back({segment.number, log.end});
    } else {
      log.free.push_back(segment.number);
    }
  }
  return log;
}

} // namespace oncekey
