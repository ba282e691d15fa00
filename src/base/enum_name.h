// enum_name: an enumerator's own spelling.
//
// Enumerators are named as they are written in logs, metrics, JSON and SQL: RecordState::in_progress is "in_progress".
// So the compiler's own name serves, and no table can fall behind its enum.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string_view>
#include <utility>

namespace oncekey {

// Values from 0 to less than this have names.
inline constexpr std::size_t kNamedEnumeratorsMax = 64;

// "in_progress" of `... [with auto Value = oncekey::RecordState::in_progress; ...]`. A value without an enumerator is
// spelled as a cast, as in `(oncekey::RecordState)7`, and has no name. clang spells `main()::` before a name, so that a
// parenthesis counts only at its end.
template <auto Value>
constexpr std::string_view enumerator_name() {
  constexpr std::string_view kFunction = __PRETTY_FUNCTION__;
  constexpr std::string_view kBefore = "Value = ";
  const std::size_t begin = kFunction.find(kBefore) + kBefore.size();
  const std::string_view value = kFunction.substr(begin, kFunction.find_first_of(";]", begin) - begin);
  const std::string_view name = value.substr(value.rfind(':') + 1);
  return name.find(')') == std::string_view::npos ? name : std::string_view();
}

template <class Enum>
inline constexpr auto kEnumNames = []<std::size_t... Values>(std::index_sequence<Values...>) {
  return std::array{enumerator_name<static_cast<Enum>(Values)>()...};
}
(std::make_index_sequence<kNamedEnumeratorsMax>());

template <class Enum>
constexpr std::string_view enum_name(Enum value) {
  const auto index = static_cast<std::size_t>(value);
  if (index >= kNamedEnumeratorsMax || kEnumNames<Enum>[index].empty()) return "unknown";
  return kEnumNames<Enum>[index];
}

// The enumerator with this name, if there is one.
template <class Enum>
constexpr std::optional<Enum> enum_named(std::string_view name) {
  for (std::size_t index = 0; index < kNamedEnumeratorsMax; ++index)
    if (!name.empty() && kEnumNames<Enum>[index] == name) return static_cast<Enum>(index);
  return std::nullopt;
}

// Calls visit with every enumerator, in the order of their values.
template <class Enum, class Visit>
constexpr void each_enumerator(Visit visit) {
  for (std::size_t index = 0; index < kNamedEnumeratorsMax; ++index)
    if (!kEnumNames<Enum>[index].empty()) visit(static_cast<Enum>(index));
}

} // namespace oncekey
