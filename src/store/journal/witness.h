// Witness: a small file beside the store's folder that says how far the store has come.
//
// An older copy of the folder that is put back looks healthy: it has merely forgotten what came after the copy was
// made, and every retry of that would be executed again. The witness is not in the folder, so it is not put back with
// it. About once a second it is replaced by the store's id and newest sequence number. A store with another id, or with
// a smaller number than its witness, has forgotten.
//
// Only numbers whose batch is durable are written, and the file itself is not synced: a crash may leave the witness
// behind the store, which is harmless, and never ahead of it.
#pragma once

#include <oncekey/result.h>

#include <cstdint>

namespace oncekey {

struct StoreAt {
  std::string id; // hexadecimal
  std::uint64_t sequence = 0;
};

std::string encode_witness(const StoreAt& at);
// Nothing for a file that a power cut left empty or torn.
std::optional<StoreAt> decode_witness(std::string_view bytes);

// What the witness shows to be missing in the store, in words; nothing if the store is whole.
std::optional<std::string> what_is_missing(const StoreAt& witness, const StoreAt& store);

class Witness {
 public:
  // `folder` is the store's.
  explicit Witness(const std::string& folder);

  const std::string& path() const { return path_; }
  // Nothing if there is none. A fault for one that cannot be read, or that another user has put there.
  Result<std::optional<StoreAt>> read() const;
  Status write(const StoreAt& at) const;

 private:
  std::string path_;
};

} // namespace oncekey
