// sealing: parts of records and jobs, encrypted at rest with the keys of an encryption_key_file.
//
// AES-256-GCM with a random nonce. Every part has an encryption key of its own, derived by HKDF-SHA-256 (RFC 5869) from
// a key of the file, the part's kind, the record's id and the owner's fence. So a part that was copied to another
// record, or to another owner of the same one, does not open. docs/RECORD_FORMAT.md has the bytes.
//
// The file has one key a line: "ID KEY", where ID is a number above 0 and KEY is 32 bytes in hexadecimal or base64.
// The first line's key seals; all of them open. Empty lines and lines that begin with # are left out.
#pragma once

#include "base/crypto.h"

#include <oncekey/record.h>
#include <oncekey/result.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// Their names are part of the format.
enum class SealedPart {
  texts,    // a record's key and target
  response, // an answer's headers and body
  message,  // a job's target, headers and body
  job_key,
  secret, // the store's, with which ids are made
};

// A key file that was read. Not changed after that: any thread may use it.
class SealingKeys {
 public:
  // `file` is named in faults, which never hold a key.
  static Result<std::unique_ptr<const SealingKeys>> parse(std::string_view text, const std::string& file);

  // With the first key. `plain` is encrypted where it is.
  Sealed seal(SealedPart part, const RecordId& id, std::uint64_t fence, std::string plain) const;
  // `unavailable` if the key is not in the file, `corrupt` if the bytes do not open with it.
  Result<std::string> open(SealedPart part, const RecordId& id, const Sealed& sealed) const;

  // The first key's, which seals.
  std::uint32_t sealing_id() const { return keys_.front()->id; }
  // "2, 1"
  std::string ids() const;

  // Whether a running gateway may go on with these keys after `before`. The key that has sealed must stay in the file
  // until what it has sealed has expired, and no id may stand for another key.
  Status may_follow(const SealingKeys& before) const;

 private:
  struct Key {
    Key(std::uint32_t number, const Secret& pseudorandom) : id(number), derive(pseudorandom) {}
    const std::uint32_t id;
    const KeyedHash derive; // keyed with HKDF's pseudorandom key
  };
  const Key* find(std::uint32_t id) const;

  std::vector<std::unique_ptr<const Key>> keys_;
};

// The keys in force, which a reload replaces. Any thread may use it. All keys stay in memory, so that a call needs no
// lock.
class Sealer {
 public:
  explicit Sealer(std::unique_ptr<const SealingKeys> keys) { use(std::move(keys)); }

  const SealingKeys& keys() const { return *current_.load(std::memory_order_acquire); }
  void use(std::unique_ptr<const SealingKeys> keys);

  // Whether a store may seal its secret anew with the newest key. Not at first: a start that is refused leaves the
  // secret as it was, so that the configuration of before still opens the store.
  bool may_reseal() const { return may_reseal_.load(std::memory_order_acquire); }
  void let_reseal() { may_reseal_.store(true, std::memory_order_release); }

 private:
  std::atomic<bool> may_reseal_ = false;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const SealingKeys>> all_;
  std::atomic<const SealingKeys*> current_ = nullptr;
};

} // namespace oncekey
