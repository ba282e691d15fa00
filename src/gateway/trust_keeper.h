// trust_keeper: fetches key sets and rereads files, beside the requests.
//
// Runs on one event loop. A set is fetched at start, when its lifetime is over, and when a token names a key that is
// not in it. While fetching fails, the set at hand stays in use: an issuer that is down for an hour must not stop
// payments.
#pragma once

#include "gateway/shared.h"
#include "http/fetch.h"

namespace oncekey {

class TrustKeeper {
 public:
  // A fault says which URL cannot be fetched from, and why. Before requests come.
  static Result<std::unique_ptr<TrustKeeper>> make(GatewayShared& shared, Loop& loop);
  ~TrustKeeper();

  // Called after an accounts file was read that has these many more credentials than before. Before start().
  void on_accounts_added(std::function<void(const std::string& path, std::size_t credentials)> told) {
    accounts_added_ = std::move(told);
  }
  // On its thread.
  void start();
  // Ends what is under way. On its thread.
  void stop();
  // Whether every file could be taken on as it is now; changes nothing. A fault says which not, and why. On its thread.
  Status check_files() const;
  // Reads every file anew. On its thread.
  void reread_files();
  // Has stopped, and nothing is under way any more. From any thread.
  bool over() const { return stopped_.load() && fetches_.load() == 0; }

 private:
  struct KeyUrl;
  struct File;

  TrustKeeper(GatewayShared& shared, Loop& loop);
  void tick();
  void look_at_files();
  void show_ages();
  Task<void> fetch(KeyUrl& url);
  Task<Fetched> get(KeyUrl& url);

  GatewayShared& shared_;
  Loop& loop_;
  Timer tick_;
  std::vector<std::unique_ptr<KeyUrl>> urls_;
  std::vector<File> files_;
  std::function<void(const std::string&, std::size_t)> accounts_added_;
  std::atomic<std::uint32_t> fetches_{0};
  std::atomic<bool> stopped_{false};
};

} // namespace oncekey
