#include "core/attempt_lines.h"

#include "base/utf8.h"

#include <fmt/format.h>

#include <charconv>

namespace oncekey {
namespace {

// Up to the next one of these, which is taken away too. Nothing without it.
std::optional<std::string_view> take_until(std::string_view& text, char end) {
  const std::size_t at = text.find(end);
  if (at == std::string_view::npos) return std::nullopt;
  const std::string_view front = text.substr(0, at);
  text.remove_prefix(at + 1);
  return front;
}

template <class Number>
bool read_number(std::optional<std::string_view> text, Number& number) {
  if (!text) return false;
  const auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), number);
  return error == std::errc{} && end == text->data() + text->size();
}

bool read_line(std::string_view line, Attempt& attempt) {
  std::int64_t at = 0;
  if (!read_number(take_until(line, '\t'), at)) return false;
  const std::optional<std::string_view> gateway = take_until(line, '\t');
  if (!gateway || !read_number(take_until(line, '\t'), attempt.result.status)) return false;
  attempt.at = Time{Millis{at}};
  attempt.gateway = *gateway;
  attempt.result.reason = line;
  return true;
}

} // namespace

std::string attempt_reason(std::string_view reason) {
  std::string text = as_utf8(reason);
  if (text.size() > kAttemptReasonBytesMax) {
    constexpr unsigned kContinues = 0x80, kContinuesMask = 0xC0;
    std::size_t end = kAttemptReasonBytesMax;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & kContinuesMask) == kContinues) --end;
    text.resize(end);
  }
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = ' ';
  }
  return text;
}

std::string attempt_line(std::string_view gateway, const AttemptResult& result) {
  return fmt::format("\t{}\t{}\t{}\n", gateway, result.status, attempt_reason(result.reason));
}

std::string encode_attempts(const std::vector<Attempt>& attempts) {
  std::string text;
  for (const Attempt& each : attempts)
    text += fmt::format("{}{}", each.at.time_since_epoch().count(), attempt_line(each.gateway, each.result));
  return text;
}

std::optional<std::vector<Attempt>> decode_attempts(std::string_view text) {
  std::vector<Attempt> attempts;
  while (!text.empty()) {
    const std::optional<std::string_view> line = take_until(text, '\n');
    if (!line || attempts.size() == kAttemptsKept || !read_line(*line, attempts.emplace_back())) return std::nullopt;
  }
  return attempts;
}

} // namespace oncekey
