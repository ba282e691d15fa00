#include "admin/answers.h"

#include "base/utf8.h"

#include <boost/json.hpp>

#include <fmt/format.h>

#include <charconv>

namespace oncekey {

std::string problem(std::string_view message) {
  boost::json::object body;
  body["error"] = as_utf8(message);
  return boost::json::serialize(body);
}

std::string_view query_of(std::string_view target) {
  const std::size_t question = target.find('?');
  return question == std::string_view::npos ? std::string_view{} : target.substr(question + 1);
}

std::string_view query_value(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const std::size_t end = query.find('&');
    const std::string_view pair = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view{} : query.substr(end + 1);
    const std::size_t equals = pair.find('=');
    if (equals != std::string_view::npos && pair.substr(0, equals) == name) return pair.substr(equals + 1);
  }
  return {};
}

std::string decoded_query_value(std::string_view query, std::string_view name) {
  std::string decoded;
  const std::string_view text = query_value(query, name);
  for (std::size_t at = 0; at < text.size(); ++at) {
    unsigned byte = 0;
    const bool escape = text[at] == '%' && text.size() - at > 2;
    if (escape && std::from_chars(&text[at + 1], &text[at + 1] + 2, byte, 16).ptr == &text[at + 1] + 2) {
      decoded.push_back(static_cast<char>(byte));
      at += 2;
    } else {
      decoded.push_back(text[at]);
    }
  }
  return decoded;
}

Result<std::size_t> limit_of(std::string_view query, std::size_t usual) {
  const std::string_view text = query_value(query, "limit");
  if (text.empty()) return usual;
  std::size_t limit = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), limit);
  if (error != std::errc{} || end != text.data() + text.size() || limit == 0 || limit > kListMax)
    return invalid(fmt::format("limit is a whole number from 1 to {}", kListMax));
  return limit;
}

} // namespace oncekey
