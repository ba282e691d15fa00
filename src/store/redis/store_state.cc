#include "store/redis/store_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <limits>
#include <sstream>
#include <tuple>

namespace oncekey::redis {
namespace {

// Where no marker is, so that this loss is told apart from theirs.
constexpr std::size_t kEvictedPlace = std::numeric_limits<std::size_t>::max();

// SET with PXAT exists from here on.
constexpr int kOldestMajor = 6;
constexpr int kOldestMinor = 2;

std::string_view field(const InfoFields& info, std::string_view name) {
  const auto found = info.find(name);
  return found == info.end() ? std::string_view{} : std::string_view(found->second);
}

std::uint64_t leading_number(std::string_view text) {
  std::uint64_t number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool too_old(std::string_view version) {
  const std::uint64_t major = leading_number(version);
  const std::size_t dot = version.find('.');
  const std::uint64_t minor = dot == std::string_view::npos ? 0 : leading_number(version.substr(dot + 1));
  return major < kOldestMajor || (major == kOldestMajor && minor < kOldestMinor);
}

Status suitable(const InfoFields& info, const RedisUrl& url, const Host& host) {
  const auto refuse = [&](std::string_view why) {
    return invalid(fmt::format("Redis at {} {}", to_string(host), why));
  };
  const std::string_view secure = url.tls ? "s" : "";
  const std::string_view version = field(info, "redis_version");
  if (version.empty()) return refuse("does not say its version in INFO");
  if (too_old(version))
    return refuse(fmt::format("is version {}; oncekey needs {}.{} or later", version, kOldestMajor, kOldestMinor));
  const bool in_cluster = field(info, "cluster_enabled") == "1";
  if (in_cluster && !url.cluster)
    return refuse(fmt::format("is a node of a cluster: write redis{}+cluster:// in the URL", secure));
  if (!in_cluster && url.cluster)
    return refuse(fmt::format("is not a node of a cluster: write redis{}:// in the URL", secure));
  if (!url.cluster && field(info, "role") != "master") return refuse("is a replica: name its primary in the URL");
  return ok_status();
}

// And why it is not higher.
std::pair<Durability, std::string> level_of(const InfoFields& info, const ServerSettings& settings) {
  if (field(info, "aof_enabled") != "1") {
    return {Durability::none, "it keeps no append-only file: set appendonly yes and appendfsync always"};
  }
  if (!settings.appendfsync) {
    return {Durability::none, "it does not tell its appendfsync (CONFIG is forbidden), so the least is assumed"};
  }
  if (*settings.appendfsync == "always") {
    if (settings.no_appendfsync_on_rewrite == "no") return {Durability::power, "appendfsync always"};
    return {Durability::process,
            "while it rewrites its file it does not sync: set no-appendfsync-on-rewrite no for power"};
  }
  if (*settings.appendfsync == "no") return {Durability::process, "appendfsync no: set it to always for power"};
  return {Durability::none,
          fmt::format("appendfsync {}: it answers before it has written: set it to always", *settings.appendfsync)};
}

std::optional<Fault> evicting(const InfoFields& info, const ServerSettings& settings, const Host& host) {
  const std::string policy = settings.maxmemory_policy.value_or(std::string(field(info, "maxmemory_policy")));
  if (policy == "noeviction") return std::nullopt;
  return unavailable(fmt::format(
      "Redis at {} {}: it may drop records to make room, and what they stand for would be executed again. Set "
      "maxmemory-policy noeviction",
      to_string(host),
      policy.empty() ? "does not tell its maxmemory-policy" : fmt::format("has maxmemory-policy {}", policy)));
}

// "db0:keys=12,expires=3,avg_ttl=0"
std::uint64_t keys_in(const InfoFields& info, int database) {
  const std::string_view line = field(info, fmt::format("db{}", database));
  return line.starts_with("keys=") ? leading_number(line.substr(5)) : 0;
}

} // namespace

InfoFields parse_info(std::string_view text) {
  InfoFields fields;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    if (line.ends_with('\r')) line.pop_back();
    const std::size_t colon = line.find(':');
    if (line.starts_with('#') || colon == std::string::npos) continue;
    fields.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return fields;
}

Result<Examination> examine(const InfoFields& info, const ServerSettings& settings, const RedisUrl& url,
                            const Host& host) {
  if (Status status = suitable(info, url, host); !status) return std::move(status).fault();
  Examination found;
  std::tie(found.durability, found.why) = level_of(info, settings);
  found.evicting = evicting(info, settings, host);
  found.run_id = field(info, "run_id");
  found.evicted_keys = leading_number(field(info, "evicted_keys"));
  found.keys = keys_in(info, url.database);
  found.bytes_in_memory = leading_number(field(info, "used_memory"));
  found.bytes_on_disk = leading_number(field(info, "aof_current_size"));
  return found;
}

std::uint64_t evicted_between(const Examination& before, const Examination& after) {
  const bool counted_on = before.run_id == after.run_id && before.evicted_keys <= after.evicted_keys;
  return counted_on ? after.evicted_keys - before.evicted_keys : after.evicted_keys;
}

Status StoreState::remembers() const {
  Status remembered = marker.memory.memory();
  if (remembered) return remembered;
  const std::lock_guard lock(mutex_);
  if (evicted_ && evicted_->generation == marker.memory.generation()) return evicted_->fault;
  return remembered;
}

Status StoreState::may_claim() const {
  if (Status may = marker.may_claim(); !may) return marker.memory.memory() ? may : remembers();
  if (!is_evicting_.load()) return ok_status();
  const std::lock_guard lock(mutex_);
  return keeps_all_;
}

void StoreState::examined(const Host& host, const Examination& found) {
  const std::string generation = marker.memory.generation();
  const std::lock_guard lock(mutex_);
  const auto before = examinations_.find(host);
  if (before != examinations_.end() && !generation.empty()) {
    // What was evicted before an operator accepted the loss is accepted as well.
    const bool accepted = !before->second.generation.empty() && before->second.generation != generation;
    const bool known = evicted_ && evicted_->generation == generation; // the first sight tells most
    const std::uint64_t keys = evicted_between(before->second.found, found);
    if (keys > 0 && !accepted && !known) {
      const std::string why = fmt::format(
          "the store has lost its memory: Redis at {} has evicted {} keys to make room, as its maxmemory-policy let "
          "it. "
          "Retries of requests it has forgotten would be executed again, so none is executed. Set maxmemory-policy "
          "noeviction, find out what was lost, then say so with: oncekey store accept-loss --store URL",
          to_string(host), keys);
      evicted_ = Evicted{generation, {FaultKind::conflict, why}};
      const Status lost = marker.memory.see(kEvictedPlace, Marker{generation, "", 0, true});
      ONCEKEY_CHECK(!lost, "a loss was seen and not believed");
    }
  }
  examinations_[host] = {found, generation};
  sum_up();
}

void StoreState::keep_only(const std::vector<Host>& hosts) {
  const std::lock_guard lock(mutex_);
  std::erase_if(examinations_,
                [&](const auto& entry) { return std::find(hosts.begin(), hosts.end(), entry.first) == hosts.end(); });
  sum_up();
}

void StoreState::sum_up() {
  keeps_all_ = ok_status();
  const Examination* lowest = nullptr;
  for (const auto& [host, examined] : examinations_) {
    if (examined.found.evicting && keeps_all_) keeps_all_ = *examined.found.evicting;
    if (lowest == nullptr || examined.found.durability < lowest->durability) lowest = &examined.found;
  }
  if (lowest != nullptr) {
    durability_ = lowest->durability;
    durability_reason_ = lowest->why;
  }
  is_evicting_ = !keeps_all_;
}

void StoreState::reachable(Status status) {
  const std::lock_guard lock(mutex_);
  reachable_ = std::move(status);
}

Status StoreState::healthy() const {
  if (Status claims = may_claim(); !claims) return claims;
  const std::lock_guard lock(mutex_);
  return reachable_;
}

std::string StoreState::durability_reason() const {
  const std::lock_guard lock(mutex_);
  return durability_reason_;
}

StoreStats StoreState::stats() const {
  StoreStats stats;
  const std::lock_guard lock(mutex_);
  for (const auto& [host, examined] : examinations_) {
    stats.records_estimate += examined.found.keys;
    stats.bytes_in_memory += examined.found.bytes_in_memory;
    stats.bytes_on_disk += examined.found.bytes_on_disk;
  }
  stats.syncs = batches.load();
  stats.writes = calls.load();
  return stats;
}

} // namespace oncekey::redis
