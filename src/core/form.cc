#include "core/form.h"

#include "base/ascii.h"
#include "base/url.h"

namespace oncekey {
namespace {

bool decode(std::string_view text, std::string& out) {
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      out.push_back(' ');
    } else if (text[i] == '%') {
      const int high = i + 2 < text.size() ? hex_value(text[i + 1]) : -1;
      const int low = i + 2 < text.size() ? hex_value(text[i + 2]) : -1;
      if (high < 0 || low < 0) return false;
      out.push_back(static_cast<char>(high << 4 | low));
      i += 2;
    } else {
      out.push_back(text[i]);
    }
  }
  return true;
}

} // namespace

BodyKind body_kind(const Headers& headers) {
  std::string_view type = headers.get("Content-Type").value_or(std::string_view{});
  type = trimmed(type.substr(0, type.find(';')));
  if (equal_ignoring_case(type, "application/json") || ends_with_ignoring_case(type, "+json")) return BodyKind::json;
  if (equal_ignoring_case(type, "application/x-www-form-urlencoded")) return BodyKind::form;
  if (equal_ignoring_case(type, "multipart/form-data")) return BodyKind::multipart;
  return BodyKind::other;
}

std::optional<std::vector<FormField>> parse_form(std::string_view form) {
  std::vector<FormField> fields;
  while (!form.empty()) {
    const std::size_t ampersand = form.find('&');
    const std::string_view pair = form.substr(0, ampersand);
    form = ampersand == std::string_view::npos ? std::string_view{} : form.substr(ampersand + 1);
    if (pair.empty()) continue; // "a=1&&b=2": all readers skip an empty pair
    if (fields.size() == kFormFieldsMax) return std::nullopt;
    const std::size_t equals = pair.find('=');
    FormField& field = fields.emplace_back();
    if (!decode(pair.substr(0, equals), field.name)) return std::nullopt;
    if (equals == std::string_view::npos) continue;
    if (!decode(pair.substr(equals + 1), field.value.emplace())) return std::nullopt;
  }
  return fields;
}

} // namespace oncekey
