#include "phases/notes.h"

namespace oncekey::phases {
namespace {

bool stands_for_itself(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '.' || c == '_';
}

void append_encoded(std::string& out, std::string_view text) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  for (const char c : text) {
    if (stands_for_itself(c)) {
      out.push_back(c);
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out.push_back('%');
    out.push_back(kDigits[byte >> 4]);
    out.push_back(kDigits[byte & 15]);
  }
}

int digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Strict: only what append_encoded() writes. Anything else in the column is damage.
bool decoded(std::string_view text, std::string& out) {
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!stands_for_itself(text[i])) return false;
      out.push_back(text[i]);
      continue;
    }
    if (text.size() - i < 3) return false;
    const int high = digit(text[i + 1]);
    const int low = digit(text[i + 2]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<char>(high * 16 + low));
    i += 2;
  }
  return true;
}

} // namespace

std::string encode_notes(const Notes& notes) {
  std::string out;
  for (const auto& [name, value] : notes) {
    if (!out.empty()) out.push_back('&');
    append_encoded(out, name);
    out.push_back('=');
    append_encoded(out, value);
  }
  return out;
}

Result<Notes> decode_notes(std::string_view bytes) {
  Notes notes;
  while (!bytes.empty()) {
    const std::size_t end = bytes.find('&');
    const std::string_view pair = bytes.substr(0, end);
    bytes = end == std::string_view::npos ? std::string_view{} : bytes.substr(end + 1);
    const std::size_t equals = pair.find('=');
    std::string name;
    std::string value;
    if (equals == std::string_view::npos || !decoded(pair.substr(0, equals), name) ||
        !decoded(pair.substr(equals + 1), value)) {
      return corrupt("the notes of an operation do not parse");
    }
    notes.insert_or_assign(std::move(name), std::move(value));
  }
  return notes;
}

} // namespace oncekey::phases
