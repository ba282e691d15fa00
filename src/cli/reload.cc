#include "cli/reload.h"

#include "cli/identity_memory.h"
#include "config/identity_rules.h"
#include "config/reload_rules.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <utility>

namespace oncekey {

LogLevel log_level_of(std::string_view text) {
  if (text == "debug") return LogLevel::debug;
  if (text == "warning") return LogLevel::warning;
  if (text == "error") return LogLevel::error;
  return LogLevel::info;
}

Reloader::Reloader(asio::io_context& context, ServeFlags flags, ReadConfig running, Parts parts, Log& log)
    : flags_(std::move(flags)),
      running_(std::move(running)),
      parts_(std::move(parts)),
      log_(log),
      signals_(context, SIGHUP) {
  wait();
}

void Reloader::wait() {
  signals_.async_wait([this](const error_code& ec, int) {
    if (ec) return;
    reload();
    wait();
  });
}

void Reloader::reload() {
  std::vector<std::string> reasons;
  std::string changed;
  if (parts_.shared.draining.load()) {
    reasons.emplace_back("the gateway is stopping");
  } else {
    ReadConfig next = read_config(flags_, NamedFiles::looked_at);
    for (const Finding& finding : next.findings) reasons.push_back(shown(finding, next.file_name));
    if (reasons.empty()) {
      if (const Status taken = take_on(std::move(next), changed, reasons); !taken)
        reasons.push_back(taken.fault().message);
    }
  }
  Metrics& metrics = parts_.shared.metrics;
  if (reasons.empty()) {
    metrics.reloads_loaded.Increment();
    for (const std::string& warning : warnings_of(running_.config)) log_.warning("config", {{"warning", warning}});
    log_.always("config_reloaded", {{"changed", changed.empty() ? "nothing" : changed}});
    return;
  }
  metrics.reloads_refused.Increment();
  for (const std::string& reason : reasons)
    log_.error("config_reload_refused", {{"reason", reason}, {"next", "the configuration of before stays in force"}});
}

Status Reloader::take_on(ReadConfig next, std::string& changed, std::vector<std::string>& reasons) {
  const ConfigChanges changes = changes_between(running_, next);
  for (const std::string& setting : changes.need_restart)
    reasons.push_back(fmt::format("{} has changed and needs a restart", setting));
  const IdentityRules rules = identity_rules_of(next.config);
  const IdentityRules rules_before = identity_rules_of(running_.config);
  for (const std::string& lost : lost_identities(rules_before, rules))
    reasons.push_back(
        fmt::format("keys would be forgotten, and retries executed again: {}; put it back, or restart "
                    "with --accept-identity-change",
                    lost));
  if (!reasons.empty()) return ok_status();
  if (parts_.keeper != nullptr) {
    if (Status usable = parts_.keeper->check_files(); !usable) return usable;
  }
  auto for_clients = parts_.clients.load_tls(next.config.tls_cert, next.config.tls_key);
  if (!for_clients) return std::move(for_clients).fault();
  auto for_operators = parts_.operators.load_tls(next.config.admin_tls_cert, next.config.admin_tls_key);
  if (!for_operators) return std::move(for_operators).fault();

  if (!changes.reloadable.empty()) {
    Config used = next.config;
    const Config& in_force = parts_.shared.config();
    // As they were fitted to the machine at start.
    used.limits = in_force.limits;
    if (used.admin_token.empty()) used.admin_token = in_force.admin_token;
    if (Status taken = parts_.shared.use(std::move(used)); !taken)
      return invalid(taken.fault().message + ": this needs a restart");
  }
  // From here on nothing fails. No key was forgotten, so that what the store remembers may follow.
  if (rules != rules_before) {
    const Status remembered =
        remember_identity(next.config.store, rules, IdentityChange::refused, parts_.shared.store.now(), log_);
    if (!remembered) log_.warning("identity_rules_not_remembered", {{"reason", remembered.fault().message}});
  }
  if (parts_.keeper != nullptr) parts_.keeper->reread_files();
  parts_.clients.use_tls(*std::move(for_clients));
  parts_.operators.use_tls(*std::move(for_operators));
  parts_.trust_upstream();
  log_.drop_below(log_level_of(next.config.log_level));
  changed = fmt::format("{}", fmt::join(changes.reloadable, ", "));
  running_ = std::move(next);
  return ok_status();
}

} // namespace oncekey
