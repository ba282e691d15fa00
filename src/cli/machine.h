// machine: what a gateway needs to know of the machine it runs on, asked of the kernel and measured.
#pragma once

#include <oncekey/result.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

namespace oncekey {

// What kind of file system a folder is on, as far as that matters to a store.
enum class FileSystemKind {
  disk,
  memory,    // gone with the machine
  container, // the layer of a container: gone with it
  network,   // several machines could open a store on it, and locks do not keep them apart
};
struct FileSystem {
  FileSystemKind kind = FileSystemKind::disk;
  std::string name; // "ext4"
};
std::optional<FileSystem> file_system_of(const std::string& folder);

// How long writes of one block take until they survive a power cut. Writes to a file without a name, which is gone
// afterwards.
struct SyncTimes {
  std::chrono::microseconds median{};
  std::chrono::microseconds longest{};
};
Result<SyncTimes> measure_syncs(const std::string& folder);

// Nothing if it may be used, else why not.
Status may_use_io_uring();

} // namespace oncekey
