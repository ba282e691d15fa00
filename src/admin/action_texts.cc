#include "admin/action_texts.h"

#include <oncekey/check.h>

#include <algorithm>

namespace oncekey {
namespace {

constexpr ActionText kKeyActions[] = {
    {"release", "Release", "The request was not executed. The record is deleted and the key is free.",
     "The next request with this key is executed, whatever it asks for. If the first one was executed after all, its "
     "work happens twice: look in the API behind the gateway first."},
    {"complete", "Complete", "The request was executed. Every retry gets the answer that you give here.",
     "The answer cannot be changed any more. If the request was not executed, its client believes that it was: copy "
     "the "
     "answer from the API behind the gateway."},
    {"rerun", "Let the next retry execute",
     "The next retry of the same request is executed once more, with a higher fence. Nothing happens until the client "
     "retries.",
     "If the first request was executed, its work happens twice, unless the API behind the gateway checks the "
     "idempotency key or the fence itself."},
    {"hold", "Hold", "The outcome is unknown. No retry executes; clients get 409 until an operator decides.",
     "The client cannot go on by itself, also where the route lets retries of abandoned requests execute. Nothing is "
     "executed and nothing is lost: release, complete or let it run again later."},
};

constexpr ActionText kJobActions[] = {
    {"retry", "Retry", "The message is due now and has all its attempts before it again.",
     "A receiver that has processed it already gets it once more, with the same Idempotency-Key."},
    {"drop", "Drop", "The message is deleted and not delivered any more. Its event id stays known.",
     "This cannot be undone: the body is gone, and a repetition by the sender is taken for a duplicate."},
};

} // namespace

std::span<const ActionText> key_actions() { return kKeyActions; }
std::span<const ActionText> job_actions() { return kJobActions; }

const ActionText& text_of(std::span<const ActionText> actions, std::string_view action) {
  const auto found =
      std::find_if(actions.begin(), actions.end(), [&](const ActionText& each) { return each.action == action; });
  ONCEKEY_CHECK(found != actions.end(), "every action has its text");
  return *found;
}

} // namespace oncekey
