// log_format: how batches lie in the segments of a journal, and how they are read back after a crash. Pure: bytes in,
// bytes out. docs/JOURNAL_FORMAT.md has the format and the reasons.
//
// A disk writes a sector of 512 bytes whole or not at all, and a write of many sectors may be cut off anywhere. So
// every sector says which write it belongs to (epoch and batch) and has a checksum of its own: after a power cut each
// sector can be told to be old, new or damaged. A batch of which some sectors are old was never answered, and the log
// ends before it. A batch with a damaged sector may have been answered, and the store is not opened.
#pragma once

#include <oncekey/result.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

inline constexpr std::size_t kSectorBytes = 512;
// Writes begin and end at a multiple of this, which is as much as any disk asks for.
inline constexpr std::size_t kBlockBytes = 4096;

// Which file of which store: sectors of another one, or of another place in this one, are damage.
struct SegmentName {
  std::uint64_t salt = 0; // of the store
  std::uint32_t number = 0;
};

// The newest batch of a log, which the next one follows. All zero before the first.
struct LogEnd {
  std::uint32_t epoch = 0; // of the segment when it was written: grows with each use of a segment, never given twice
  std::uint32_t batch = 0; // its number in that segment, from 1
  std::uint64_t sequence = 0;
  std::uint64_t checksum = 0;
  friend bool operator==(const LogEnd&, const LogEnd&) = default;
};

// How many bytes of a segment a batch with such a payload takes.
std::size_t batch_bytes(std::size_t payload_bytes);

// Writes the batch with this payload to `out`, which has room for batch_bytes(). `end` is the batch before it; `epoch`
// that of the segment, and `offset` the batch's place in it. Returns the new end.
LogEnd lay_out_batch(const SegmentName& segment, const LogEnd& end, std::uint32_t epoch, std::uint64_t offset,
                     std::string_view payload, std::span<char> out);

struct SegmentBytes {
  std::uint32_t number = 0;
  std::string_view bytes; // the whole file
};

// A segment with batches that are not sealed.
struct LiveSegment {
  std::uint32_t number = 0;
  LogEnd last; // its last batch
};

struct RecoveredLog {
  LogEnd end;
  std::vector<LiveSegment> live;   // oldest first
  std::vector<std::uint32_t> free; // numbers of the others
  std::uint32_t newest_epoch = 0;  // of all sectors: the next segment gets a greater one
};

// Calls `visit` with the payload of each batch after `sealed`, in order. A fault if the log is damaged: then a batch
// that was answered may be missing, and the store must not be used.
using BatchVisitor = std::function<Status(const LogEnd& batch, std::string_view payload)>;
Result<RecoveredLog> recover_log(std::uint64_t salt, const LogEnd& sealed, const std::vector<SegmentBytes>& segments,
                                 const BatchVisitor& visit);

} // namespace oncekey
