// SealingStore: any store, with what clients and upstreams sent encrypted before the store sees it.
//
// It stands above everything else, GuardedStore too, so that no store knows of encryption: a call that is repeated
// carries the same sealed bytes, and copies in memory are sealed as well. Found records, listings and jobs are opened
// on their way out.
//
//   record   key and target   with the id alone: their fence is not known before the claim. A text in the target's
//   place;
//                             in the key's stands a keyed hash, so that a search by the whole key finds its records
//            headers, body    with id and fence; an operator's answer with the id alone
//   job      key              with the id alone; a text
//            message          target, headers and body, with the id alone
//
// In clear stay what stores and people need without the key: ids, states, times, routes, methods, statuses with their
// reasons, the names of gateways, trace ids, and how the attempts at a job ended.
//
// A part whose encryption key is not there stays sealed: the gateway answers 503 and executes nothing. A response whose
// bytes do not open is a `corrupt` record.
#pragma once

#include "core/sealing.h"
#include "core/store.h"

#include <memory>

namespace oncekey {

// The sealer outlives the store.
std::unique_ptr<Store> sealing(std::shared_ptr<Store> store, const Sealer& sealer);

} // namespace oncekey
