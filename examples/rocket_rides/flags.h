// What the command line says.
#pragma once

#include "simulator.h"

#include <chrono>
#include <cstdint>
#include <string>

namespace rides {

// Times in seconds.
struct Flags {
  std::string command;

  std::string database = "sqlite:rides.db";
  std::string processor = "http://127.0.0.1:5005";
  std::string mailer = "http://127.0.0.1:5006";
  double lease = 60;
  double clock_ahead = 0;
  std::uint16_t port = 0;

  bool with_workers = false;
  int die_at = 0;
  int pause_at = 0;

  double grace = 300;
  double completer_backoff = 30;
  int attempts = 20;
  double enqueuer_backoff = 1;
  double enqueuer_backoff_max = 600;
  double claim = 60;
  std::size_t batch = 1000;
  double until_done = 0;
  bool once = false;
  bool restart_dead = false;

  double latency = 0;
  int errors = 0;
  int drops = 0;
  double key_memory = 24 * 3600;
  unsigned seed = 1;

  std::string mailer_database = "sqlite:mail.db";

  SimulatorOptions riders;
  double patience = 60;
  std::string demo_database;
};

inline std::chrono::milliseconds from_seconds(double seconds) {
  return std::chrono::milliseconds(static_cast<std::int64_t>(seconds * 1000));
}

// Ends the process after --help, and with an explanation when the flags are wrong.
Flags parse_flags(int argc, char** argv);

} // namespace rides
