// The store on a cluster: slots that move, and primaries that change, under load.
#include "support/redis_store_fixture.h"

#include <algorithm>
#include <map>
#include <sstream>

namespace oncekey::redis::store_tests {
namespace {

class RedisClusterServer : public RedisServer {
 protected:
  RedisClusterServer() : RedisServer("ONCEKEY_TEST_REDIS_CLUSTER") {}
  void TearDown() override {}

  struct Node {
    std::string id;
    Host host;
    std::string primary; // id of its own; "-" for primaries
    std::string slots;   // "0-5461 ..."
  };
  std::vector<Node> nodes() {
    std::vector<Node> nodes;
    std::istringstream lines(console_->text({"CLUSTER", "NODES"}));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line);
      std::string id, address, flags, primary, skipped, slots;
      words >> id >> address >> flags >> primary >> skipped >> skipped >> skipped >> skipped;
      std::getline(words, slots);
      if (flags.find("fail") != std::string::npos) continue;
      nodes.push_back({id, *parse_endpoint(address.substr(0, address.find('@'))), primary, slots});
    }
    return nodes;
  }
  std::vector<Node> primaries() {
    std::vector<Node> found = nodes();
    std::erase_if(found, [](const Node& node) { return node.primary != "-" || node.slots.empty(); });
    return found;
  }
  std::vector<std::uint16_t> partition_slots_of(const Host& host) {
    const OwnedReply reply = console_->ask({"CLUSTER", "SLOTS"});
    const auto ranges = parse_slots(reply.look(), console_->host());
    const KeyNames names(prefix_, kClusterPartitions);
    std::vector<std::uint16_t> slots;
    for (std::uint32_t partition = 0; partition < kClusterPartitions; ++partition) {
      for (const SlotRange& range : *ranges) {
        const std::uint16_t slot = names.slot(partition);
        if (range.primary == host && range.first <= slot && slot <= range.last) slots.push_back(slot);
      }
    }
    return slots;
  }
  // As redis-cli does it: all keys go one by one, and then the slot itself. With a pause in the middle, when some keys
  // are here and some there.
  static void begin_to_move(std::uint16_t slot, const Node& from, const Node& to) {
    Console giving(from.host);
    const std::string number = std::to_string(slot);
    Console(to.host).ask({"CLUSTER", "SETSLOT", number, "IMPORTING", from.id});
    giving.ask({"CLUSTER", "SETSLOT", number, "MIGRATING", to.id});
    for (int i = 0; i < 1000; ++i) {
      const OwnedReply keys = giving.ask({"CLUSTER", "GETKEYSINSLOT", number, "1"});
      if (keys.look().size() == 0) break;
      giving.ask({"MIGRATE", to.host.name, std::to_string(to.host.port), keys.look()[0].text(), "0", "5000"});
      if (i == 0) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }
  static void end_to_move(std::uint16_t slot, const Node& from, const Node& to, const std::vector<Node>& everybody) {
    const std::string number = std::to_string(slot);
    for (const Node* const first : {&to, &from}) {
      Console(first->host).ask({"CLUSTER", "SETSLOT", number, "NODE", to.id});
    }
    for (const Node& node : everybody) {
      if (node.primary == "-") Console(node.host).ask({"CLUSTER", "SETSLOT", number, "NODE", to.id});
    }
  }
  static void move_slot(std::uint16_t slot, const Node& from, const Node& to, const std::vector<Node>& everybody) {
    begin_to_move(slot, from, to);
    end_to_move(slot, from, to, everybody);
  }
};

TEST_F(RedisClusterServer, ANodeOfAClusterIsNotUsedAsASingleServer) {
  EXPECT_THAT(refusal(fmt::format("redis://{}/0", to_string(console_->host()))), HasSubstr("redis+cluster://"));
}

TEST_F(RedisClusterServer, RecordsAreSpreadOverAllPrimariesAndListed) {
  const auto store = open();
  std::set<RecordId> made;
  for (int i = 0; i < 60; ++i) {
    const RecordId id = random_id();
    ASSERT_TRUE(claim(*store, id));
    made.insert(id);
  }
  const auto listed = wait_for_answer<std::vector<Listed>>([&](auto done) { store->list({}, std::move(done)); });
  ASSERT_TRUE(listed) << listed.fault().message;
  std::set<RecordId> seen;
  for (const Listed& line : *listed) seen.insert(line.id);
  EXPECT_EQ(seen, made);
}

TEST_F(RedisClusterServer, ARecordOnItsWayIsAskedForWhereItIs) {
  const auto store = open();
  const std::vector<Node> all = primaries();
  const KeyNames names(prefix_, kClusterPartitions);
  const RecordId id = random_id();
  ASSERT_TRUE(claim(*store, id));
  const std::uint16_t slot = names.slot(names.partition_of(id));
  const bool at_first = std::ranges::count(partition_slots_of(all[0].host), slot) > 0;
  const Node& from = at_first                                                        ? all[0]
                     : std::ranges::count(partition_slots_of(all[1].host), slot) > 0 ? all[1]
                                                                                     : all[2];
  const Node& to = at_first ? all[1] : all[0];
  begin_to_move(slot, from, to);
  const Result<ClaimAnswer> found = claim(*store, id);
  ASSERT_TRUE(found) << found.fault().message;
  EXPECT_TRUE(std::holds_alternative<Found>(*found));
  end_to_move(slot, from, to, all);
  EXPECT_TRUE(std::holds_alternative<Found>(*claim(*store, id)));
}

TEST_F(RedisClusterServer, SlotsMovedUnderLoadChangeNothing) {
  const auto store = open();
  Crowd crowd(*store, 16);
  const std::vector<Node> all = primaries();
  ASSERT_GE(all.size(), 2u);
  const std::vector<std::uint16_t> slots = partition_slots_of(all[0].host);
  ASSERT_GE(slots.size(), 40u);
  for (std::size_t i = 0; i < 40; ++i) move_slot(slots[i], all[0], all[1], all);
  for (std::size_t i = 0; i < 40; ++i) move_slot(slots[i], all[1], all[0], all);
  crowd.stop();
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
  EXPECT_EQ(crowd.refused() + crowd.unknown(), 0u) << "nothing was away, so nothing had to be refused";
  EXPECT_TRUE(store->healthy());
}

TEST_F(RedisClusterServer, ASwitchOfPrimariesUnderLoadLosesNothing) {
  const auto store = open();
  Crowd crowd(*store, 16);
  const Node primary = primaries()[0];
  std::optional<Node> replica;
  for (const Node& node : nodes()) {
    if (node.primary == primary.id) replica = node;
  }
  ASSERT_TRUE(replica);
  const auto is_primary = [&] { return Console(replica->host).ask({"ROLE"}).look()[0].text() == "master"; };
  int rounds = 0;
  EXPECT_TRUE(eventually(
      [&] {
        if (rounds++ % 300 == 0) Console(replica->host).ask({"CLUSTER", "FAILOVER"});
        return is_primary();
      },
      std::chrono::seconds(20)));
  EXPECT_TRUE(eventually([&] {
    for (int i = 0; i < 20; ++i) {
      if (!claims(*store)) return false;
    }
    return true;
  })) << "it recovers";
  crowd.stop();
  EXPECT_TRUE(eventually([&] { return store->healthy().ok(); })) << store->healthy().fault().message;
  crowd.check();
  EXPECT_GT(crowd.done(), 0u);
}

TEST_F(RedisClusterServer, WhenReplicasConfirmItCounts) {
  const auto store = open("&wait=1");
  for (int i = 0; i < 20; ++i) EXPECT_TRUE(claims(*store));
  EXPECT_TRUE(store->healthy());
}

TEST_F(RedisClusterServer, OneFlushedPrimaryIsALossForTheWholeStore) {
  const auto store = open();
  ASSERT_TRUE(claims(*store));
  Console(primaries()[1].host).ask({"FLUSHALL"});
  EXPECT_TRUE(eventually([&] { return !store->healthy(); }));
  EXPECT_FALSE(claims(*store));
  const auto later = open();
  EXPECT_TRUE(eventually([&] { return !claims(*later); }));
  ASSERT_TRUE(accept_lost_memory_redis({.url = url(), .log = log_}));
  EXPECT_TRUE(eventually([&] { return claims(*store) && claims(*later); }));
}

} // namespace
} // namespace oncekey::redis::store_tests
