#include "phases/sql_text.h"

#include <algorithm>

namespace oncekey::phases {
namespace {

// How long the quoted text, comment or dollar-quoted body at the front is; 0 if there is none.
std::size_t passed_over(std::string_view sql) {
  const auto up_to = [&](std::string_view close, std::size_t from) {
    const std::size_t at = sql.find(close, from);
    return at == std::string_view::npos ? sql.size() : at + close.size();
  };
  if (sql.starts_with('\'')) return up_to("'", 1);
  if (sql.starts_with('"')) return up_to("\"", 1);
  if (sql.starts_with("--")) return up_to("\n", 2);
  if (sql.starts_with("/*")) return up_to("*/", 2);
  if (sql.starts_with("$$")) return up_to("$$", 2);
  return 0;
}

// Behind blanks, comments and semicolons.
std::string_view from_first_word(std::string_view sql) {
  for (;;) {
    sql.remove_prefix(std::min(sql.find_first_not_of(" \t\r\n\f\v;"), sql.size()));
    if (!sql.starts_with("--") && !sql.starts_with("/*")) return sql;
    sql.remove_prefix(passed_over(sql));
  }
}

std::string take_word(std::string_view& sql) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'); };
  std::string word;
  for (sql = from_first_word(sql); !sql.empty() && is_letter(sql.front()); sql.remove_prefix(1)) {
    word.push_back(static_cast<char>(sql.front() & ~0x20));
  }
  return word;
}

} // namespace

std::string transaction_word(std::string_view sql) {
  const std::string first = take_word(sql);
  if (first == "ROLLBACK" || first == "ABORT") {
    std::string second = take_word(sql);
    if (second == "WORK" || second == "TRANSACTION") second = take_word(sql);
    return second == "TO" ? "" : first;
  }
  if (first == "START" || first == "PREPARE") return take_word(sql) == "TRANSACTION" ? first + " TRANSACTION" : "";
  return first == "COMMIT" || first == "END" || first == "BEGIN" ? first : "";
}

std::vector<std::string_view> statements_of(std::string_view script) {
  std::vector<std::string_view> statements;
  for (;;) {
    script = from_first_word(script);
    if (script.empty()) return statements;
    std::size_t end = 0;
    while (end < script.size() && script[end] != ';') {
      const std::size_t over = passed_over(script.substr(end));
      end += over == 0 ? 1 : over;
    }
    end = std::min(end, script.size());
    statements.push_back(script.substr(0, end));
    script.remove_prefix(end);
  }
}

} // namespace oncekey::phases
