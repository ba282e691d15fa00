#include "base/json_text.h"

#include "base/utf8.h"

#include <fmt/format.h>

namespace oncekey {

void append_json_string(std::string& out, std::string_view text) {
  static constexpr char kDigits[] = "0123456789abcdef";
  const auto escape = [&](unsigned code) {
    out += "\\u00";
    out.push_back(kDigits[code >> 4]);
    out.push_back(kDigits[code & 15]);
  };
  out.push_back('"');
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto byte = static_cast<unsigned char>(text[0]);
    if (length == 0) {
      out += "\\ufffd";
    } else if (length == 2 && byte == 0xc2 && static_cast<unsigned char>(text[1]) < 0xa0) {
      escape(static_cast<unsigned char>(text[1])); // terminals obey the control characters from U+0080 to U+009F
    } else if (length > 1) {
      out.append(text.substr(0, length));
    } else if (byte == '"' || byte == '\\') {
      out.push_back('\\');
      out.push_back(text[0]);
    } else if (byte < 0x20 || byte == 0x7f) {
      escape(byte);
    } else {
      out.push_back(text[0]);
    }
    text.remove_prefix(length == 0 ? 1 : length);
  }
  out.push_back('"');
}

std::string problem_json(std::string_view type, std::string_view title, int status, std::string_view detail) {
  std::string json = "{\"type\":";
  append_json_string(json, type);
  json += ",\"title\":";
  append_json_string(json, title);
  json += fmt::format(",\"status\":{},\"detail\":", status);
  append_json_string(json, detail);
  json.push_back('}');
  return json;
}

} // namespace oncekey
