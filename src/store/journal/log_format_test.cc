#include "store/journal/log_format.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <map>

namespace oncekey {
namespace {

constexpr std::uint64_t kSalt = 0x5A17;
constexpr std::size_t kSegmentBytes = 6 * kBlockBytes;

// A log on a disk of a few small segments, with every write that was made.
class SmallDisk {
 public:
  explicit SmallDisk(std::size_t segments) : disk_(segments, std::string(kSegmentBytes, '\0')) {}

  struct Write {
    std::uint32_t segment;
    std::uint64_t offset;
    std::string bytes;
    std::string before; // what was there
  };

  void use(std::uint32_t segment) {
    segment_ = segment;
    offset_ = 0;
    ++epoch_;
  }
  Write prepare(const std::string& payload) {
    Write write{segment_, offset_, std::string(batch_bytes(payload.size()), '\0'), {}};
    next_ = lay_out_batch({kSalt, segment_}, end_, epoch_, offset_, payload, write.bytes);
    write.before = disk_[segment_].substr(offset_, write.bytes.size());
    EXPECT_LE(offset_ + write.bytes.size(), kSegmentBytes);
    return write;
  }
  Write append(const std::string& payload) {
    Write write = prepare(payload);
    disk_[segment_].replace(write.offset, write.bytes.size(), write.bytes);
    end_ = next_;
    offset_ += write.bytes.size();
    payloads_.push_back(payload);
    return write;
  }
  void seal() { sealed_ = end_, payloads_.clear(); }

  Result<RecoveredLog> recover(std::vector<std::string>& payloads) const {
    std::vector<SegmentBytes> segments;
    for (std::uint32_t number = 0; number < disk_.size(); ++number) segments.push_back({number, disk_[number]});
    return recover_log(kSalt, sealed_, segments, [&](const LogEnd&, std::string_view payload) {
      payloads.emplace_back(payload);
      return ok_status();
    });
  }

  std::vector<std::string> disk_;
  std::vector<std::string> payloads_; // written since the last seal
  LogEnd end_, next_, sealed_;
  std::uint32_t epoch_ = 0, segment_ = 0;
  std::uint64_t offset_ = 0;
};

std::string payload_of(int number, std::size_t bytes) {
  std::string payload = "batch " + std::to_string(number) + ":";
  while (payload.size() < bytes) payload += static_cast<char>('a' + (payload.size() * 7 + number) % 26);
  return payload;
}

// Four segments, of which the first was used twice: old content lies behind the end.
SmallDisk used_disk() {
  SmallDisk disk(4);
  int number = 0;
  disk.use(0);
  for (int i = 0; i < 5; ++i) disk.append(payload_of(++number, 900));
  disk.use(1);
  disk.append(payload_of(++number, 9000));
  disk.seal();
  disk.use(2);
  disk.append(payload_of(++number, 30));
  disk.append(payload_of(++number, 5000));
  disk.use(0);
  disk.append(payload_of(++number, 3000));
  return disk;
}

TEST(LogFormatTest, WhatWasWrittenIsReadBackInOrder) {
  const SmallDisk disk = used_disk();
  std::vector<std::string> payloads;
  const Result<RecoveredLog> log = disk.recover(payloads);
  ASSERT_TRUE(log) << log.fault().message;
  EXPECT_EQ(payloads, disk.payloads_);
  EXPECT_EQ(log->end, disk.end_);
  EXPECT_EQ(log->newest_epoch, 4u);
  EXPECT_THAT(log->free, ::testing::ElementsAre(1, 3));
  ASSERT_EQ(log->live.size(), 2u);
  EXPECT_EQ(log->live[0].number, 2u);
  EXPECT_EQ(log->live[1].number, 0u);
}

TEST(LogFormatTest, AnEmptyDiskIsAnEmptyLog) {
  std::vector<std::string> payloads;
  const Result<RecoveredLog> log = SmallDisk(2).recover(payloads);
  ASSERT_TRUE(log) << log.fault().message;
  EXPECT_EQ(log->end, LogEnd{});
  EXPECT_EQ(log->free.size(), 2u);
}

// Every subset of the sectors of a write, at each place where a write may be cut off: in the middle of a segment, over
// old content, and as the first of a segment.
TEST(LogFormatTest, AWriteThatIsCutOffAnywhereIsThereWholeOrNotAtAll) {
  const auto at_the_front = [](SmallDisk& disk) { disk.use(1); };
  const auto in_the_middle = [](SmallDisk&) {};
  for (const auto& place : {std::function<void(SmallDisk&)>(in_the_middle), {at_the_front}}) {
    SmallDisk disk = used_disk();
    place(disk);
    const SmallDisk::Write write = disk.prepare(payload_of(77, 3500));
    const std::size_t sectors = write.bytes.size() / kSectorBytes;
    ASSERT_EQ(sectors, 8u);
    for (unsigned written = 0; written < 1u << sectors; ++written) {
      SmallDisk cut = disk;
      for (std::size_t sector = 0; sector < sectors; ++sector) {
        if ((written >> sector & 1) == 0) continue;
        cut.disk_[write.segment].replace(write.offset + sector * kSectorBytes, kSectorBytes,
                                         write.bytes.substr(sector * kSectorBytes, kSectorBytes));
      }
      std::vector<std::string> payloads;
      const Result<RecoveredLog> log = cut.recover(payloads);
      ASSERT_TRUE(log) << written << ": " << log.fault().message;
      std::vector<std::string> expected = disk.payloads_;
      if (written + 1 == 1u << sectors) expected.push_back(payload_of(77, 3500));
      ASSERT_EQ(payloads, expected) << written;

      // And the log goes on after it, in a segment of a new epoch.
      SmallDisk next = cut;
      next.epoch_ = log->newest_epoch;
      next.end_ = log->end;
      next.use(log->free.front());
      next.append("after the crash");
      expected.emplace_back("after the crash");
      payloads.clear();
      const Result<RecoveredLog> later = next.recover(payloads);
      ASSERT_TRUE(later) << written << ": " << later.fault().message;
      ASSERT_EQ(payloads, expected) << written;
    }
  }
}

// Only what was answered counts: a flipped bit is noticed, or it is where nothing of the log is.
TEST(LogFormatTest, AFlippedBitIsNoticedOrHarmless) {
  const SmallDisk disk = used_disk();
  std::map<bool, int> noticed;
  for (std::size_t segment = 0; segment < disk.disk_.size(); ++segment) {
    for (std::size_t at = 0; at < kSegmentBytes; at += 31) {
      SmallDisk flipped = disk;
      flipped.disk_[segment][at] = static_cast<char>(flipped.disk_[segment][at] ^ (1 << at % 8));
      std::vector<std::string> payloads;
      const Result<RecoveredLog> log = flipped.recover(payloads);
      if (log) {
        ASSERT_EQ(payloads, disk.payloads_) << segment << " at " << at;
      } else {
        EXPECT_EQ(log.fault().kind, FaultKind::corrupt);
      }
      ++noticed[!log];
    }
  }
  EXPECT_GE(noticed[true], 4 * 4096 / 31); // all bytes of the unsealed batches
}

// A sector that went back to what it was before, with a later batch behind it.
TEST(LogFormatTest, AMissingBatchBeforeALaterOneIsDamage) {
  SmallDisk disk = used_disk();
  const SmallDisk::Write lost = disk.append(payload_of(50, 700));
  disk.append(payload_of(51, 700));
  for (const std::size_t bytes : {kSectorBytes, lost.bytes.size()}) {
    SmallDisk without = disk;
    without.disk_[lost.segment].replace(lost.offset, bytes, lost.before.substr(0, bytes));
    std::vector<std::string> payloads;
    const Result<RecoveredLog> log = without.recover(payloads);
    ASSERT_FALSE(log) << bytes;
    EXPECT_THAT(log.fault().message, ::testing::HasSubstr("later ones are there"));
  }
}

TEST(LogFormatTest, AMissingOrSwappedSegmentIsDamage) {
  SmallDisk missing = used_disk();
  missing.disk_[2].assign(kSegmentBytes, '\0');
  std::vector<std::string> payloads;
  EXPECT_FALSE(missing.recover(payloads));
  SmallDisk swapped = used_disk();
  swapped.disk_[0].swap(swapped.disk_[2]);
  EXPECT_FALSE(swapped.recover(payloads));
}

TEST(LogFormatTest, ASegmentWithoutItsFirstBatchIsDamage) {
  SmallDisk disk = used_disk();
  disk.use(1);
  const SmallDisk::Write first = disk.append(payload_of(60, 100));
  disk.append(payload_of(61, 100));
  disk.disk_[1].replace(first.offset, first.bytes.size(), first.before);
  std::vector<std::string> payloads;
  EXPECT_FALSE(disk.recover(payloads));
}

TEST(LogFormatTest, ABatchAsLargeAsASegmentFits) {
  SmallDisk disk(1);
  disk.use(0);
  std::size_t bytes = kSegmentBytes;
  while (batch_bytes(bytes) > kSegmentBytes) --bytes;
  disk.append(std::string(bytes, 'x'));
  std::vector<std::string> payloads;
  ASSERT_TRUE(disk.recover(payloads));
  EXPECT_EQ(payloads, disk.payloads_);
}

} // namespace
} // namespace oncekey
