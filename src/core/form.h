// form: application/x-www-form-urlencoded bodies, and which kind of body a request says it has.
#pragma once

#include <oncekey/headers.h>

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

enum class BodyKind { json, form, multipart, other };

// By Content-Type alone: application/json and anything ending in +json, application/x-www-form-urlencoded,
// multipart/form-data. Parameters such as charset do not matter.
BodyKind body_kind(const Headers& headers);

struct FormField {
  std::string name;
  std::optional<std::string> value; // nothing for a name without `=`
};

// No form is longer; bounds the memory that a body of nothing but ampersands and letters makes us use.
inline constexpr std::size_t kFormFieldsMax = 100'000;

// The decoded fields in the order sent. Nothing when there are too many, or when an escape is not a percent sign and
// two hex digits: decoders disagree on those, so no meaning may be read into them.
std::optional<std::vector<FormField>> parse_form(std::string_view form);

} // namespace oncekey
