// Slack: `X-Slack-Signature: v0=HEX`, HMAC-SHA-256 over "v0:", the time in X-Slack-Request-Timestamp, ":" and the body.
// An endpoint proves itself once by answering a challenge. Events carry an event_id; commands and interactions come as
// forms and carry a trigger_id. What has neither (app_rate_limited, view_closed) is named by its body, which is the
// same when Slack sends it again.
#include "core/form.h"
#include "core/json_pointer.h"
#include "signatures/providers.h"
#include "signatures/signing.h"

namespace oncekey {
namespace {

constexpr std::string_view kSlackSignature = "X-Slack-Signature";
constexpr std::string_view kSlackTimestamp = "X-Slack-Request-Timestamp";
constexpr std::string_view kSlackPrefix = "v0=";

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
  Sha256 hash;
  hash.update(body);
  const HashBytes bytes = hash.finish();
  return Verified{"body-" + hex_encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()}), std::nullopt};
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

class SlackProvider final : public WebhookProvider {
 public:
  std::string_view name() const override { return "slack"; }

 protected:
  Verification verify_with(const WebhookRequest& request, std::span<const std::string> secrets,
                           std::chrono::seconds tolerance, WallSeconds now) const override {
    const auto header = only_header(request.headers, kSlackSignature);
    if (const auto* refused = std::get_if<Refused>(&header)) return *refused;
    std::string_view signature = std::get<std::string_view>(header);
    if (!signature.starts_with(kSlackPrefix))
      return Refused{WebhookFault::header_malformed, "X-Slack-Signature does not begin with v0="};
    signature.remove_prefix(kSlackPrefix.size());
    const auto time = timely_header(request.headers, kSlackTimestamp, tolerance, now);
    if (const auto* refused = std::get_if<Refused>(&time)) return *refused;
    if (!any_mac_matches(HashAlgorithm::sha256, secrets, {"v0:", std::get<std::string_view>(time), ":", request.body},
                         {&signature, 1}, hex_encode)) {
      return wrong_signature();
    }
    const bool form = body_kind(request.headers) == BodyKind::form;
    return or_by_body(form ? slack_form(request.body) : slack_event(request.body), request.body);
  }
};

} // namespace

std::unique_ptr<WebhookProvider> make_slack() { return std::make_unique<SlackProvider>(); }

} // namespace oncekey
