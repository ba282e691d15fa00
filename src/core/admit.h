// admit: may this request go on, and under which record?
//
// The first of the three decisions. It happens in two steps because most requests can be judged by their head alone and
// those that pass through must not be buffered: `screen` looks at the head, `admit` at head and body.
#pragma once

#include "base/crypto.h"
#include "core/caller.h"
#include "core/policy.h"
#include "core/principal.h"
#include "core/refusal.h"

#include <oncekey/headers.h>
#include <oncekey/record.h>

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

namespace oncekey {

// A request as the core sees it: views into whatever the HTTP side holds.
struct RequestView {
  std::string_view method;
  std::string_view target; // origin-form, as received
  const Headers& headers;
  Caller caller{};
};

struct PassThrough {};

// Tells accounts apart while they are counted; not kept anywhere and not used to find records.
struct AccountId {
  std::array<char, 8> bytes{};
  bool operator==(const AccountId&) const = default;
};

struct ReadBody {
  std::optional<AccountId> account;     // nothing where it is not known yet, or all callers are one account
  std::optional<Principal> principal{}; // for admit(), where it was found
};

struct Admitted {
  RecordId id;
  Fingerprint fingerprint;
  std::string key;    // the client's key as compared and forwarded; empty when key_from is `fingerprint`
  Millis retention{}; // the policy's, or its window for keys made of the fingerprint
};

using Screened = std::variant<PassThrough, ReadBody, Refusal>;
using Admission = std::variant<PassThrough, Admitted, Refusal>;

// By the head alone: outside the policy or without a key (pass), refused for sure, or the body is needed.
// `account_seed` is the process' own, so that nobody outside can make two accounts look alike.
Screened screen(const Policy& policy, const RequestView& request, std::uint64_t account_seed = 0);

// By head and body. `hash` is keyed with the store's secret.
// `named` is the principal that screen() found, so that it need not be looked for again.
Admission admit(const Policy& policy, const RequestView& request, std::string_view body, const KeyedHash& hash,
                std::optional<Principal> named = std::nullopt);

// For a request without a key where one is required: says where the policy looks for it.
Refusal key_missing(const Policy& policy);

} // namespace oncekey
