#include "store_conformance.h"

#include "base/crypto.h"
#include "base/log.h"
#include "redis/connection.h"
#include "store/redis/redis_store.h"
#include "store/redis/slots.h"

#include <fmt/format.h>

#include <atomic>
#include <cstdlib>

namespace oncekey {
namespace {

// A store of its own for every test, by its prefix, on a server whose URL is in the environment.
class RedisUnderTest : public StoreUnderTest {
 public:
  RedisUnderTest(std::string_view server, int takes_to_see_all)
      : url_(fmt::format("{}?prefix=test-{:016x}", server, random_u64())), takes_to_see_all_(takes_to_see_all) {
    open();
  }
  Store& store() override { return *store_; }
  void advance(Millis by) override { passed_ += by.count(); }
  bool reopen() override {
    store_.reset();
    open();
    return true;
  }
  bool shared() const override { return true; }
  int takes_to_see_all() const override { return takes_to_see_all_; }
  bool damage_message(const RecordId& id) override {
    Result<redis::RedisUrl> url = redis::parse_url(url_);
    if (!url || url->cluster) return false;
    const redis::KeyNames names(url->prefix, 1);
    const auto client = redis::BlockingClient::make(*url, Millis{10'000});
    return client && (*client)->run(std::vector{redis::command({"SETRANGE", names.message(id), "0", "x"})})[0].ok();
  }

 private:
  void open() {
    Result<std::unique_ptr<Store>> opened =
        open_redis({.url = url_, .log = log_, .call_timeout = Millis{10'000}, .clock = [this] {
                      return start_ + Millis{passed_.load()};
                    }});
    ASSERT_TRUE(opened) << opened.fault().message;
    store_ = *std::move(opened);
  }

  const Time start_ = std::chrono::floor<Millis>(std::chrono::system_clock::now());
  const std::string url_;
  const int takes_to_see_all_;
  Log log_{LogLevel::error};
  std::atomic<std::int64_t> passed_ = 0;
  std::unique_ptr<Store> store_;
};

// A take asks at least sixteen partitions whether they have jobs; the next one gets those.
constexpr int kTakesToSeeACluster = redis::kClusterPartitions / 16 + 1;

// None where the variable is not set.
std::vector<StoreKind> redis_at(const char* name, const char* variable, int takes_to_see_all = 1) {
  const char* const url = std::getenv(variable);
  if (url == nullptr) return {};
  return clear_and_sealed({name, [=] { return std::make_unique<RedisUnderTest>(url, takes_to_see_all); }});
}

} // namespace

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(StoreConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(JobsConformance);
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(BrowseConformance);
INSTANTIATE_TEST_SUITE_P(Redis, StoreConformance, ::testing::ValuesIn(redis_at("redis", "ONCEKEY_TEST_REDIS")),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Redis, JobsConformance, ::testing::ValuesIn(redis_at("redis", "ONCEKEY_TEST_REDIS")),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(Redis, BrowseConformance, ::testing::ValuesIn(redis_at("redis", "ONCEKEY_TEST_REDIS")),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(RedisCluster, StoreConformance,
                         ::testing::ValuesIn(redis_at("redis_cluster", "ONCEKEY_TEST_REDIS_CLUSTER",
                                                      kTakesToSeeACluster)),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(RedisCluster, JobsConformance,
                         ::testing::ValuesIn(redis_at("redis_cluster", "ONCEKEY_TEST_REDIS_CLUSTER",
                                                      kTakesToSeeACluster)),
                         [](const auto& kind) { return kind.param.name; });
INSTANTIATE_TEST_SUITE_P(RedisCluster, BrowseConformance,
                         ::testing::ValuesIn(redis_at("redis_cluster", "ONCEKEY_TEST_REDIS_CLUSTER",
                                                      kTakesToSeeACluster)),
                         [](const auto& kind) { return kind.param.name; });

} // namespace oncekey
