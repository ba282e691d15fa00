#include "redis/reply.h"

#include <charconv>

namespace oncekey::redis {

std::optional<std::int64_t> RedisReply::integer() const {
  if (is_integer()) return reply_->integer;
  std::int64_t number = 0;
  const std::string_view digits = is_text() ? text() : std::string_view{};
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc{} || end != digits.data() + digits.size()) return std::nullopt;
  return number;
}

ReplyReader::ReplyReader() : reader_(redisReaderCreate()) {
  ONCEKEY_CHECK(reader_ != nullptr, "no memory for a reader of replies");
}

void ReplyReader::feed(std::string_view bytes) {
  // A failure is remembered by the reader and told by the next call of next().
  redisReaderFeed(reader_.get(), bytes.data(), bytes.size());
}

Result<std::optional<OwnedReply>> ReplyReader::next() {
  void* reply = nullptr;
  if (redisReaderGetReply(reader_.get(), &reply) != REDIS_OK) {
    return unavailable(std::string("what the server sends is not the Redis protocol: ") + reader_->errstr);
  }
  if (reply == nullptr) return std::optional<OwnedReply>();
  return std::optional<OwnedReply>(static_cast<redisReply*>(reply));
}

namespace {

void append_length(std::string& out, char kind, std::size_t number) {
  char digits[24];
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, number);
  out.push_back(kind);
  out.append(digits, end);
  out.append("\r\n");
}

} // namespace

void append_word_count(std::string& out, std::size_t words) { append_length(out, '*', words); }

void append_word(std::string& out, std::string_view word) {
  append_length(out, '$', word.size());
  out.append(word);
  out.append("\r\n");
}

std::string command(std::initializer_list<std::string_view> words) {
  std::string out;
  append_word_count(out, words.size());
  for (const std::string_view word : words) append_word(out, word);
  return out;
}

} // namespace oncekey::redis
