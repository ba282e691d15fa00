// store_tools: what people and tools want to know of a store as a whole, and a copy of it. Values only.
#pragma once

#include <oncekey/time.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace oncekey {

// Called now and then by long work: how much is done, of how much. False: the work is to be given up.
using TellProgress = std::function<bool(std::uint64_t done, std::uint64_t total)>;

// What expires together, and is dropped as a whole.
struct StoreBucket {
  std::string name;
  std::string holds; // "keys" or "jobs"
  Time ends{};
  std::uint64_t records = 0; // an estimate, unless all of them were read
  std::uint64_t bytes = 0;
};

// What a store knows about itself beyond StoreStats. Empty where a store has no such thing.
struct StoreDetails {
  std::string id;
  std::vector<StoreBucket> buckets{}; // the one that ends first comes first
  std::uint64_t log_segments = 0;
  std::uint64_t newest_sequence = 0; // number of the newest durable write
};

// A backup that was made, or that a store was made of.
struct BackupMade {
  std::string folder;
  std::string store; // its id
  std::uint64_t sequence = 0;
  Time made{}; // by the wall clock of the machine that made it
  std::uint64_t in_progress = 0;
  std::uint64_t files = 0;
  std::uint64_t bytes = 0;
};

// One thing that is wrong, and what to do about it.
struct StoreProblem {
  std::string what;
  std::string next;
};

// A store that was read from end to end, while no process had it open.
struct StoreReport {
  StoreDetails details;
  std::uint32_t format = 0;
  std::uint64_t in_progress = 0;
  std::uint64_t indeterminate = 0;
  std::uint64_t completed = 0;
  std::uint64_t jobs = 0;
  std::uint64_t jobs_not_over = 0;
  std::uint64_t body_files = 0;
  std::uint64_t bytes_on_disk = 0;
  std::optional<BackupMade> backup{}; // it is one that no operator has accepted yet
  bool loss_accepted = false;         // by an operator; the next start takes it up
  std::vector<std::string> notes{};   // worth knowing, and nothing wrong
  std::vector<StoreProblem> problems{};
  std::uint64_t problems_left_out = 0;

  std::uint64_t records() const { return in_progress + indeterminate + completed; }
  bool sound() const { return problems.empty(); }
};

} // namespace oncekey
