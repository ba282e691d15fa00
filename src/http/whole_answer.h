// whole_answer: one call to an upstream, from the request's first byte to the answer's last, for an answer to be kept.
//
// An answer that is too long to keep is left on the call: its caller passes it on with UpstreamCall::read_piece().
#pragma once

#include "http/exchange.h"
#include "http/upstream.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct WholeAnswer {
  CallError error = CallError::none;
  bool sent = false; // the request
  std::string why;   // it failed, for the log
  // Of a whole answer, and of one that is `longer`. Of an unusable one the status alone, 0 if it has none.
  int status = 0;
  std::string reason;
  Headers headers; // end-to-end fields
  std::string body;
  bool longer = false;                 // than is kept: `body` is its beginning, and the call has the rest
  std::optional<std::uint64_t> length; // as announced
};

// What the caller has to say while the call runs.
class AnswerTaker {
 public:
  // The request has left, or why not. Called once.
  virtual void sent(CallError error, std::string_view why) = 0;
  // Appends the piece to the body. False if the body is not to be kept from here on; the piece is appended all the
  // same. `expected` is how long the body will become, as far as that is known.
  virtual bool take(std::string& body, std::string_view piece, std::uint64_t expected) = 0;

 protected:
  ~AnswerTaker() = default;
};

struct CallTerms {
  std::string_view body; // must live as long as the call
  Framing framing = Framing::none;
  MonotonicTime due;
  std::uint64_t body_bytes_max = 0; // of the answer
  bool framed_only = false;         // an answer that ends with its connection counts as broken
  Exchange* interim_to = nullptr;   // gets interim answers (1xx), if it is there
};

Task<void> call_for_answer(UpstreamCall& call, UpstreamRequest request, CallTerms terms, AnswerTaker& taker,
                           WholeAnswer& out);

// A client's request on its way to the upstream, with fields of our own.
struct Forwarding {
  const RequestHead& head;
  ForwardedFrom from;
  const ProxyIdentity& self;
  std::vector<std::string_view> replaced; // as forward() has it
  Headers added;

  UpstreamRequest request() const;
};
Task<void> forward_for_answer(UpstreamCall& call, const Forwarding& forwarding, CallTerms terms, AnswerTaker& taker,
                              WholeAnswer& out);

} // namespace oncekey
