#include "store/redis/examination.h"

#include <fmt/format.h>

#include <charconv>

namespace oncekey::redis {
namespace {

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
  const std::string where = to_string(host);
  const std::string_view version = field(info, "redis_version");
  if (version.empty()) return invalid(fmt::format("Redis at {} does not say its version in INFO", where));
  if (too_old(version)) {
    return invalid(fmt::format("Redis at {} is version {}; oncekey needs {}.{} or later", where, version, kOldestMajor,
                               kOldestMinor));
  }
  const bool in_cluster = field(info, "cluster_enabled") == "1";
  if (in_cluster && !url.cluster) {
    return invalid(fmt::format("Redis at {} is a node of a cluster: write redis{}+cluster:// in the URL", where,
                               url.tls ? "s" : ""));
  }
  if (!in_cluster && url.cluster) {
    return invalid(
        fmt::format("Redis at {} is not a node of a cluster: write redis{}:// in the URL", where, url.tls ? "s" : ""));
  }
  if (!url.cluster && field(info, "role") != "master") {
    return invalid(fmt::format("Redis at {} is a replica: name its primary in the URL", where));
  }
  return ok_status();
}

struct Level {
  Durability durability;
  std::string why;
};

Level level_of(const InfoFields& info, const ServerSettings& settings) {
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
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    const std::size_t colon = line.find(':');
    if (line.starts_with('#') || colon == std::string_view::npos) continue;
    fields.emplace(line.substr(0, colon), line.substr(colon + 1));
  }
  return fields;
}

Result<Examination> examine(const InfoFields& info, const ServerSettings& settings, const RedisUrl& url,
                            const Host& host) {
  if (Status status = suitable(info, url, host); !status) return std::move(status).fault();
  Examination found;
  Level level = level_of(info, settings);
  found.durability = level.durability;
  found.why = std::move(level.why);
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

} // namespace oncekey::redis
