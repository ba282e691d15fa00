#include "redis/reply.h"

#include <fmt/format.h>

#include <array>
#include <charconv>
#include <limits>

namespace oncekey::redis {
namespace {

struct KnownError {
  std::string_view word; // the first of the message
  ErrorKind kind;
  std::string_view advice;
};

constexpr std::array kKnownErrors{
    KnownError{"MOVED", ErrorKind::moved, "this is a node of a cluster: write redis+cluster:// in the URL"},
    KnownError{"ASK", ErrorKind::ask, "this is a node of a cluster: write redis+cluster:// in the URL"},
    KnownError{"TRYAGAIN", ErrorKind::again, "a slot is on its way to another node"},
    KnownError{"CLUSTERDOWN", ErrorKind::again, "the cluster does not serve all its slots at the moment"},
    KnownError{"LOADING", ErrorKind::again, "it reads its data after a start"},
    KnownError{"READONLY", ErrorKind::again, "it is a replica now; a failover may be under way"},
    KnownError{"MASTERDOWN", ErrorKind::again, "it is a replica without its primary; a failover may be under way"},
    KnownError{"NOSCRIPT", ErrorKind::no_script, ""},
    KnownError{"OOM", ErrorKind::refused, "its memory is full: raise maxmemory, or shorten the retention"},
    KnownError{"BUSY", ErrorKind::refused, "a script on this server runs for too long: SCRIPT KILL ends it"},
    KnownError{"NOREPLICAS", ErrorKind::refused, "fewer replicas are connected than min-replicas-to-write asks for"},
    KnownError{"MISCONF", ErrorKind::refused, "it cannot write to its disk: look at its log"},
    KnownError{"NOAUTH", ErrorKind::refused, "it wants a password: write redis://USER:PASSWORD@HOST"},
    KnownError{"WRONGPASS", ErrorKind::refused, "user or password is wrong"},
    KnownError{"NOPERM", ErrorKind::refused, "the user's ACL does not allow what oncekey needs"},
    KnownError{"DENIED", ErrorKind::refused, "it is in protected mode: give it a password, or bind it to loopback"},
    KnownError{"CROSSSLOT", ErrorKind::refused, ""},
    KnownError{"NOPROTO", ErrorKind::refused, ""},
};

const KnownError* find_known(std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  for (const KnownError& known : kKnownErrors) {
    if (word == known.word) return &known;
  }
  return nullptr;
}

// "MOVED 3999 127.0.0.1:6381"
std::optional<Host> redirected_to(std::string_view text) {
  const std::size_t space = text.rfind(' ');
  return space == std::string_view::npos ? std::nullopt : parse_endpoint(text.substr(space + 1));
}

// A length and two line ends; longer than any word needs.
constexpr std::size_t kAroundWord = 24;

void append_length(std::string& out, char kind, std::size_t number) {
  char line[kAroundWord];
  line[0] = kind;
  char* const end = std::to_chars(line + 1, line + sizeof line - 2, number).ptr;
  end[0] = '\r';
  end[1] = '\n';
  out.append(line, end + 2);
}

} // namespace

std::optional<std::int64_t> RedisReply::integer() const {
  if (is_integer()) return reply_->integer;
  using Limits = std::numeric_limits<std::int64_t>;
  return is_text() ? whole_number(text(), Limits::min(), Limits::max()) : std::nullopt;
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

ServerError parse_error(std::string_view text) {
  // Redis 6 hands some errors to scripts with the sign that marks them on the wire.
  if (text.starts_with('-')) text.remove_prefix(1);
  ServerError error;
  error.text = std::string(text);
  const KnownError* const known = find_known(text);
  if (known == nullptr) return error;
  error.kind = known->kind;
  if (error.kind == ErrorKind::moved || error.kind == ErrorKind::ask) {
    // The slot is elsewhere, and the reply does not say where: the map has to be asked.
    if (const auto host = redirected_to(text)) {
      error.host = *host;
    } else {
      error.kind = ErrorKind::again;
    }
  }
  return error;
}

Fault fault_of(const ServerError& error, const Host& from) {
  const KnownError* const known = find_known(error.text);
  std::string message = fmt::format("Redis at {} answered: {}", to_string(from), error.text);
  if (known != nullptr && !known->advice.empty()) message += fmt::format(" ({})", known->advice);
  for (const std::string_view word : {"WRONGPASS", "NOAUTH", "NOPERM", "DENIED"}) {
    if (error.text.starts_with(word)) return invalid(std::move(message));
  }
  return {error.kind == ErrorKind::unclear ? FaultKind::timeout : FaultKind::unavailable, std::move(message)};
}

Result<OwnedReply> without_error(Result<OwnedReply> reply, const Host& from) {
  if (!reply || !reply->look().is_error()) return reply;
  return fault_of(parse_error(reply->look().text()), from);
}

void append_word_count(std::string& out, std::size_t words) { append_length(out, '*', words); }

void append_word(std::string& out, std::string_view word) {
  append_length(out, '$', word.size());
  out.append(word);
  out.append("\r\n", 2);
}

void append_words(std::string& out, std::initializer_list<std::string_view> words) {
  std::size_t bytes = out.size();
  for (const std::string_view word : words) bytes += word.size() + kAroundWord;
  out.reserve(bytes);
  for (const std::string_view word : words) append_word(out, word);
}

std::string command(std::initializer_list<std::string_view> words) {
  std::string out;
  append_word_count(out, words.size());
  append_words(out, words);
  return out;
}

} // namespace oncekey::redis
