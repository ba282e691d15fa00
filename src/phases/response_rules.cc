#include "phases/response_rules.h"

#include "base/utf8.h"

#include <fmt/format.h>

namespace oncekey::phases {
namespace {

// Fields that frame a message belong to the server, and the mark of a replay to the library.
constexpr std::string_view kNotThePhases[] = {
    "Connection", "Content-Length", "Idempotent-Replayed", "Keep-Alive", "TE", "Transfer-Encoding",
    "Trailer",    "Upgrade"};

bool is_token_character(char c) {
  if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9')) return true;
  return c != '\0' && std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}

bool is_token(std::string_view text) {
  for (const char c : text) {
    if (!is_token_character(c)) return false;
  }
  return !text.empty();
}

bool has_control_characters(std::string_view text) {
  for (const char c : text) {
    if ((static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f) return true;
  }
  return false;
}

} // namespace

std::optional<std::string> why_not_kept(const StoredResponse& response) {
  if (has_control_characters(response.reason)) return "the response's reason has a line break or a control character";
  for (std::size_t i = 0; i < response.headers.size(); ++i) {
    const Field field = response.headers[i];
    if (!is_token(field.name)) {
      return fmt::format("the response has a header named \"{}\", which is not a valid header name",
                         as_utf8(field.name));
    }
    if (has_control_characters(field.value)) {
      return fmt::format("the response's header {} has a line break or a control character", field.name);
    }
    for (const std::string_view name : kNotThePhases) {
      if (equal_ignoring_case(field.name, name)) {
        return fmt::format("the response has a header {}, which the server or the library sets: leave it out", name);
      }
    }
  }
  return std::nullopt;
}

} // namespace oncekey::phases
