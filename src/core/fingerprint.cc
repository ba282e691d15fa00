#include "core/scope.h"

#include "core/canonical_json.h"
#include "core/form.h"
#include "core/path.h"

#include <xxhash.h>

#include <cstdint>
#include <cstring>
#include <list>
#include <string>
#include <vector>

namespace oncekey {
namespace {

struct HashedBody {
  std::string_view kind;
  std::string_view bytes;
};

// `canonical` holds the bytes where they are not the body's own.
HashedBody hashed_body(const Policy& policy, const Headers& headers, std::string_view body, std::string& canonical) {
  if (policy.fingerprint == FingerprintMode::canonical) {
    switch (body_kind(headers)) {
      case BodyKind::json:
        if (canonical_json(body, policy.fingerprint_ignore, canonical)) return {"json", canonical};
        break;
      case BodyKind::form:
        if (canonical_form(body, canonical)) return {"form", canonical};
        break;
      case BodyKind::multipart:
        if (canonical_multipart(headers, body, canonical)) return {"multipart", canonical};
        break;
      case BodyKind::other:
        break;
    }
  }
  return {"bytes", body};
}

void put_host_tag(std::string_view host, const KeyedHash& hash, Fingerprint& fingerprint) {
  const std::uint64_t tag = XXH3_64bits_withSeed(host.data(), host.size(), hash.seed());
  std::memcpy(fingerprint.bytes.data(), &tag, sizeof tag);
}

} // namespace

Fingerprint fingerprint_of(const Policy& policy, const RequestView& request, std::string_view body,
                           const KeyedHash& hash) {
  std::string canonical;
  const HashedBody hashed = hashed_body(policy, request.headers, body, canonical);
  std::vector<std::string_view> parts;
  parts.reserve(6 + 3 * policy.fingerprint_headers.size());
  std::string spelled;
  const std::string_view host = policy.ignore_host ? std::string_view{} : host_name(request.headers, spelled);
  parts.insert(parts.end(), {"oncekey fingerprint 2", request.method, host, request.target, hashed.kind, hashed.bytes});
  std::list<std::string> counts;
  for (const std::string& name : policy.fingerprint_headers) {
    // How many lines there are tells an absent header from an empty one, and ends the list of values.
    parts.push_back(counts.emplace_back(std::to_string(request.headers.count(name))));
    for (std::size_t i = 0; i < request.headers.size(); ++i) {
      const Field field = request.headers[i];
      if (equal_ignoring_case(field.name, name)) parts.push_back(field.value);
    }
  }
  Fingerprint fingerprint{hash.of(parts)};
  // The host stands in front by itself: a status URL has no body to compare, but knows the host it was asked under.
  if (!policy.ignore_host) put_host_tag(host, hash, fingerprint);
  return fingerprint;
}

bool same_host(const Policy& policy, const Headers& headers, const Fingerprint& fingerprint, const KeyedHash& hash) {
  if (policy.ignore_host) return true;
  std::string spelled;
  Fingerprint other = fingerprint;
  put_host_tag(host_name(headers, spelled), hash, other);
  return other == fingerprint;
}

} // namespace oncekey
