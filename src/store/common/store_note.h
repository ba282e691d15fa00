// StoreNote: small texts that a store keeps for its gateways beside the records.
#pragma once

#include <cstddef>
#include <string_view>

namespace oncekey {

enum class StoreNote {
  identity,      // by which rules the gateways find records (cli/identity_memory.h)
  audit_heads,   // the heads of the gateways' audit logs (audit/chain.h)
  audit_pending, // actions of commands that are in no audit log yet (audit/pending.h)
};

// The file in an embedded store's folder, the field or row in a shared one.
constexpr std::string_view name_of(StoreNote note) {
  switch (note) {
    case StoreNote::identity:
      return "identity";
    case StoreNote::audit_heads:
      return "audit-heads";
    case StoreNote::audit_pending:
      return "audit-pending";
  }
  return "unknown";
}

constexpr std::size_t bytes_max_of(StoreNote note) {
  // A thousand routes and some hundred thousand credentials fit into the first.
  return note == StoreNote::identity ? 16u << 20 : 1u << 20;
}

} // namespace oncekey
