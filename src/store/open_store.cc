#include "store/open_store.h"

#include "base/masked_url.h"
#include "base/private_files.h"
#include "redis/connection.h"
#include "store/common/guarded_store.h"
#include "store/common/kept_secret.h"
#include "store/common/sealing_store.h"
#include "store/journal/journal_store.h"
#include "store/memory/memory_store.h"
#include "store/postgres/postgres_store.h"
#include "store/postgres/postgres_url.h"
#include "store/redis/redis_store.h"

#include <fmt/format.h>

namespace oncekey {
namespace {

constexpr std::string_view kWhatExists =
    "journal:PATH (a directory), postgres://..., redis://..., redis+cluster://... (rediss for TLS), and memory: (keeps "
    "nothing over a restart)";

enum class Kind { memory, journal, postgres, redis };

Result<Kind> kind_of(std::string_view url) {
  const std::size_t colon = url.find(':');
  if (colon == std::string_view::npos) {
    return invalid(fmt::format("\"{}\" is not a store: the kind and a colon come first; there are {}", masked_url(url),
                               kWhatExists));
  }
  const std::string_view scheme = url.substr(0, colon);
  if (scheme == "memory") {
    if (colon + 1 < url.size()) return invalid(fmt::format("\"{}\": nothing may follow memory:", url));
    return Kind::memory;
  }
  if (scheme == "journal") return Kind::journal;
  if (scheme == "postgres" || scheme == "postgresql") return Kind::postgres;
  if (scheme == "redis" || scheme == "rediss" || scheme == "redis+cluster" || scheme == "rediss+cluster") {
    return Kind::redis;
  }
  if (scheme == "sqlite") return invalid("sqlite: is for the library, one process at a time: use journal:PATH here");
  return invalid(fmt::format("\"{}\" names an unknown kind of store; there are {}", masked_url(url), kWhatExists));
}

// Behind the guard that every store over a network needs.
template <class Shared>
Result<std::unique_ptr<Store>> behind_guard(Result<std::unique_ptr<Shared>> opened, const StoreOptions& options) {
  if (!opened) return std::move(opened).fault();
  return guarded(*std::move(opened), {.log = options.log, .least_durability = options.least_durability});
}

Result<std::unique_ptr<Store>> open(Kind kind, std::string_view url, const StoreOptions& options) {
  switch (kind) {
    case Kind::memory:
      return make_memory_store();
    case Kind::journal: {
      using Trust = ClockSources::TrustWall;
      return open_journal(
          {.path = *folder_of_store(url),
           .log = options.log,
           .on_fatal = options.on_fatal,
           .sealer = options.sealer,
           .clock = ClockSources::of_system(options.trust_clock ? Trust::always : Trust::when_synchronised)});
    }
    case Kind::postgres:
      return behind_guard(PostgresStore::open({.url = std::string(url), .log = options.log, .sealer = options.sealer}),
                          options);
    case Kind::redis:
      return behind_guard(open_redis({.url = std::string(url), .log = options.log, .sealer = options.sealer}), options);
  }
  return invalid("no such kind of store");
}

std::string note_file(std::string_view url, StoreNote note) {
  return fmt::format("{}/{}", *folder_of_store(url), name_of(note));
}
std::string secret_file(const std::string& folder) { return folder + "/secret"; }

} // namespace

Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreOptions& options) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  Result<std::unique_ptr<Store>> store = open(*kind, url, options);
  if (store && (*store)->durability() < options.least_durability) {
    return invalid(
        fmt::format("the store's durability is \"{}\" and require_durability asks for \"{}\": docs/STORES.md "
                    "says which of its settings decide",
                    to_string((*store)->durability()), to_string(options.least_durability)));
  }
  if (!store || options.sealer == nullptr) return store;
  return sealing(*std::move(store), *options.sealer);
}

Status check_store_url(std::string_view url) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  if (*kind == Kind::postgres) {
    const Result<postgres::PostgresUrl> split = postgres::split_postgres_url(url);
    if (!split) return split.fault();
    if (const auto target = postgres::postgres_target(split->for_libpq); !target) return target.fault();
  }
  if (*kind == Kind::redis) {
    const auto parsed = redis::parse_url(url);
    if (!parsed) return parsed.fault();
    // Reads the files that it names. No call is made, so that no time-out counts.
    if (const auto options = redis::connection_options(*parsed, {}); !options) return options.fault();
  }
  return ok_status();
}

Status migrate_store(std::string_view url, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  if (*kind == Kind::postgres) return migrate_postgres({.url = std::string(url), .log = log});
  return invalid(fmt::format("{} has no schema to migrate: only postgres:// stores have", masked_url(url)));
}

Result<LossAccepted> accept_lost_memory(std::string_view url, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  const auto now = [](const Status& accepted) -> Result<LossAccepted> {
    if (!accepted) return accepted.fault();
    return LossAccepted::now;
  };
  switch (*kind) {
    case Kind::memory:
      break;
    case Kind::journal: {
      const Result<LossAcceptance> taken = accept_lost_memory_journal(*folder_of_store(url));
      if (!taken) return taken.fault();
      return *taken == LossAcceptance::taken ? LossAccepted::now : LossAccepted::at_next_start;
    }
    case Kind::postgres:
      return now(accept_lost_memory_postgres({.url = std::string(url), .log = log}));
    case Kind::redis:
      return now(accept_lost_memory_redis({.url = std::string(url), .log = log}));
  }
  return invalid("memory: keeps nothing over a restart: there is no loss to accept");
}

Result<std::string> read_store_note(std::string_view url, StoreNote note, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  switch (*kind) {
    case Kind::memory:
      break;
    case Kind::journal: {
      Result<std::optional<std::string>> text = read_file_if_there(note_file(url, note), bytes_max_of(note));
      if (!text) return std::move(text).fault();
      return std::move(*text).value_or(std::string());
    }
    case Kind::postgres:
      return read_note_postgres({.url = std::string(url), .log = log}, note);
    case Kind::redis:
      return read_note_redis({.url = std::string(url), .log = log}, note);
  }
  return std::string();
}

Result<bool> write_store_note(std::string_view url, StoreNote note, const std::string& expected,
                              const std::string& next, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  switch (*kind) {
    case Kind::memory:
      break;
    case Kind::journal:
      // A command may leave a note while a gateway has the folder.
      return exchange_private_file(note_file(url, note), expected, next, bytes_max_of(note));
    case Kind::postgres:
      return write_note_postgres({.url = std::string(url), .log = log}, note, expected, next);
    case Kind::redis:
      return write_note_redis({.url = std::string(url), .log = log}, note, expected, next);
  }
  return true;
}

Status reach_shared_store(std::string_view url, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  if (*kind == Kind::postgres) return reach_postgres({.url = std::string(url), .log = log});
  if (*kind == Kind::redis) return reach_redis({.url = std::string(url), .log = log});
  return ok_status();
}

Status reseal_secret(std::string_view url, const Sealer& sealer, Log& log) {
  const Result<Kind> kind = kind_of(url);
  if (!kind) return kind.fault();
  switch (*kind) {
    case Kind::memory:
      break;
    case Kind::journal:
      return reseal_secret_file(secret_file(*folder_of_store(url)), sealer);
    case Kind::postgres:
      return reseal_secret_postgres({.url = std::string(url), .log = log, .sealer = &sealer});
    case Kind::redis:
      return reseal_secret_redis({.url = std::string(url), .log = log, .sealer = &sealer});
  }
  return ok_status();
}

Status check_sealed_secret(std::string_view url, const Sealer* sealer) {
  const std::optional<std::string> folder = folder_of_store(url);
  if (!folder) return ok_status();
  const Result<std::optional<std::string>> line = read_file_if_there(secret_file(*folder), kSecretFileBytesMax);
  if (!line) return line.fault();
  if (!*line) return ok_status();
  const Result<Secret> secret = parse_secret_line(**line, secret_file(*folder), sealer);
  return secret ? ok_status() : Status(secret.fault());
}

Status check_store_format(std::string_view url) {
  const std::optional<std::string> folder = folder_of_store(url);
  return folder ? check_journal_format(*folder) : ok_status();
}

std::optional<std::string> folder_of_store(std::string_view url) {
  constexpr std::string_view kEmbedded = "journal:";
  if (!url.starts_with(kEmbedded)) return std::nullopt;
  return std::string(url.substr(kEmbedded.size()));
}

} // namespace oncekey
