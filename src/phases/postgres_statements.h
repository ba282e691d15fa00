// PostgresStatements: which statements are prepared on one connection, and under which names.
//
// A name is made of the statement's own text and types. Behind a pooler that gives every transaction another server
// connection, another session may have prepared a statement there under the same name: it is then the same statement.
//
// A prepared statement may be gone (DISCARD, DEALLOCATE, a pooler) or planned for a table that has changed since. The
// server says so before it does anything; the transaction is undone, everything prepared is forgotten, and the
// transaction is run again. A connection that has names of another session, or loses names a second time, is behind a
// pooler or is cleared regularly by its application: from then on nothing is prepared on it.
#pragma once

#include <libpq-fe.h>

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace oncekey::phases {

class PostgresStatements {
 public:
  enum class Use { never, allowed };
  explicit PostgresStatements(Use use) : use_(use) {}

  // The library's statements are few and are prepared at once. A statement of the application is prepared when it comes
  // a second time: a text with values written into it comes only once.
  enum class Whose { ours, applications };
  // What a statement is remembered by: its text as the caller has it, and the types of its values.
  static std::string key(Whose whose, std::string_view sql, std::span<const Oid> types);

  // The name it is prepared under; null if it is not.
  const char* find(const std::string& key) const;
  // Whether it is to be prepared now.
  bool worth_preparing(const std::string& key, Whose whose);
  // Makes a name out of the key and the text as the server gets it. The caller erases it if preparing fails.
  const char* add(const std::string& key, std::string_view sent);
  void erase(const std::string& key) { names_.erase(key); }

  // Whether a failure was only about prepared statements, which are then forgotten: the same transaction may succeed
  // when it is run again.
  bool forget_if_stale(std::string_view sqlstate, std::string_view source_function);

 private:
  Use use_;
  int misses_ = 0;
  int generation_ = 1;
  std::unordered_map<std::string, std::string> names_;
  std::unordered_set<std::size_t> seen_once_;
};

} // namespace oncekey::phases
