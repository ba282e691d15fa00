#include "phases/postgres_statements.h"

#include "base/crypto.h"

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

// Prepared statements cost the server memory for each connection, and few statements of an application come again.
constexpr std::size_t kPreparedMax = 256;
// Hashes of statements seen once. When this many different ones have come, the old ones will hardly come again.
constexpr std::size_t kSeenOnceMax = 1024;
constexpr int kMissesMax = 2;
constexpr std::size_t kNameBytes = 16;

} // namespace

std::string PostgresStatements::key(Whose whose, std::string_view sql, std::span<const Oid> types) {
  std::string key;
  key.reserve(1 + sql.size() + types.size_bytes());
  key += whose == Whose::ours ? 'o' : 'a';
  key.append(reinterpret_cast<const char*>(types.data()), types.size_bytes());
  key += sql;
  return key;
}

const char* PostgresStatements::find(const std::string& key) const {
  const auto known = names_.find(key);
  return known == names_.end() ? nullptr : known->second.c_str();
}

bool PostgresStatements::worth_preparing(const std::string& key, Whose whose) {
  if (use_ == Use::never || names_.size() >= kPreparedMax) return false;
  if (whose == Whose::ours) return true;
  if (seen_once_.size() >= kSeenOnceMax) seen_once_.clear();
  return !seen_once_.insert(std::hash<std::string>{}(key)).second;
}

const char* PostgresStatements::add(const std::string& key, std::string_view sent) {
  Sha256 hash;
  hash.update(key);
  hash.update(sent);
  const HashBytes bytes = hash.finish();
  const std::string name =
      fmt::format("oncekey_{:02x}_{}", fmt::join(bytes.begin(), bytes.begin() + kNameBytes, ""), generation_);
  return names_.insert_or_assign(key, name).first->second.c_str();
}

bool PostgresStatements::forget_if_stale(std::string_view sqlstate, std::string_view source_function) {
  // Gone although remembered: the application has cleared the connection, or a pooler has exchanged it.
  const bool gone = sqlstate == "26000";
  // There although this session prepared nothing of that name: a pooler has exchanged the connection.
  const bool of_another_session = sqlstate == "42P05";
  // "cached plan must not change result type": the code alone means many other things.
  const bool outdated = sqlstate == "0A000" && source_function == "RevalidateCachedQuery";
  if (use_ == Use::never || (!gone && !of_another_session && !outdated)) return false;
  names_.clear();
  ++generation_; // statements under the old names stay on the server, unused, until the connection ends
  if (of_another_session || (gone && ++misses_ >= kMissesMax)) use_ = Use::never;
  return true;
}

} // namespace oncekey::phases
