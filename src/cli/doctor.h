// doctor: `oncekey doctor`, which tries out what `oncekey check` cannot know from files.
//
// It binds the listeners and lets them go, tries the lock of an embedded store, connects to the servers of a shared
// one, to the upstream and to the destinations of jobs, and looks at the clock and the limits of the machine. It
// changes nothing that lasts, and sends a request to no server but the gateway's own admin listener.
#pragma once

#include "config/load.h"

#include <iosfwd>
#include <string>
#include <vector>

namespace oncekey {

struct Diagnosis {
  enum class Status { ok, warning, problem };
  Status status = Status::ok;
  std::string about; // "listen", "store", "upstream"
  std::string text;
  std::string next; // what to do; empty where all is well
};

std::vector<Diagnosis> diagnose(const ServeFlags& flags);

enum class DoctorOutput { text, json };
// Prints one line for each diagnosis. Returns 0, or 1 if there is a problem; a warning is not a problem.
int run_doctor(const ServeFlags& flags, DoctorOutput output, std::ostream& out);
int run_doctor(const ServeFlags& flags, DoctorOutput output);

} // namespace oncekey
