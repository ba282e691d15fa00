#include "phases/sql_text.h"

#include <algorithm>
#include <array>

namespace oncekey::phases {
namespace {

constexpr std::string_view kBlank = " \t\r\n\f\v";

// Behind blanks and comments.
std::string_view from_first_word(std::string_view sql) {
  for (;;) {
    const std::size_t at = sql.find_first_not_of(kBlank);
    if (at == std::string_view::npos) return {};
    sql.remove_prefix(at);
    std::size_t end = 0;
    if (sql.starts_with("--")) {
      end = sql.find('\n');
    } else if (sql.starts_with("/*")) {
      const std::size_t close = sql.find("*/", 2);
      end = close == std::string_view::npos ? close : close + 2;
    } else if (sql.starts_with(';')) {
      end = 1;
    } else {
      return sql;
    }
    if (end == std::string_view::npos) return {};
    sql.remove_prefix(end);
  }
}

std::string take_word(std::string_view& sql) {
  sql = from_first_word(sql);
  std::string word;
  while (!sql.empty()) {
    const char c = sql.front();
    const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
    if (!letter) break;
    word.push_back(static_cast<char>(c & ~0x20));
    sql.remove_prefix(1);
  }
  return word;
}

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

} // namespace

std::string transaction_word(std::string_view sql) {
  const std::string first = take_word(sql);
  if (first == "ROLLBACK" || first == "ABORT") {
    std::string second = take_word(sql);
    if (second == "WORK" || second == "TRANSACTION") second = take_word(sql);
    return second == "TO" ? "" : first;
  }
  if (first == "START" || first == "PREPARE") return take_word(sql) == "TRANSACTION" ? first + " TRANSACTION" : "";
  constexpr std::array<std::string_view, 3> kWords = {"COMMIT", "END", "BEGIN"};
  return std::find(kWords.begin(), kWords.end(), first) == kWords.end() ? "" : first;
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
