// fingerprint: what a request asks for, as a keyed hash.
//
// Method and target always count, so that under policies whose identity is the key alone the same key on another
// endpoint is a mismatch. So does the host name, unless the policy says that one API has several: virtual hosts share
// credentials, and the answer of one must not be replayed to another. Other headers never count unless the policy lists
// them: clients change them between tries. X-HTTP-Method-Override and its like are such headers.
#pragma once

#include "base/crypto.h"
#include "core/admit.h"
#include "core/policy.h"

#include <oncekey/record.h>

#include <string_view>

namespace oncekey {

// Under `canonical`, bodies that say they are JSON, a form or multipart/form-data are hashed in their canonical form;
// whatever cannot be read as what it says is hashed as bytes. The four kinds never meet.
Fingerprint fingerprint_of(const Policy& policy, const RequestView& request, std::string_view body,
                           const KeyedHash& hash);

// Whether a request names the host that the fingerprint was made under, or the policy does not care. The first eight
// bytes of a fingerprint tell.
bool same_host(const Policy& policy, const Headers& headers, const Fingerprint& fingerprint, const KeyedHash& hash);

} // namespace oncekey
