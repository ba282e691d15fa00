#include "http/whole_answer.h"

#include <algorithm>
#include <utility>

namespace oncekey {

UpstreamRequest Forwarding::request() const {
  UpstreamRequest made = forward(head, from, self, replaced);
  for (std::size_t i = 0; i < added.size(); ++i) made.headers.add(added[i].name, added[i].value);
  return made;
}

Task<void> forward_for_answer(UpstreamCall& call, const Forwarding& forwarding, CallTerms terms, AnswerTaker& taker,
                              WholeAnswer& out) {
  return call_for_answer(call, forwarding.request(), terms, taker, out);
}

Task<void> call_for_answer(UpstreamCall& call, UpstreamRequest request, CallTerms terms, AnswerTaker& taker,
                           WholeAnswer& out) {
  out.error = co_await call.send(request, terms.framing, terms.body.size(), terms.body, terms.due);
  out.sent = out.error == CallError::none;
  taker.sent(out.error, call.reason());
  ResponseHead head;
  while (out.error == CallError::none && head.status < 200) {
    out.error = co_await call.read_head(head);
    // 100 answers an Expect, and that was answered here already.
    const bool interim = out.error == CallError::none && head.status < 200 && head.status != 100;
    if (interim && terms.interim_to != nullptr) {
      co_await terms.interim_to->send_interim(head.status, head.reason, end_to_end(head));
    }
  }
  if (out.error != CallError::none) {
    out.why = call.reason();
    if (out.error == CallError::unusable) out.status = head.status;
    co_return;
  }

  out.status = head.status;
  out.headers = end_to_end(head);
  if (head.framing == Framing::none && (request.method == "HEAD" || head.status == 304)) {
    // It describes a body that is not sent, and belongs to the answer.
    if (const auto said = head.headers.get("Content-Length")) out.headers.add("Content-Length", *said);
  }
  out.reason = std::move(head.reason);
  if (head.framing == Framing::until_close && terms.framed_only) {
    out.error = CallError::broken;
    out.why = "the answer ends with its connection, and require_framed_answers is set";
    co_return;
  }
  if (head.framing == Framing::length) out.length = head.content_length;
  const std::uint64_t expected = std::min(out.length.value_or(terms.body_bytes_max), terms.body_bytes_max);
  for (;;) {
    std::string_view piece;
    out.error = co_await call.read_piece(piece);
    if (out.error != CallError::none) {
      out.why = call.reason();
      co_return;
    }
    if (piece.empty()) co_return;
    const bool kept = taker.take(out.body, piece, expected);
    if (kept && out.body.size() <= terms.body_bytes_max) continue;
    out.longer = true;
    co_return;
  }
}

} // namespace oncekey
