// derive: keys for calls further down.
//
// One logical operation needs one key for every foreign API it calls, the same on every attempt and different for every
// call. A derived key is made from the operation's key and a label:
//
//     derive(key, label) = UUIDv8( SHA-256( part("oncekey derive 1") ‖ part(key) ‖ part(label) ) )
//
// where part(x) is the length of x as eight bytes, the lowest first, and then x; and UUIDv8 takes the first sixteen
// bytes of the hash, sets version 8 and the RFC 9562 variant, and writes them in the usual 36 characters: a form that
// every vendor accepts. Test vectors for other languages are in src/core/derive_test.cc.
#pragma once

#include <string>
#include <string_view>

namespace oncekey {

// Any bytes and any length, empty texts included; each pair has a key of its own, and ("ab", "c") differs from
// ("a", "bc"). The result depends on nothing else, in every version of Oncekey: a label that changes means a new key,
// and with it a second execution. Not a secret: a caller who knows key and label can compute it. May be called from any
// thread.
std::string derive(std::string_view key, std::string_view label);

} // namespace oncekey
