#include "phases/session.h"

#include <oncekey/check.h>

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

std::string now_in(Dialect dialect, Millis ahead) {
  const char* const clock = dialect == Dialect::postgres
                                ? "(floor(extract(epoch from clock_timestamp()) * 1000)::bigint"
                                : "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)";
  return ahead.count() == 0 ? fmt::format("{})", clock) : fmt::format("{} + {})", clock, ahead.count());
}

std::string replaced(std::string_view token, Dialect dialect, Millis ahead) {
  const bool postgres = dialect == Dialect::postgres;
  if (token == "now") return now_in(dialect, ahead);
  if (token == "for_update") return postgres ? "FOR UPDATE" : "";
  if (token == "skip_locked") return postgres ? "FOR UPDATE SKIP LOCKED" : "";
  if (token.starts_with("in_texts ")) {
    const std::string_view list = token.substr(9);
    return postgres ? fmt::format("= ANY (ARRAY(SELECT jsonb_array_elements_text({}::jsonb)))", list)
                    : fmt::format("IN (SELECT value FROM json_each({}))", list);
  }
  ONCEKEY_CHECK(token.starts_with("in "), "a token of session.h");
  const std::string_view value = token.substr(3);
  return postgres ? fmt::format("= ANY ({}::bigint[])", value)
                  : fmt::format("IN (SELECT value FROM json_each({}))", value);
}

} // namespace

std::string id_list(Dialect dialect, std::span<const std::int64_t> ids) {
  const bool postgres = dialect == Dialect::postgres;
  return fmt::format("{}{}{}", postgres ? '{' : '[', fmt::join(ids, ","), postgres ? '}' : ']');
}

std::string text_list(std::span<const std::string> texts) {
  std::string list = "[";
  for (const std::string& text : texts) {
    if (list.size() > 1) list.push_back(',');
    list.push_back('"');
    for (const char c : text) {
      if (static_cast<unsigned char>(c) < 0x20) {
        list += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        continue;
      }
      if (c == '"' || c == '\\') list.push_back('\\');
      list.push_back(c);
    }
    list.push_back('"');
  }
  list.push_back(']');
  return list;
}

Command walk_along_indexes(Dialect dialect) {
  constexpr std::string_view kPostgres =
      "SELECT set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true),"
      " set_config('enable_sort', 'off', true)";
  return {dialect == Dialect::postgres ? kPostgres : std::string_view("SELECT 1"), {}};
}

std::string_view migrate_hint(std::string_view message) {
  constexpr std::string_view kOurs = "oncekey_";
  const std::size_t at = message.find(kOurs);
  if (at == std::string_view::npos) return "";
  // A name with digits, such as oncekey_answer_25_53192, is a bucket: migrate() does not make those.
  const std::size_t end = message.find_first_not_of("abcdefghijklmnopqrstuvwxyz", at + kOurs.size());
  if (end != std::string_view::npos && message[end] == '_') return "";
  return ". The library's tables are not there: call migrate() before anything else";
}

std::string in_dialect(std::string_view sql, Dialect dialect, Millis clock_ahead) {
  std::string out;
  out.reserve(sql.size() + 256);
  for (;;) {
    const std::size_t open = sql.find('{');
    out += sql.substr(0, open);
    if (open == std::string_view::npos) return out;
    const std::size_t close = sql.find('}', open);
    ONCEKEY_CHECK(close != std::string_view::npos, "every token of our own SQL is closed");
    out += replaced(sql.substr(open + 1, close - open - 1), dialect, clock_ahead);
    sql.remove_prefix(close + 1);
  }
}

} // namespace oncekey::phases
