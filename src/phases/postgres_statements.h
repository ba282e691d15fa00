// PostgresStatements: which statements are prepared on one connection, and under which names.
//
// A name is made of the statement's own text and types. Behind a pooler that gives every transaction another server
// connection, somebody else may have prepared there under our names: it is then the same statement, never another one.
//
// What was prepared may be gone (DISCARD, DEALLOCATE, a pooler) or planned for a table that has changed since. A server
// says so before it does anything; the transaction is undone, everything prepared is forgotten, and the transaction is
// run again. A connection that has somebody else's names, or loses ours a second time, is behind a pooler or habitually
// cleared by its application: from then on nothing is prepared on it.
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

  // Whose statement it is. The library's are few and prepared at once; of the application's, those that come a second
  // time: a text with values written into it comes once.
  enum class Whose { ours, applications };
  // What a statement is remembered by: its text as the caller has it, and the types of its values.
  static std::string key(Whose whose, std::string_view sql, std::span<const Oid> types);

  // The name it is prepared under; null if it is not.
  const char* find(const std::string& key) const;
  // Whether it is to be prepared now.
  bool worth_preparing(const std::string& key, Whose whose);
  // Makes a name out of the key and the text as the server gets it. To be erased if preparing fails.
  const char* add(const std::string& key, std::string_view sent);
  void erase(const std::string& key) { names_.erase(key); }

  // Whether a failure is about preparing alone, so that the same transaction succeeds when it is run again.
  bool forget_if_stale(std::string_view sqlstate, std::string_view source_function);

 private:
  Use use_;
  int misses_ = 0;
  int generation_ = 1;
  std::unordered_map<std::string, std::string> names_;
  std::unordered_set<std::size_t> seen_once_;
};

} // namespace oncekey::phases
