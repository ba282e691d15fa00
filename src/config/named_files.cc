// The files and folders that a configuration names, looked at before anything starts.
#include "base/certificate.h"
#include "base/line_file.h"
#include "base/private_files.h"
#include "config/identity_files.h"
#include "config/problems.h"
#include "config/sealing_key_file.h"

#include <fmt/format.h>

#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <optional>
#include <set>

namespace oncekey {
namespace {

constexpr std::string_view kEmbedded = "journal:";

// Why this folder cannot be made or written to. Missing parents are made at start: `nearest`, which exists, must allow
// it.
std::optional<std::string> why_no_folder(const std::filesystem::path& folder, std::filesystem::path& nearest,
                                         struct stat& status) {
  nearest = folder;
  while (::stat(nearest.empty() ? "." : nearest.c_str(), &status) != 0) {
    if (errno == ENOENT && std::filesystem::is_symlink(nearest))
      return fmt::format("{} is a symbolic link to nothing; make what it points to, or remove it", nearest.string());
    if (errno != ENOENT && errno != ENOTDIR) return fmt::format("{}: {}", nearest.string(), std::strerror(errno));
    if (nearest.empty() || nearest == nearest.parent_path())
      return fmt::format("{}: {}", folder.string(), std::strerror(errno));
    nearest = nearest.parent_path();
  }
  if (nearest.empty()) nearest = ".";
  if (!S_ISDIR(status.st_mode)) return fmt::format("{} is a file, and a folder is needed", nearest.string());
  return why_no_new_file_in(nearest.string());
}

std::optional<std::string> why_no_audit_log(const std::string& path) {
  std::filesystem::path nearest;
  struct stat status {};
  if (auto why = why_no_folder(std::filesystem::path(path).parent_path(), nearest, status)) return why;
  if (::stat(path.c_str(), &status) != 0) return std::nullopt;
  const Status usable = LineFile::check(path);
  return usable ? std::nullopt : std::optional(usable.fault().message);
}

std::optional<std::string> why_no_store(const std::string& path) {
  namespace fs = std::filesystem;
  fs::path folder = fs::path(path).lexically_normal();
  if (folder.filename().empty()) folder = folder.parent_path(); // it ended in a slash
  fs::path nearest_folder;
  struct stat status {};
  if (auto why = why_no_folder(folder, nearest_folder, status)) return why;
  const std::string nearest = nearest_folder.string();
  if (nearest_folder != folder && !(folder.empty() && nearest == ".")) return std::nullopt;
  constexpr mode_t kOthers = S_IRWXG | S_IRWXO;
  if (status.st_uid != ::geteuid() && ::geteuid() != 0 && (status.st_mode & kOthers) != 0)
    return fmt::format("{} belongs to another user and others can read it; start as its owner", nearest);
  // The witness stands beside the store.
  const std::string parent = folder.has_parent_path() ? folder.parent_path().string() : ".";
  return why_no_new_file_in(parent);
}

} // namespace

std::string setting_in(std::string_view list, std::size_t index, std::string_view setting) {
  return fmt::format("{}[{}].{}", list, index, setting);
}

std::vector<Problem> problems_of_files(const Config& config) {
  std::vector<Problem> out;
  const auto add = [&](std::optional<std::size_t> route, std::string setting, std::string text) {
    out.push_back({route, {std::move(setting)}, std::move(text)});
  };
  const auto check_pair = [&](std::string_view prefix, const std::string& certificate, const std::string& key) {
    for (const PemFinding& finding : check_key_pair(certificate, key)) {
      const std::string setting =
          fmt::format("{}{}", prefix, finding.in == PemFinding::In::certificate ? "tls_cert" : "tls_key");
      add(std::nullopt, setting, fmt::format("{} {}", setting, finding.text));
    }
  };
  const auto check_trusted = [&](std::string setting, std::string_view name, const std::string& file) {
    if (file.empty()) return;
    if (const Status usable = check_trusted_certificates(file); !usable)
      add(std::nullopt, std::move(setting), fmt::format("{} {}", name, usable.fault().message));
  };
  check_pair("", config.tls_cert, config.tls_key);
  check_pair("admin_", config.admin_tls_cert, config.admin_tls_key);
  check_trusted("upstream_ca", "upstream_ca", config.upstream_ca);
  check_trusted("client_ca", "client_ca", config.client_ca);
  check_trusted("admin_client_ca", "admin_client_ca", config.admin_client_ca);
  for (std::size_t i = 0; i < config.webhooks.size(); ++i)
    check_trusted(setting_in("webhook", i, "ca"), "ca", config.webhooks[i].endpoint.ca_file);
  for (std::size_t i = 0; i < config.destinations.size(); ++i)
    check_trusted(setting_in("destination", i, "ca"), "ca", config.destinations[i].ca_file);
  if (!config.encryption_key_file.empty()) {
    if (const auto keys = load_sealing_keys(config.encryption_key_file); !keys)
      add(std::nullopt, "encryption_key_file", fmt::format("encryption_key_file {}", keys.fault().message));
  }
  if (config.store.starts_with(kEmbedded)) {
    if (const auto why = why_no_store(config.store.substr(kEmbedded.size())))
      add(std::nullopt, "store", fmt::format("store {}: {}", config.store, *why));
  }
  if (config.access_log != "off") {
    if (const Status usable = LineFile::check(config.access_log); !usable)
      add(std::nullopt, "access_log", fmt::format("access_log: {}", usable.fault().message));
  }
  if (!config.audit_log.empty() && config.audit_log != "off") {
    if (const auto why = why_no_audit_log(config.audit_log))
      add(std::nullopt, "audit_log", fmt::format("audit_log: {}", *why));
  }
  // A file that several routes name, as they do by a default at the top, is reported once.
  std::set<std::string> seen;
  for (std::size_t i = 0; i < config.routes.size(); ++i) {
    const Policy& policy = config.routes[i].policy;
    if (const std::string path = jwks_path(policy.tokens.keys); !path.empty() && seen.insert("keys " + path).second) {
      if (const auto set = load_jwks(path); !set) add(i, "jwt_keys", fmt::format("jwt_keys {}", set.fault().message));
    }
    if (!policy.accounts.empty() && seen.insert("accounts " + policy.accounts).second) {
      if (const auto accounts = load_accounts(policy.accounts); !accounts)
        add(i, "accounts", fmt::format("accounts {}", accounts.fault().message));
    }
  }
  return out;
}

std::vector<std::string> warnings_of_files(const Config& config) {
  std::vector<std::string> warnings;
  const auto look = [&](std::string_view setting, const std::string& file) {
    if (file.empty()) return;
    if (const auto end = expired_on(file))
      warnings.push_back(fmt::format("{} {}: expired on {}; clients will refuse it", setting, file, *end));
  };
  look("tls_cert", config.tls_cert);
  look("admin_tls_cert", config.admin_tls_cert);
  return warnings;
}

} // namespace oncekey
