// Backups: copies of the store that operators ask a running gateway for, one at a time, on a thread of their own.
#pragma once

#include "base/log.h"
#include "core/store.h"

#include <boost/json/object.hpp>

#include <atomic>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

namespace oncekey {

enum class BackupPhase { none, running, done, failed };

struct BackupState {
  BackupPhase phase = BackupPhase::none;
  std::string to;
  std::uint64_t done = 0;  // bytes
  std::uint64_t total = 0; // 0 until it is known
  std::optional<BackupMade> made{};
  std::string error{};
};
boost::json::object backup_json(const BackupState& state);

// Any thread may call.
class Backups {
 public:
  // The store and the log outlive this object.
  Backups(Store& store, Log& log) : store_(store), log_(log) {}
  ~Backups();
  Backups& operator=(Backups&&) = delete;

  // A fault if one is under way, or the gateway stops.
  Status begin(const std::string& to);
  BackupState state() const;

  // Gives up the one under way: nothing is left of it.
  void stop() { stopping_.store(true); }
  bool over() const { return !running_.load(); }

 private:
  void run(const std::string& to);

  Store& store_;
  Log& log_;
  std::atomic<bool> stopping_ = false;
  std::atomic<bool> running_ = false;
  mutable std::mutex mutex_; // over what follows
  BackupState state_;
  std::thread thread_;
};

} // namespace oncekey
