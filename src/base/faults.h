// faults: faults with a formatted message.
#pragma once

#include <oncekey/result.h>

#include <fmt/format.h>

#include <utility>

namespace oncekey {

template <class First, class... Rest>
Fault invalid(fmt::format_string<First, Rest...> text, First&& first, Rest&&... rest) {
  return invalid(fmt::format(text, std::forward<First>(first), std::forward<Rest>(rest)...));
}

} // namespace oncekey
