#include "cli/room_watch.h"

#include "store/open_store.h"

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kRoomEvery{250};

} // namespace

RoomWatch::RoomWatch(GatewayShared& shared, Loop& timers) : shared_(shared), timer_(timers, [this] { look(); }) {
  look();
}

void RoomWatch::look() {
  timer_.after(kRoomEvery);
  const std::string& store = shared_.config().store;
  const StoreStats stats = shared_.store.stats();
  std::optional<StoreRoom::Seen> seen;
  if (const std::optional<std::string> folder = folder_of_store(store)) {
    seen = look_at_disk(*folder, stats.bytes_on_disk);
  } else {
    // A store in memory takes memory; one elsewhere tells its size, or 0 where it would have to count.
    seen = StoreRoom::Seen{store.starts_with("memory:") ? stats.bytes_in_memory : stats.bytes_on_disk, 0, 0};
  }
  if (!seen) return;
  shared_.room.look(*seen);
  const std::optional<std::string> shortage = shared_.room.shortage();
  if (shortage.has_value() == short_) return;
  short_ = shortage.has_value();
  if (short_) {
    shared_.log.error("store_full", {{"reason", *shortage},
                                     {"next",
                                      "new keys get 503 until there is room; replays, answers under way and "
                                      "requests without a key go on"}});
  } else {
    shared_.log.info("store_has_room_again", {});
  }
}

} // namespace oncekey
