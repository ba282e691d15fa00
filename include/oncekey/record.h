// Record: what is kept for one key, and the identities it is kept under.
//
// A program that uses the library needs two of these types: RecordId, which names an operation for Runner::resume and
// the functions for operators (workers.h), and StoredResponse, the answer of an operation. Record itself is what the
// gateway's stores keep; the library has tables of its own.
//
// All types here are values: copied, compared where that is declared, and free of locks. The bytes of a Record on disk
// are described in docs/RECORD_FORMAT.md and written by src/core/record_codec.cc.
#pragma once

#include <oncekey/headers.h>
#include <oncekey/time.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace oncekey {

// 32 bytes of a hash. The tag keeps the kinds apart: a fingerprint does not pass for an id. Ordered and compared byte
// by byte, which takes time that depends on where they differ: not for secrets.
template <class Tag>
struct Digest {
  std::array<std::uint8_t, 32> bytes{};
  friend auto operator<=>(const Digest&, const Digest&) = default;
};

// Names a record or an operation: a hash of scope and key, keyed with the store's or database's own secret. The account
// and the key cannot be read back from it, and two stores have different ids for the same request.
using RecordId = Digest<struct RecordIdTag>;
// Keyed hash of what a request asks for; tells a retry from a different request under the same key.
using Fingerprint = Digest<struct FingerprintTag>;
// Plain SHA-256 of a response body that was too long to keep.
using BodyHash = Digest<struct BodyHashTag>;

// Names one attempt to claim, so that an attempt whose answer got lost on the way finds its own work again. Random; all
// zero where a store shares the caller's process, which loses no answers.
using ClaimToken = std::array<std::uint8_t, 16>;

// Sixty-four lower-case hex digits: the spelling of the command line, of the JSON API and of `Idempotency-Key` in a
// completer's request.
template <class Tag>
std::string to_hex(const Digest<Tag>& digest) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::string text;
  text.reserve(64);
  for (const std::uint8_t byte : digest.bytes) {
    text.push_back(kDigits[byte >> 4]);
    text.push_back(kDigits[byte & 15]);
  }
  return text;
}

// The first twelve hex digits: how a key appears in logs, where its text must not.
template <class Tag>
std::string short_hash(const Digest<Tag>& digest) {
  return to_hex(digest).substr(0, 12);
}

// The reverse of to_hex(). Nothing unless the text is sixty-four hex digits, in either case.
//
//     if (const auto id = oncekey::record_id_from_hex(argument)) runner.resume(*id);
std::optional<RecordId> record_id_from_hex(std::string_view hex);

enum class RecordState : std::uint8_t {
  in_progress = 1,   // an owner works on it, or has stopped doing so when the lease is over (then it is "abandoned")
  completed = 2,     // the response is here and will be replayed
  indeterminate = 3, // it may or may not have been executed; only an operator can tell
};
std::string_view to_string(RecordState state);

// What is known of a body that was longer than max_stored_body and therefore not kept.
struct OmittedBody {
  std::uint64_t length = 0;
  BodyHash sha256;
  // False while the body is still on its way, and for ever if it never arrived whole.
  bool whole = false;
};

// Parts of a record that are encrypted (AES-256-GCM). A reader that does not have the key cannot show or replay them.
struct Sealed {
  std::uint32_t key_id = 0;             // names the key in the operator's key file
  std::uint64_t fence = 0;              // the record's own key is derived with it; 0: with the record's id alone
  std::array<std::uint8_t, 12> nonce{}; // random
  std::string bytes;                    // the ciphertext, and behind it the tag of kSealTagBytes
};
inline constexpr std::size_t kSealTagBytes = 16;

// How far an answer that is kept piece by piece has come.
enum class StreamMark : std::uint8_t {
  none,  // not a stream: the answer was kept at once
  begun, // its first byte may have left; it is not whole yet, or never will be
  whole,
};

// How the owner that got the answer came to it. For people; written with the answer, so that it costs no write.
struct Course {
  Time claimed_at{};
  Time forwarded_at{};        // when the call to the upstream began
  std::uint32_t renewals = 0; // of the lease, while the call ran
  Time renewed_at{};          // the last of them; claimed_at if there was none
  friend bool operator==(const Course&, const Course&) = default;
};

// An answer as it is kept: what every retry of the request gets, byte for byte.
struct StoredResponse {
  int status = 0;
  // The words behind the status ("Created"). They may be empty.
  std::string reason;
  // End-to-end fields only, in the order of the first answer. What frames a message is added anew for every replay.
  Headers headers;
  std::string body;
  // Set where the body was too long to keep: `body` is empty then, and a retry is told so.
  std::optional<OmittedBody> omitted;
  StreamMark stream = StreamMark::none;
  // Of an answer that the gateway got; nothing in one that an operator gave, and in those of the library.
  std::optional<Course> course{};
  // Headers and body, encrypted; `headers` and `body` are empty then. Null when they are plain.
  std::shared_ptr<const Sealed> sealed{};

  // Of headers and body, or of these sealed.
  std::size_t bytes() const { return headers.lines().size() + body.size() + (sealed ? sealed->bytes.size() : 0); }
  // The owner will complete the record again with the rest.
  bool unfinished() const { return (omitted && !omitted->whole) || stream == StreamMark::begun; }
};

// The trace id of a W3C traceparent header.
using TraceId = std::array<std::uint8_t, 16>;

// A keyed hash of an account: two records with the same one belong to the same account.
using AccountTag = std::array<std::uint8_t, 16>;

// Where a claim came from. Shared stores keep it as bytes beside the token and do not look into it.
struct ClaimContext {
  std::string gateway;            // the name of the gateway that made the claim
  std::optional<TraceId> trace{}; // of the request that made it, if that has one
  Millis lease{};                 // as long as each renewal makes it; 0: not known
  // Where key and target are kept as hashes, which do not give the id again: operators search by it.
  std::optional<AccountTag> account{};
};

// What a store has under one RecordId. Changed by the pure steps of src/core/transitions.h alone, so that every store
// does the same; times are those of the store's own clock.
struct Record {
  RecordState state = RecordState::in_progress;
  // Of the request that claimed it first. A request with another one is a mismatch and never changes the record.
  Fingerprint fingerprint;
  // The number of the last claim. It grows with every claim of the key, and a write that names an older one is refused.
  std::uint64_t fence = 0;
  Time first_received{}; // retention counts from here
  Time expires_at{};     // from this instant on the record counts as absent
  Time lease_until{};    // meaningful while in_progress
  Time settled_at{};     // when it was completed or held; while in_progress, when it was taken over, if it was
  // The owner took an abandoned claim over: an earlier owner may have executed. Such a claim is never simply released.
  bool took_over = false;
  // An operator said it may be executed again: the next retry takes over whatever the policy says.
  bool rerun = false;
  // The attempt that made the present owner. Kept by shared stores alone.
  ClaimToken claimed_by{};
  // Of the same claim: the first one, unless another has taken it over.
  ClaimContext context{};

  // For people: shown by `oncekey keys` and the console, never used to decide.
  std::string route;
  std::string key;
  std::string method;
  std::string target;

  // Of a completed record, always; of the others never.
  std::optional<StoredResponse> response;

  bool expired(Time now) const { return now >= expires_at; }
  bool lease_over(Time now) const { return now >= lease_until; }
  bool abandoned(Time now) const { return state == RecordState::in_progress && lease_over(now); }
  // While in_progress: since when the present owner has it.
  Time claimed_at() const { return took_over && settled_at > first_received ? settled_at : first_received; }
  // While in_progress: when the owner last renewed its lease. Nothing before the first renewal.
  std::optional<Time> renewed_at() const {
    const Time renewed = lease_until - context.lease;
    return context.lease > Millis(0) && renewed > claimed_at() ? std::optional(renewed) : std::nullopt;
  }
  // Abandoned as operators see it: no operator has allowed another run yet.
  bool left_abandoned(Time now) const { return abandoned(now) && !rerun; }
};

} // namespace oncekey

template <class Tag>
struct std::hash<oncekey::Digest<Tag>> {
  // The bytes are the output of a keyed hash already: any eight of them are as good as another hash of all.
  std::size_t operator()(const oncekey::Digest<Tag>& digest) const noexcept {
    std::size_t value;
    std::memcpy(&value, digest.bytes.data(), sizeof value);
    return value;
  }
};
