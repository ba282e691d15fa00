// Slack: `X-Slack-Signature: v0=HEX`, HMAC-SHA-256 over "v0:", the time in X-Slack-Request-Timestamp, ":" and the body.
// An endpoint proves itself once by answering a challenge. Events carry an event_id; commands and interactions come as
// forms and carry a trigger_id. What has neither (app_rate_limited, view_closed) is named by its body, which is the
// same when Slack sends it again.
#include "core/form.h"
#include "core/json_pointer.h"
#include "signatures/signing.h"

namespace oncekey {
namespace {

const std::string* form_value(const std::vector<FormField>& fields, std::string_view name) {
  for (const FormField& field : fields) {
    if (field.name == name && field.value) return &*field.value;
  }
  return nullptr;
}

// `found` where it names the event, else a name made of the body.
Verification or_by_body(Verification found, std::string_view body) {
  const auto* const refused = std::get_if<Refused>(&found);
  if (refused == nullptr || refused->fault != WebhookFault::event_id_missing) return found;
  return Verified{"body-" + sha256_hex({body}), std::nullopt};
}

Verification slack_form(std::string_view body) {
  const Refused none{WebhookFault::event_id_missing, "the form has no trigger_id"};
  const auto fields = parse_form(body);
  if (!fields) return none;
  if (const std::string* trigger = form_value(*fields, "trigger_id")) return verified_as(*trigger, "trigger_id");
  const std::string* payload = form_value(*fields, "payload");
  return payload ? verified_by_body(*payload, "/trigger_id") : Verification(none);
}

Verification slack_event(std::string_view body) {
  const JsonPlace type = find_in_json(body, "/type");
  if (type.kind != JsonPlace::Kind::string || type.text != "url_verification")
    return verified_by_body(body, "/event_id");
  JsonPlace challenge = find_in_json(body, "/challenge");
  if (challenge.kind != JsonPlace::Kind::string)
    return Refused{WebhookFault::header_malformed, "url_verification comes without a challenge"};
  return Verified{"", std::move(challenge.text)};
}

} // namespace

Verification verify_slack(const WebhookCheck& check) {
  const std::string_view body = check.request.body;
  SignedHeaders headers(check);
  const std::string_view signature = headers.only("X-Slack-Signature", "v0=");
  const std::string_view time = headers.timely("X-Slack-Request-Timestamp");
  if (headers.refused()) return *headers.refused();
  const std::array<std::string_view, 4> pieces{"v0:", time, ":", body};
  if (!any_mac_matches(check.keys, pieces, {&signature, 1}, hex_encode)) return wrong_signature();
  const bool form = body_kind(check.request.headers) == BodyKind::form;
  return or_by_body(form ? slack_form(body) : slack_event(body), body);
}

} // namespace oncekey
