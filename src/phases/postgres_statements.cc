#include "phases/postgres_statements.h"

#include "base/crypto.h"

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

// A connection's memory on the server is limited, and so is what an application says again and again.
constexpr std::size_t kPreparedMax = 256;
// Hashes of statements seen once. When so many different ones have come, the old ones will not come again.
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
  // Gone although remembered: somebody has cleared the connection, or it is another one.
  const bool gone = sqlstate == "26000";
  // There although nothing of that name was prepared: it is another one.
  const bool somebody_elses = sqlstate == "42P05";
  // "cached plan must not change result type": the code alone means many other things.
  const bool outdated = sqlstate == "0A000" && source_function == "RevalidateCachedQuery";
  if (use_ == Use::never || (!gone && !somebody_elses && !outdated)) return false;
  names_.clear();
  ++generation_; // what is still there under the old names is left alone until the connection ends
  if (somebody_elses || (gone && ++misses_ >= kMissesMax)) use_ = Use::never;
  return true;
}

} // namespace oncekey::phases
