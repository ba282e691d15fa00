// Rules about keys that the gateway's policies and the library's RunnerPolicy share.
#pragma once

namespace oncekey {

enum class KeySyntax {
  visible_ascii,     // as sent; one pair of enclosing double quotes is not part of the key
  structured_string, // RFC 9651 String, quoted; a bare key is accepted unless `strict`
  raw,               // as sent, quotes and all
};

enum class Identity {
  key,           // principal and key: the same key on another path is a mismatch
  operation_key, // principal, method, path and key: the same key on another path is another operation
};

enum class FingerprintMode {
  bytes,     // method, target and body as sent
  canonical, // the order of JSON members and form fields does not count
};

enum class PathCase { exact, ignore }; // ignore: /Orders and /orders are one path to the API

enum class ErrorFormat {
  problem,      // application/problem+json
  problem_link, // the same, with a Link to the published policy
  stripe,       // Stripe's error object and headers
};

} // namespace oncekey
