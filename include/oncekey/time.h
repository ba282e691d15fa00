// time: the two units that all interfaces use.
//
// Time is an argument everywhere in Oncekey: the rules never ask what time it is. Leases, retention and backoff are
// counted on the clock of the store or the database, so that machines whose clocks differ agree on them.
#pragma once

#include <chrono>

namespace oncekey {

// A point on a store's or a database's clock, in milliseconds. It can be compared with other points of the same store
// only: two stores have two clocks.
using Time = std::chrono::sys_time<std::chrono::milliseconds>;

// A length of time. Every duration in an options struct is one; std::chrono converts seconds, minutes and hours to it.
using Millis = std::chrono::milliseconds;

} // namespace oncekey
