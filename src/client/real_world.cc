#include "client/world.h"

#include "base/crypto.h"

#include <thread>

namespace oncekey {
namespace {

class RealWorld final : public ClientWorld {
 public:
  explicit RealWorld(std::unique_ptr<Fetcher> fetcher) : fetcher_(std::move(fetcher)) {}

  Moment now() override { return std::chrono::steady_clock::now(); }
  Time wall_clock() override { return std::chrono::floor<Millis>(std::chrono::system_clock::now()); }
  void sleep(Millis duration) override { std::this_thread::sleep_for(duration); }
  double chance() override { return random_chance(); }
  Fetched exchange(const FetchRequest& request, Moment due) override { return fetcher_->fetch(request, due); }

 private:
  const std::unique_ptr<Fetcher> fetcher_;
};

} // namespace

Result<std::unique_ptr<ClientWorld>> real_world(std::string ca_file, std::uint64_t response_bytes_max) {
  auto fetcher = Fetcher::open(std::move(ca_file), {response_bytes_max, AnswerLimit::Longer::fails});
  if (!fetcher) return fetcher.fault();
  return std::unique_ptr<ClientWorld>(std::make_unique<RealWorld>(*std::move(fetcher)));
}

} // namespace oncekey
