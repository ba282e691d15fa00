// path: one spelling for the path of a request, and one for its host.
//
// Most APIs run the same handler for `/orders`, `//orders`, `/./orders`, `/%6Frders` and `/orders;a=1`. Routes,
// webhooks and records go by the normal form of a path, so that no spelling leaves its route or makes a second record.
// What is fingerprinted and forwarded is the target as sent: another spelling under the same key is a mismatch.
//
// The normal form:
//   - characters that may stand in a segment (RFC 3986 pchar, without `;`) are decoded; every other byte is
//     percent-encoded, in capitals;
//   - runs of slashes are one slash, dot segments are removed;
//   - `;parameters` and a trailing slash are left out.
//
// Servers disagree on some paths: is `%2F` a slash, is `\` one, does `..` climb above the root? doubt() names what they
// disagree on, and other_readings() lists what they may take the path for. The caller refuses such a path when one of
// the readings is protected.
#pragma once

#include <oncekey/headers.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

class NormalPath {
 public:
  // `path` must live as long as this: a path that is normal already is not copied. Without a leading slash (the `*` of
  // OPTIONS) it is left as it is.
  explicit NormalPath(std::string_view path);
  NormalPath(const NormalPath&) = delete;
  NormalPath& operator=(const NormalPath&) = delete;

  std::string_view text() const { return copied_ ? std::string_view(text_) : sent_; }
  // The same with encoded slashes taken for slashes: what a record goes by on routes that allow them.
  std::string_view text_with_slashes() const { return slashed_.empty() ? text() : std::string_view(slashed_); }

  // What servers disagree on, such as "a backslash"; empty when they agree.
  std::string_view doubt() const { return doubt_; }
  // Two sentences for the client whose path was refused.
  std::string why_ambiguous() const;
  // Encoded slashes are the only doubt.
  bool only_encoded_slashes() const { return only_slashes_; }
  // Doubts of so many kinds, or in so long a path, that the readings are not listed: any route may be meant.
  bool beyond_telling() const { return beyond_telling_; }
  // What else servers may take the path for: with a doubt, and where there were dot segments (some servers keep them).
  const std::vector<std::string>& other_readings() const { return other_readings_; }

 private:
  void normalise();

  std::string_view sent_;
  bool copied_ = false;
  bool only_slashes_ = false;
  bool beyond_telling_ = false;
  std::string text_;
  std::string slashed_;
  std::string_view doubt_;
  std::vector<std::string> other_readings_;
};

// The normal form of a path or glob in a configuration. Empty if it has none: a doubt, a dot segment or parameters.
std::string normal_glob(std::string_view glob);

// What a person may read of what a client sent: everything that is not printable ASCII is percent-encoded.
std::string printable_target(std::string_view target);

// The host name of the Host field (the parser has put the authority of an absolute target there): lower case, without
// port and trailing dot, percent-encodings of letters, digits, `-`, `.`, `_` and `~` decoded. Empty without a Host
// field. A view of the field, or of `storage` where the field is spelled in another way.
std::string_view host_name(const Headers& headers, std::string& storage);

} // namespace oncekey
