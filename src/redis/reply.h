// reply: the commands that a server is asked with, what it answers (RESP, by way of hiredis), and what its errors mean.
#pragma once

#include "redis/redis_url.h"

#include <hiredis/hiredis.h>

#include <initializer_list>
#include <memory>

namespace oncekey::redis {

// A look at a reply or a part of one. Nothing here trusts the server: asking for what is not there gives nothing.
class RedisReply {
 public:
  RedisReply() = default;
  explicit RedisReply(const redisReply* reply) : reply_(reply) {}

  bool is_error() const { return is(REDIS_REPLY_ERROR); }
  bool is_nil() const { return reply_ == nullptr || is(REDIS_REPLY_NIL); }
  bool is_array() const { return is(REDIS_REPLY_ARRAY); }
  bool is_integer() const { return is(REDIS_REPLY_INTEGER); }
  bool is_text() const { return is(REDIS_REPLY_STRING) || is(REDIS_REPLY_STATUS); }

  // Of text and errors; empty otherwise.
  std::string_view text() const {
    return is_text() || is_error() ? std::string_view(reply_->str, static_cast<std::size_t>(reply_->len))
                                   : std::string_view{};
  }
  // Of integers, and of text that is a whole number.
  std::optional<std::int64_t> integer() const;

  std::size_t size() const { return is_array() ? reply_->elements : 0; }
  RedisReply operator[](std::size_t index) const {
    return index < size() ? RedisReply(reply_->element[index]) : RedisReply();
  }

 private:
  bool is(int type) const { return reply_ != nullptr && reply_->type == type; }
  const redisReply* reply_ = nullptr;
};

class OwnedReply {
 public:
  explicit OwnedReply(redisReply* reply) : reply_(reply) {}
  RedisReply look() const { return RedisReply(reply_.get()); }

 private:
  struct Free {
    void operator()(redisReply* reply) const { freeReplyObject(reply); }
  };
  std::unique_ptr<redisReply, Free> reply_;
};

// Makes replies out of the bytes of a connection.
class ReplyReader {
 public:
  ReplyReader();
  void feed(std::string_view bytes);
  // Nothing while a reply is not whole. A fault when the bytes are no replies: the connection is of no use any more.
  Result<std::optional<OwnedReply>> next();

 private:
  struct Free {
    void operator()(redisReader* reader) const { redisReaderFree(reader); }
  };
  std::unique_ptr<redisReader, Free> reader_;
};

enum class ErrorKind {
  moved,     // another node has the slot, for good
  ask,       // another node has this key already, while the slot is on its way there
  again,     // nothing was done and a little later it may be: a slot on its way, a failover, a server still loading
  no_script, // nothing was done; the script has to be loaded first
  refused,   // nothing was done, and an operator has to mend the server or its settings first
  unclear,   // an error in the middle of something
};

struct ServerError {
  ErrorKind kind = ErrorKind::unclear;
  Host host; // of moved and ask; an empty name stands for the one that was asked
  std::string text;
};

// What an error reply means for the call that got it.
ServerError parse_error(std::string_view text);

// As a fault: `unavailable` where nothing was done, `timeout` where that is not known, `invalid` for a wrong login. The
// message has the server's words, and what to do about them where that is known.
Fault fault_of(const ServerError& error, const Host& from);
// The same, where an error reply is not expected: as a fault.
Result<OwnedReply> without_error(Result<OwnedReply> reply, const Host& from);

// Commands are built by appending: the number of words first, then each of them.
void append_word_count(std::string& out, std::size_t words);
void append_word(std::string& out, std::string_view word);
void append_words(std::string& out, std::initializer_list<std::string_view> words);
std::string command(std::initializer_list<std::string_view> words);

} // namespace oncekey::redis
