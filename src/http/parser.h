// parser: HTTP/1.1 messages off the wire, strictly.
//
// Beast's basic_parser does the grammar. It is lenient where a proxy must not be (folded lines, transfer codings it
// does not know, a body it therefore does not see), so the head is checked before and after it: what passes has one
// meaning only, and the message forwarded is rebuilt from that meaning (promise P13). Heads of the usual form need no
// Beast (http/plain_head.h).
//
// Use: collect bytes until head_length() finds the end of the head, parse_head() them, then feed the rest to
// parse_body() until done().
#pragma once

#include "http/message.h"

#include <memory>

namespace oncekey {

// The length of the head including the empty line, or nothing if it has not arrived yet.
std::optional<std::size_t> head_length(std::string_view bytes);

// The status in the first line of a response head that may be malformed behind it; nothing if that is not the first
// line of a final response.
std::optional<int> final_status(std::string_view head);

// What is wrong with a message: the status to answer and the sentence for its sender.
struct ParseFault {
  int status = 0; // 0: nothing is wrong
  std::string_view detail;
  explicit operator bool() const { return status != 0; }
};

struct BodyPiece {
  std::string_view bytes;   // decoded body, a view into the input; may be empty though more is to come
  std::size_t consumed = 0; // how much of the input was used; 0 with no bytes means: read more first
};

enum class HeadOnly { no, yes }; // yes: the answer to a HEAD request, which has no body

template <class Head>
class MessageCollector;

template <class Head>
class MessageParser {
 public:
  explicit MessageParser(HeadOnly head_only = HeadOnly::no);
  ~MessageParser();
  MessageParser(MessageParser&&) noexcept;

  // `head` is exactly head_length() bytes. Of a response, folded lines and blanks before a colon are corrected first,
  // in a copy, as RFC 9112 asks of a proxy; everything else that is ambiguous is refused.
  ParseFault parse_head(std::string_view head, Head& out);
  ParseFault parse_body(std::string_view bytes, BodyPiece& out);
  // The connection ended: completes a body that is delimited by that, refuses every other.
  ParseFault end_of_input();
  bool done() const;

 private:
  HeadOnly head_only_;
  std::uint64_t body_left_ = 0;                       // of a message with a plain head, until the body is over
  std::unique_ptr<MessageCollector<Head>> collector_; // for all others
};
using RequestParser = MessageParser<RequestHead>;
using ResponseParser = MessageParser<ResponseHead>;

} // namespace oncekey
