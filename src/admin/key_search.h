// key_search: finds the ids of records from what a support case tells: a key, and perhaps the account's credential.
//
// An id is a keyed hash over the account, the key and, by most policies, method and path. An operator who knows all of
// these finds the record at once, however many there are; the hash's secret never leaves the gateway.
#pragma once

#include "base/crypto.h"
#include "config/config.h"
#include "gateway/trust.h"

#include <oncekey/record.h>

namespace oncekey {

struct KeySearch {
  // As the client sends it or as a listing shows it: each route's key syntax reads it, so that "k1" in quotes is k1
  // where clients write keys in quotes.
  std::string key;
  // The account as the client sends it: the value of the header or cookie that `scope` names, the token of a jwt scope,
  // the name in a certificate. Empty if it is not known.
  std::string principal;
  // Further fields that the scope asks for, such as Stripe-Account and Host.
  Headers headers;
  std::string route; // its name; empty for all
  std::string method;
  std::string path;
};

struct SearchedIds {
  std::vector<RecordId> ids;
  // Whether every record of this key must have one of these ids. If not, `missing` says what else is needed.
  bool complete = true;
  std::string missing;
};

// What ids are made with.
struct IdRules {
  const Config& config;
  const Trust& trust;
  const KeyedHash& hash;
};

SearchedIds ids_of(const KeySearch& search, const IdRules& rules);

// The texts under which records of the key may be kept: as given, as the routes' key syntaxes read it, and what stands
// in its place on routes with `redact`.
std::vector<std::string> key_texts_of(const KeySearch& search, const IdRules& rules);

// Whether a record that was found by its key fits everything else that is given.
bool is_searched(const RecordId& id, const Record& record, const KeySearch& search, const IdRules& rules);

// Whether a record that was found by its key is the account's: its id is made again, with its own method and target.
bool belongs_to(const RecordId& id, const Record& record, const KeySearch& search, const IdRules& rules);

} // namespace oncekey
