#include "cli/reload.h"

#include "base/crypto.h"
#include "base/enum_name.h"
#include "base/masked_url.h"
#include "config/identity_files.h"
#include "config/identity_rules.h"
#include "config/sealing_key_file.h"
#include "store/open_store.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <csignal>
#include <fstream>
#include <iterator>

namespace oncekey {
namespace {

FileDigests digests_of_files(const Config& config) {
  FileDigests digests;
  const auto add = [&](std::string_view setting, const std::string& path) {
    const std::string name = fmt::format("{} {}", setting, path);
    if (path.empty() || digests.contains(name)) return;
    std::ifstream file(path, std::ios::binary);
    digests[name] = sha256_hex({std::string(std::istreambuf_iterator<char>(file), {})});
  };
  add("tls_cert", config.tls_cert);
  add("tls_key", config.tls_key);
  add("client_ca", config.client_ca);
  add("admin_tls_cert", config.admin_tls_cert);
  add("admin_tls_key", config.admin_tls_key);
  add("admin_client_ca", config.admin_client_ca);
  add("upstream_ca", config.upstream_ca);
  add("encryption_key_file", config.encryption_key_file);
  for (const Route& route : config.routes) {
    add("accounts", route.policy.accounts);
    add("jwt_keys", jwks_path(route.policy.tokens.keys));
  }
  return digests;
}

} // namespace

Reloader::Reloader(Loop& loop, ServeFlags flags, ReadConfig running, IdentityBasis remembered, Parts parts, Log& log)
    : flags_(std::move(flags)),
      running_(std::move(running)),
      files_(digests_of_files(running_.config)),
      remembered_(std::move(remembered)),
      parts_(std::move(parts)),
      log_(log),
      signals_(loop, {SIGHUP}, [this] { reload(); }),
      writer_(loop, running_.config.store, log) {
  if (parts_.keeper != nullptr) {
    parts_.keeper->on_accounts_added([this](const std::string& file, std::size_t credentials) {
      // For other stores the line is written when the store has remembered the entries.
      if (running_.config.store.starts_with("memory:")) log_added_accounts(log_, file, credentials);
      remember_accounts();
    });
  }
}

void Reloader::reload() {
  // A signal that comes during a reload is kept until the reload has ended.
  if (reloading_) {
    asked_again_ = true;
    return;
  }
  reloading_ = true;
  if (parts_.begins) parts_.begins();
  std::vector<std::string> reasons;
  const std::shared_ptr<Next> next = prepare(reasons);
  if (!next) {
    refuse(reasons);
    return reloaded();
  }
  if (next->basis == remembered_) {
    take_on(*next);
    return reloaded();
  }
  // Remembered before it is used: a restart must not accept rules that forget what is executed from now on.
  writer_.remember(next->basis, [this, next](const Status& remembered) {
    if (remembered) {
      take_on(*next);
    } else {
      refuse({remembered.fault().message});
    }
    reloaded();
  });
}

void Reloader::reloaded() {
  reloading_ = false;
  if (parts_.ended) parts_.ended();
  if (std::exchange(asked_again_, false)) reload();
}

void Reloader::refuse(const std::vector<std::string>& reasons) {
  parts_.shared.metrics.reloads_refused.Increment();
  if (AuditLog* const audit = parts_.shared.audit)
    audit->write({.event = "action", .who = "SIGHUP", .action = "config_reload", .result = "refused"});
  for (const std::string& reason : reasons)
    log_.error("config_reload_refused", {{"reason", reason}, {"next", "the configuration of before stays in force"}});
}

std::shared_ptr<Reloader::Next> Reloader::prepare(std::vector<std::string>& reasons) {
  if (parts_.shared.draining.load()) {
    reasons.emplace_back("the gateway is stopping");
    return nullptr;
  }
  auto next = std::make_shared<Next>();
  next->read = read_config(flags_, NamedFiles::looked_at);
  for (const Finding& finding : next->read.findings) reasons.push_back(shown(finding, next->read.file_name));
  if (!reasons.empty()) return nullptr;
  const ConfigChanges changes = changes_between(running_, next->read);
  for (const std::string& setting : changes.need_restart)
    reasons.push_back(fmt::format("{} has changed and needs a restart", setting));
  for (const std::string& lost :
       lost_identities(identity_rules_of(running_.config), identity_rules_of(next->read.config)))
    reasons.push_back(
        fmt::format("keys would be forgotten, and retries executed again: {}; put it back, or restart "
                    "with --accept-identity-change",
                    lost));
  if (!reasons.empty()) return nullptr;
  if (const Status loaded = load(*next, changes); !loaded) {
    reasons.push_back(loaded.fault().message);
    return nullptr;
  }
  return next;
}

Status Reloader::load(Next& next, const ConfigChanges& changes) const {
  const Config& config = next.read.config;
  if (parts_.keeper != nullptr) {
    if (Status usable = parts_.keeper->check_files(); !usable) return usable;
  }
  auto basis = identity_basis_of(config);
  if (!basis) return std::move(basis).fault();
  next.basis = *std::move(basis);
  auto for_clients = parts_.clients.load_tls(config.tls_cert, config.tls_key);
  if (!for_clients) return std::move(for_clients).fault();
  next.for_clients = *std::move(for_clients);
  auto for_operators = parts_.operators.load_tls(config.admin_tls_cert, config.admin_tls_key);
  if (!for_operators) return std::move(for_operators).fault();
  next.for_operators = *std::move(for_operators);

  if (parts_.sealer != nullptr) {
    auto keys = load_sealing_keys(config.encryption_key_file);
    if (!keys) return invalid("encryption_key_file " + keys.fault().message);
    if (const Status may = (*keys)->may_follow(parts_.sealer->keys()); !may)
      return invalid(fmt::format("encryption_key_file {}: {}", config.encryption_key_file, may.fault().message));
    next.sealing_keys = *std::move(keys);
    // Under one id two gateways, or two reloads, may have two keys: the store's secret shows which one is right.
    auto tried = load_sealing_keys(config.encryption_key_file);
    if (!tried) return invalid("encryption_key_file " + tried.fault().message);
    const Sealer with(*std::move(tried));
    if (const Status opened = check_sealed_secret(config.store, &with); !opened)
      return invalid(fmt::format("encryption_key_file {}: {}", config.encryption_key_file, opened.fault().message));
  }

  next.changed = changes.reloadable;
  next.files = digests_of_files(config);
  for (const auto& [file, digest] : next.files) {
    const auto before = files_.find(file);
    if (before != files_.end() && before->second != digest) next.changed.push_back(file);
  }
  if (changes.reloadable.empty()) return ok_status();
  Config used = config;
  const Config& in_force = parts_.shared.config();
  // The limits stay as fit_descriptors() set them at start.
  used.limits = in_force.limits;
  if (used.admin_token.empty()) used.admin_token = in_force.admin_token;
  auto generation = parts_.shared.prepare(std::move(used));
  if (!generation) return invalid(generation.fault().message + ": this needs a restart");
  next.generation = *std::move(generation);
  return ok_status();
}

void Reloader::take_on(Next& next) {
  if (next.generation) parts_.shared.use(std::move(next.generation));
  remembered_ = std::move(next.basis);
  running_ = std::move(next.read);
  files_ = std::move(next.files);
  if (parts_.keeper != nullptr) parts_.keeper->reread_files();
  if (next.sealing_keys) {
    parts_.sealer->use(std::move(next.sealing_keys));
    // A shared store does so by itself, and this loop does not wait for one.
    const std::string& store = running_.config.store;
    const Status resealed = folder_of_store(store) ? reseal_secret(store, *parts_.sealer, log_) : ok_status();
    if (!resealed)
      log_.warning("secret_not_sealed", {{"store", masked_url(store)}, {"reason", resealed.fault().message}});
  }
  parts_.clients.use_tls(std::move(next.for_clients));
  parts_.operators.use_tls(std::move(next.for_operators));
  parts_.trust_upstream();
  log_.drop_below(enum_named<LogLevel>(running_.config.log_level).value_or(LogLevel::info));
  parts_.shared.metrics.reloads_loaded.Increment();
  for (const std::string& warning : warnings_of(running_.config)) log_.warning("config", {{"warning", warning}});
  if (AuditLog* const audit = parts_.shared.audit)
    audit->write({.event = "action", .who = "SIGHUP", .action = "config_reload", .result = "done"});
  log_.always("config_reloaded",
              {{"changed", next.changed.empty() ? "nothing" : fmt::format("{}", fmt::join(next.changed, ", "))}});
}

void Reloader::remember_accounts() {
  auto basis = identity_basis_of(running_.config);
  if (!basis || *basis == remembered_) return; // a file that changes again is looked at again
  writer_.remember(*basis, [this, basis = *basis](const Status& remembered) {
    if (remembered) {
      remembered_ = basis;
    } else {
      log_.warning("accounts_not_remembered",
                   {{"reason", remembered.fault().message},
                    {"meaning", "a restart does not notice if an entry that was added is gone again"},
                    {"next", "send SIGHUP to try again"}});
    }
  });
}

} // namespace oncekey
