// core_dumps: keeps the memory of this process out of files.
//
// A core dump holds the bodies, keys and tokens that were in memory when the process crashed, and goes to a place that
// others may read. The same switch keeps other processes of the same user from reading the memory with ptrace.
#pragma once

namespace oncekey {

// Forbids core dumps, whatever limits the shell has set. Call it before the first secret is read.
void forbid_core_dumps();
// Allows core dumps again, up to the hard limit that the process was started with.
void allow_core_dumps();

} // namespace oncekey
