// values: a TOML node as a setting's type. A fault says what was expected and what was found; the reader adds the
// setting's name and line.
//
// Internal to this room, like everything that sees toml++.
#pragma once

#include <oncekey/result.h>
#include <oncekey/time.h>

#include <fmt/format.h>
#include <toml++/toml.h>

#include <cstdint>
#include <limits>
#include <string>
#include <vector>

namespace oncekey {

Result<std::string> as_text(const toml::node& node);
// One text stands for a list of one.
Result<std::vector<std::string>> as_texts(const toml::node& node);
Result<bool> as_switch(const toml::node& node);
Result<std::int64_t> as_whole_number(const toml::node& node, std::int64_t least, std::int64_t most);
// "60s" and the like, from `least` to a year.
Result<Millis> as_duration(const toml::node& node, Millis least);
// A number of bytes, or text such as "8MiB".
Result<std::uint64_t> as_bytes(const toml::node& node);

// "25%" and the like, as a part of one: more than none, and no more than all.
Result<double> as_part(const toml::node& node);

// "100/s" and the like, in requests per second.
Result<double> as_rate(const toml::node& node);
// How many requests at once; a whole number.
Result<double> as_burst(const toml::node& node);

// Stores a value that was read, or returns its fault.
template <class T>
Status put(T& target, Result<T> read) {
  if (!read) return std::move(read).fault();
  target = std::move(read).value();
  return ok_status();
}

// The same for counts, whose range is that of the target unless a narrower one is given.
template <class Integer>
Status put_count(Integer& target, const toml::node& node, std::int64_t least,
                 std::int64_t most = std::numeric_limits<Integer>::max()) {
  const auto read = as_whole_number(node, least, most);
  if (!read) return read.fault();
  target = static_cast<Integer>(*read);
  return ok_status();
}

} // namespace oncekey
