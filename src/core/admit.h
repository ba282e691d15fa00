// admit: may this request go on, and under which record?
//
// The first of the three decisions. It happens in two steps because most requests can be judged by their head alone and
// those that pass through must not be buffered: `screen` looks at the head, `admit` at the body too. What the first has
// found (the key, as far as the head tells) is given to the second; who asks is found once, by Requester.
#pragma once

#include "base/crypto.h"
#include "core/caller.h"
#include "core/key.h"
#include "core/policy.h"
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
};

// Who sends a request: its principal, looked for when it is first asked for, and once. Rate limits, shares and keys all
// go by this one.
class Requester {
 public:
  // All three must outlive this.
  Requester(const Policy& policy, const Headers& headers, const Caller& caller = {})
      : policy_(policy), headers_(headers), caller_(caller) {}
  Requester(const Requester&) = delete;
  Requester& operator=(const Requester&) = delete;

  // Refused as find_principal() (core/scope.h) says.
  const std::variant<Principal, Refusal>& principal() const;

 private:
  const Policy& policy_;
  const Headers& headers_;
  const Caller caller_;
  mutable std::optional<std::variant<Principal, Refusal>> found_;
};

// The request has no key, or not of the policy's methods: it passes through as it is.
struct Unprotected {};

// Tells accounts apart while they are counted; not kept anywhere and not used to find records.
struct AccountId {
  std::array<char, 8> bytes{};
  bool operator==(const AccountId&) const = default;
};

struct ReadBody {
  std::optional<AccountId> account; // nothing where it is not known yet, or all callers are one account
  HeadKey key;                      // for admit()
};

struct Admitted {
  RecordId id;
  Fingerprint fingerprint;
  std::string key;    // the client's key as compared and forwarded; empty when key_from is `fingerprint`
  Millis retention{}; // the policy's, or its window for keys made of the fingerprint
  std::optional<AccountTag> account{}; // where the policy says `redact`
};

using ScreenAnswer = std::variant<Unprotected, ReadBody, Refusal>;
using AdmitAnswer = std::variant<Unprotected, Admitted, Refusal>;

// By the head alone: outside the policy or without a key (pass), refused for sure, or the body is needed.
// `account_seed` is random for each process, so that no caller can make two accounts collide.
ScreenAnswer screen(const Policy& policy, const RequestView& request, const Requester& requester,
                    std::uint64_t account_seed = 0);

// By head and body, for a request that screen() wants the body of. `key` is what it found. `hash` is keyed with the
// store's secret.
AdmitAnswer admit(const Policy& policy, const RequestView& request, const Requester& requester, HeadKey key,
                  std::string_view body, const KeyedHash& hash);

// For a request without a key where one is required: says where the policy looks for it.
Refusal key_missing(const Policy& policy);

} // namespace oncekey
