// audit_setup: where a gateway's audit log is, and the key and head that its store keeps for it.
#pragma once

#include "audit/audit_log.h"
#include "audit/pending.h"
#include "config/config.h"

namespace oncekey {

// The name of a gateway's chain: `gateway_name`; else "gateway" with an embedded store, which one process has at a
// time, and the name of the machine with a shared one.
std::string audit_chain_name(const Config& config);

// What the store keeps for all chains; empty if it keeps nothing yet.
Result<std::optional<ChainHeads>> load_chain_heads(const std::string& store_url, Log& log);

// The path: `audit_log`, or by default `audit.log` in an embedded store's folder and `audit-NAME-STORE.log` in the
// user's state folder for a shared store; STORE is a hash that tells one store's log from another's. "off" if there is
// none: it is switched off, the store is memory:, or neither XDG_STATE_HOME nor HOME is set.
std::string audit_log_path(const Config& config, const ChainHeads& heads);

// What commands did to the store that no gateway has put into its log yet. Blocks.
Result<std::vector<PendingAction>> load_pending(const std::string& store_url, Log& log);
// Leaves an action of the command line for the log of the next gateway that looks. Blocks.
Status leave_pending(const std::string& store_url, std::string_view action, const std::string& reason, Log& log);

// Opens the log for the gateway of this name. Null where it is off. Where audit_log is not set, a log that cannot be
// written is a warning: the gateway starts without it. A chain of a newer version is a fault in any case. Blocks.
Result<std::unique_ptr<AuditLog>> open_audit_log(const Config& config, const std::string& gateway, Log& log);

} // namespace oncekey
