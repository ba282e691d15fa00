#include "cli/audit_setup.h"

#include "base/ascii.h"
#include "base/timestamp.h"
#include "cli/admin_token.h"
#include "store/open_store.h"

#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <filesystem>

namespace oncekey {
namespace {

// Attempts to write while others write to the same note too.
constexpr int kNoteTries = 20;
// A shared store is asked over a new connection each time.
constexpr std::chrono::milliseconds kKeepEveryEmbedded{1000};
constexpr std::chrono::milliseconds kKeepEveryShared{10'000};
// How often commands may have left an action.
constexpr std::chrono::milliseconds kLookEveryEmbedded{1000};
constexpr std::chrono::milliseconds kLookEveryShared{60'000};

// Replaces a note of the store by what `next_of` makes of it, against others who do the same. Returns the new one.
template <class NextOf>
Result<std::string> change_note(const std::string& url, StoreNote which, Log& log, NextOf next_of) {
  for (int i = 0; i < kNoteTries; ++i) {
    const Result<std::string> text = read_store_note(url, which, log);
    if (!text) return text.fault();
    Result<std::string> next = next_of(*text);
    if (!next || *next == *text) return next;
    const Result<bool> written = write_store_note(url, which, *text, *next, log);
    if (!written) return written.fault();
    if (*written) return next;
  }
  return unavailable("other gateways change what the store keeps for their audit logs all the time: try again");
}

// Changes the heads that the store keeps.
template <class Change>
Result<ChainHeads> change_heads(const std::string& url, Log& log, Change change) {
  ChainHeads heads;
  const Result<std::string> kept =
      change_note(url, StoreNote::audit_heads, log, [&](const std::string& text) -> Result<std::string> {
        Result<ChainHeads> known = text.empty() ? Result<ChainHeads>(new_chain_heads()) : decode_chain_heads(text);
        if (!known) return known.fault();
        heads = *std::move(known);
        change(heads);
        return encode(heads);
      });
  if (!kept) return kept.fault();
  return heads;
}

std::string machine_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "gateway";
  std::string text(name.data());
  for (char& c : text) {
    if (kAlphanumeric.find(c) == std::string_view::npos && c != '-' && c != '.' && c != '_') c = '-';
  }
  return text;
}

std::string user_name() {
  const passwd* const user = ::getpwuid(::geteuid()); // the command has one thread
  return user == nullptr ? fmt::format("user {}", ::geteuid()) : user->pw_name;
}

// Writes what commands have left into the log, and then takes it out of the store.
Status take_pending(const std::string& url, Log& log, const AuditLog::Options::Put& put) {
  const Result<std::vector<PendingAction>> left = load_pending(url, log);
  if (!left) return left.fault();
  std::vector<PendingAction> written;
  Status all = ok_status();
  for (const PendingAction& each : *left) {
    const std::string result = fmt::format("{} at {}", each.result, each.time);
    all = put({.event = "action", .who = each.who, .action = each.action, .result = result, .reason = each.reason});
    if (!all) break; // those that are left are tried again
    written.push_back(each);
  }
  if (written.empty()) return all;
  const Result<std::string> rest =
      change_note(url, StoreNote::audit_pending, log, [&](const std::string& text) -> Result<std::string> {
        Result<std::vector<PendingAction>> now = decode_pending(text);
        if (!now) return std::move(now).fault();
        std::erase_if(*now, [&](const PendingAction& each) {
          return std::find(written.begin(), written.end(), each) != written.end();
        });
        return encode_pending(*now);
      });
  return rest ? all : Status(rest.fault());
}

} // namespace

std::string audit_chain_name(const Config& config) {
  if (!config.gateway_name.empty()) return config.gateway_name;
  return folder_of_store(config.store) ? "gateway" : machine_name();
}

Result<std::optional<ChainHeads>> load_chain_heads(const std::string& store_url, Log& log) {
  const Result<std::string> text = read_store_note(store_url, StoreNote::audit_heads, log);
  if (!text) return text.fault();
  if (text->empty()) return std::optional<ChainHeads>();
  Result<ChainHeads> heads = decode_chain_heads(*text);
  if (!heads) return std::move(heads).fault();
  return std::optional<ChainHeads>(*std::move(heads));
}

Result<std::vector<PendingAction>> load_pending(const std::string& store_url, Log& log) {
  const Result<std::string> text = read_store_note(store_url, StoreNote::audit_pending, log);
  if (!text) return text.fault();
  return decode_pending(*text);
}

Status leave_pending(const std::string& store_url, std::string_view action, const std::string& reason, Log& log) {
  const PendingAction left{timestamp(std::chrono::system_clock::now()),
                           fmt::format("command line ({}@{})", user_name(), machine_name()), std::string(action),
                           "done", reason};
  const Result<std::string> kept =
      change_note(store_url, StoreNote::audit_pending, log, [&](const std::string& text) -> Result<std::string> {
        Result<std::vector<PendingAction>> actions = decode_pending(text);
        if (!actions) return std::move(actions).fault();
        actions->push_back(left);
        return encode_pending(*actions);
      });
  return kept ? ok_status() : Status(kept.fault());
}

std::string audit_log_path(const Config& config, const ChainHeads& heads) {
  if (!config.audit_log.empty()) return config.audit_log;
  if (config.store.starts_with("memory:")) return "off";
  if (const auto folder = folder_of_store(config.store)) return *folder + "/audit.log";
  const std::string beside = admin_token_file(config.store); // in the user's state folder
  if (beside.empty()) return "off";
  const std::string name =
      fmt::format("audit-{}-{}.log", audit_chain_name(config), sha256_hex({heads.key}).substr(0, 8));
  return (std::filesystem::path(beside).parent_path() / name).native();
}

Result<std::unique_ptr<AuditLog>> open_audit_log(const Config& config, const std::string& gateway, Log& log) {
  std::unique_ptr<AuditLog> none;
  const bool in_memory = config.store.starts_with("memory:");
  if (config.audit_log == "off" || (config.audit_log.empty() && in_memory)) return none;
  const auto without = [&](const Fault& fault) -> Result<std::unique_ptr<AuditLog>> {
    if (!config.audit_log.empty()) return invalid("audit_log: " + fault.message);
    log.warning("audit_log_off", {{"reason", fault.message},
                                  {"meaning", "what operators do is in this log alone"},
                                  {"next", "set audit_log to a path that this user can write, or to \"off\""}});
    return std::unique_ptr<AuditLog>();
  };
  const std::string chain = audit_chain_name(config);
  std::optional<ChainHead> known;
  const Result<ChainHeads> heads =
      in_memory ? Result<ChainHeads>(new_chain_heads()) : change_heads(config.store, log, [&](ChainHeads& all) {
        const auto found = all.of.find(chain);
        known.reset();
        if (found != all.of.end()) known = found->second.head;
        if (!known) all.keep(chain, {}, timestamp(std::chrono::system_clock::now()));
      });
  // Of a newer version: its lines would be missing from the chain that goes on later.
  if (!heads && heads.fault().kind == FaultKind::newer_format) return heads.fault();
  if (!heads) return without(heads.fault());
  const std::string path = audit_log_path(config, *heads);
  if (path == "off") return without(unavailable("neither XDG_STATE_HOME nor HOME is set"));
  AuditLog::Options options{.path = path,
                            .gateway = gateway,
                            .chain = chain,
                            .key = heads->key,
                            .known = known,
                            .rotate_bytes = config.audit_log_size,
                            .keep_files = config.audit_log_keep,
                            .log = log};
  if (!in_memory) {
    const bool embedded = folder_of_store(config.store).has_value();
    const auto quiet = std::make_shared<Log>(LogLevel::error);
    options.take_pending = [url = config.store, quiet](const auto& put) { return take_pending(url, *quiet, put); };
    options.look_every = embedded ? kLookEveryEmbedded : kLookEveryShared;
    options.keep_every = embedded ? kKeepEveryEmbedded : kKeepEveryShared;
    options.keep = [url = config.store, chain, quiet](const ChainHead& head) {
      const Result<ChainHeads> kept = change_heads(
          url, *quiet, [&](ChainHeads& all) { all.keep(chain, head, timestamp(std::chrono::system_clock::now())); });
      return kept ? ok_status() : Status(kept.fault());
    };
  }
  auto opened = AuditLog::open(std::move(options));
  if (!opened) return without(opened.fault());
  log.info("audit_log", {{"file", path}, {"chain", chain}});
  return opened;
}

} // namespace oncekey
