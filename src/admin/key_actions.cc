// What operators do with a key.
#include "admin/key_pages.h"
#include "admin/record_json.h"
#include "base/enum_name.h"
#include "core/decide.h"

namespace oncekey {

namespace json = boost::json;

namespace {

// The response an operator gives for `complete`.
Result<StoredResponse> response_of(const json::object& object) {
  StoredResponse response;
  const json::value* status = object.if_contains("status");
  if (status == nullptr || !status->is_int64() || status->get_int64() < 200 || status->get_int64() > 599) {
    return invalid("status must be a whole number from 200 to 599: the status the client is to get");
  }
  response.status = static_cast<int>(status->get_int64());
  const std::string_view content_type = text_member(object, "content_type");
  if (content_type.find_first_of("\r\n") != std::string_view::npos) return invalid("content_type holds a line break");
  response.headers.add("Content-Type", content_type.empty() ? "application/json" : content_type);
  response.body = text_member(object, "body");
  const bool bodiless = status_forbids_body(response.status) || response.status == kResetContent;
  if (bodiless && !response.body.empty()) return invalid("an answer with this status has no body");
  return response;
}

} // namespace

Task<PageAnswer> KeyPages::act(PageRequest& asked) {
  const auto action = enum_named<OperatorAction>(asked.action);
  if (!action) co_return refused(404, "the actions are release, complete, rerun and hold");
  StoredResponse response;
  if (*action == OperatorAction::complete) {
    Result<StoredResponse> answer = response_of(asked.given);
    if (!answer) co_return refused(400, answer.fault().message);
    response = std::move(answer).value();
  }
  RecordId id;
  const Result<Found> found = co_await find_by_id(asked.id, id);
  if (!found) co_return refused(found.fault());
  if (auto refusal = asked.refuse_unconfirmed(to_hex(id))) co_return *std::move(refusal);
  // An action that is sent again after a restart of the gateway must not settle a later claim of the key.
  const std::string_view version = asked.text("version");
  if (!version.empty() && version != fmt::format_int(found->record->fence).c_str()) {
    audit_.note(asked.audit_line(to_hex(id), asked.action, "refused: changed"));
    co_return refused(409, "the key was claimed again since you looked at it: look again before you decide", "changed");
  }
  const Result<OperatorAnswer> done = co_await await_store<OperatorAnswer>(
      loop_, [&](auto answered) { shared_.store.operate(id, *action, std::move(response), std::move(answered)); });
  audit_.note(asked.audit_line(to_hex(id), asked.action, result_word(done)));
  if (!done) co_return refused(503, done.fault().message);
  switch (*done) {
    case OperatorAnswer::done:
      break;
    case OperatorAnswer::absent:
      co_return refused(404, "no such record; it may have expired or been released");
    case OperatorAnswer::live:
      co_return refused(409, co_await why_live(id));
    case OperatorAnswer::completed:
      co_return refused(409, "the record has its answer already; changing it would give two clients different answers");
  }
  shared_.waiters.notify(id);
  co_return PageAnswer{200, done_json(id, asked.action)};
}

Task<std::string> KeyPages::why_live(const RecordId& id) {
  const Result<std::optional<Found>> found = co_await look_up(id);
  if (found && found->has_value()) {
    const Found& now = **found;
    const std::int64_t left = retry_after_lease(now.record->lease_until - now.now).count();
    if (shared_.owner_is_gone(id, *now.record)) {
      co_return fmt::format(
          "the call ended without an answer and its outcome is unknown; the lease is over in {} s: try again then",
          left);
    }
  }
  co_return "the owner is still at work: its lease is live; try again when it is over";
}

} // namespace oncekey
