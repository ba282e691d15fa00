// postgres_url: what a Postgres store's URL says to us, and what it says to libpq.
//
// The URL goes to libpq as it is, so that everything its users know works: several hosts, service=, passfile, sslmode.
// Two parameters are ours and are taken out first: call_timeout=2s and connections=4.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace oncekey::postgres {

struct PostgresUrl {
  std::string for_libpq;
  std::optional<Millis> call_timeout;
  std::optional<int> connections;
};

// Connections beyond this number make batches smaller and nothing faster.
inline constexpr int kConnectionsMax = 64;

// postgres://, postgresql://, or libpq's keyword=value form. Anything in it that is not ours is left alone.
Result<PostgresUrl> split_postgres_url(std::string_view url);

// A place to connect to, checked by libpq.
struct PostgresTarget {
  // Keywords and values for PQconnectStartParams.
  std::vector<std::pair<std::string, std::string>> keywords;
  // "db.example:5432/payments": for messages, without user or password.
  std::string name;
};

// A fault is libpq's own message, without anything secret.
Result<PostgresTarget> postgres_target(const std::string& for_libpq);

// `message` with every occurrence of `secret` masked.
std::string without_secret(std::string message, std::string_view secret);

} // namespace oncekey::postgres
