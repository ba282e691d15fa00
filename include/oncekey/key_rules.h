// key_rules: rules about keys and answers that the gateway's policies and the library's RunnerPolicy (runner.h) share.
//
// docs/POLICIES.md says which of them each named policy (classic, ietf, stripe-v1, stripe-v2) has. Changing one of the
// first four for keys that are in use makes their records unfindable, or turns their retries into mismatches: a retry
// would then be executed as a new request, or be refused. Change them only when no client is in the middle of a retry.
#pragma once

namespace oncekey {

// How the value of the key header is read. A key has 1 to 255 characters after reading. A value that cannot be read is
// refused and never ignored: ignoring it would execute the request without the protection that its client asked for.
enum class KeySyntax {
  // Visible ASCII characters, as sent. One pair of enclosing double quotes is not part of the key, so that a client
  // that
  // begins to quote its keys keeps them.
  visible_ascii,
  // A String of RFC 9651, in double quotes, as the IETF draft has it. A key without quotes is accepted as well, unless
  // the policy is `strict`.
  structured_string,
  // As sent, quotes and all: "a" with quotes and a without them are two keys.
  raw,
};

// What makes two requests "the same key".
enum class Identity {
  // Principal and key. The same key on another path or with another method is a mismatch.
  key,
  // Principal, method, path and key. The same key on another path is another operation, with a record of its own.
  operation_key,
};

// What makes a request under a known key a retry. Anything else under that key is a mismatch, which is refused.
enum class FingerprintMode {
  // Method, target and body, byte by byte as sent.
  bytes,
  // The same, but the order of JSON members and form fields does not count, nor do spaces between JSON tokens. For
  // clients that serialize the body again for every attempt.
  canonical,
};

// Whether the letters of a path distinguish operations. `ignore` is for an API that serves /Orders and /orders with
// the same handler: otherwise another spelling would be executed a second time.
enum class PathCase { exact, ignore };

// How a refusal is written, so that clients of an existing API can parse it.
enum class ErrorFormat {
  problem,      // application/problem+json, RFC 9457
  problem_link, // the same, with a Link header to the published policy
  stripe,       // Stripe's error object and headers
};

} // namespace oncekey
