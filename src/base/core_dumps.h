// core_dumps: no memory of this process in files.
//
// A core dump holds the bodies, keys and tokens that were in memory when the process crashed, and goes to a place that
// others may read. The same switch keeps other processes of the same user from reading the memory with ptrace.
#pragma once

namespace oncekey {

// No core dumps, whatever the limits of the shell. To be called before the first secret is read.
void forbid_core_dumps();
// Takes it back, as far as the limits the process was started with allow.
void allow_core_dumps();

} // namespace oncekey
