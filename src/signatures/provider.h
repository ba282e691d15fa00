// provider: the services that send webhooks, and how each proves that it is the sender.
//
// verify() looks at one request and says either which event it is or why it is not believed. It is a pure function: the
// time and the keys are arguments, nothing is read or written. What it checks is the request as it came off the
// wire: a body that was parsed and printed again has another signature.
//
// All providers keep to the same rules:
//   - Signatures are compared in constant time. Of several signatures in a request and several secrets in the
//     configuration one matching pair is enough: that is how secrets are rotated without losing an event.
//   - Where the provider signs a time, it may differ from ours by the tolerance in either direction. A request from the
//     future is as suspicious as an old one: it could be replayed for as long as it is ahead.
//   - A header that should be there once and is there twice is refused: readers would disagree on which one counts.
//   - An empty or blank secret is refused whatever the signature says: every attacker can compute that signature.
//
// A new provider is one file with a function from a WebhookCheck to a Verification, declared in signing.h and listed in
// provider.cc (docs/ADDING.md).
#pragma once

#include "base/crypto.h"
#include "base/verification_key.h"

#include <oncekey/headers.h>
#include <oncekey/result.h>

#include <chrono>
#include <functional>
#include <variant>
#include <vector>

namespace oncekey {

struct WebhookRequest {
  std::string_view method;
  // The whole URL as the sender knows it: "https://hooks.example.com/twilio?a=1". Some providers sign it.
  std::string_view url;
  const Headers& headers;
  std::string_view body; // raw bytes
};

// The enumerators are the labels of metrics and logs.
enum class WebhookFault {
  secret_unusable,  // none is configured, or one is blank or not of the provider's form
  header_missing,   // a header that carries the signature, the time or the event id
  header_malformed, // it is there, but twice, or not in the provider's form
  too_old,
  too_new,
  signature_wrong,
  body_not_covered, // the signature is good, but says nothing about this body
  event_id_missing, // the signature is good, but a repetition could not be recognized
};
std::string_view to_string(WebhookFault fault);

struct Refused {
  WebhookFault fault;
  std::string detail; // a sentence for the log; holds nothing of the request but names of headers
};

// How a repeated event is recognized.
enum class Repetition {
  by_what_is_signed, // by the event id if the signature covers it, else by the body
  by_id,             // by the event id, although an attacker who has read one delivery can send it under another id
};

struct Verified {
  // The same for every repetition of this event, and different for other events: 1 to 255 visible ASCII characters.
  // Empty for a challenge.
  std::string event_id;
  // The provider tests the URL: answer 200 with this text as text/plain, and record nothing.
  std::optional<std::string> challenge;
  // The signature covers the body and not the event id: another delivery of the same body is a repetition.
  bool told_by_body = false;
};

using Verification = std::variant<Verified, Refused>;

using WallSeconds = std::chrono::sys_seconds;

// The secrets of a webhook in the form in which its provider uses them. Made once, by WebhookProvider::keys_of.
struct WebhookKeys {
  std::vector<Hmac> macs;
  std::vector<VerificationKey> public_keys;
  std::optional<Refused> unusable; // why no request can be verified
};

// What a provider looks at.
struct WebhookCheck {
  const WebhookRequest& request;
  const WebhookKeys& keys; // they are usable
  std::chrono::seconds tolerance;
  WallSeconds now;
};

// Stateless; all calls from any thread.
class WebhookProvider {
 public:
  enum class Signs { not_the_url, the_url };
  using Verify = std::function<Verification(const WebhookCheck&)>;
  // Adds a secret to the keys, unless it is not of the provider's form.
  using AddKey = std::function<Status(std::string_view secret, WebhookKeys& keys)>;
  WebhookProvider(Verify verify_with, AddKey add_key, Signs what)
      : verify_(std::move(verify_with)), add_key_(std::move(add_key)), signs_(what) {}

  // Whether a configured secret can be used. The fault's sentence does not hold the secret. verify() refuses the same
  // secrets; checking them at start finds the mistake before a sender does.
  Status check_secret(std::string_view secret) const;
  WebhookKeys keys_of(std::span<const std::string> secrets) const;

  // WebhookRequest::url may be left empty where it is not signed.
  Signs signs() const { return signs_; }

  Verification verify(const WebhookRequest& request, const WebhookKeys& keys, std::chrono::seconds tolerance,
                      WallSeconds now) const;

 private:
  Status add(std::string_view secret, WebhookKeys& keys) const;

  Verify verify_;
  AddKey add_key_;
  Signs signs_;
};

// A fault names the providers that exist.
Result<std::unique_ptr<WebhookProvider>> webhook_provider(std::string_view name);

// For providers without a file of their own: an HMAC over a template, in a header.
struct HmacScheme {
  enum class Encoding { hex, base64 };
  std::string signature_header;
  HashAlgorithm algorithm = HashAlgorithm::sha256;
  Encoding encoding = Encoding::hex;
  std::string prefix; // in front of every signature in the header, as in "sha256="
  // What is signed: text in which {body}, {timestamp}, {id} and {url} are replaced. {body} must be in it.
  std::string signed_template = "{body}";
  std::string timestamp_header; // whole seconds since 1970; needed for {timestamp} and of no use without it
  std::string id_header;        // the event id, and what {id} stands for
  std::string id_pointer;       // or: where the event id is in a JSON body, as in "/data/id"
};
// A fault says which part of the scheme contradicts which.
Result<std::unique_ptr<WebhookProvider>> hmac_provider(HmacScheme scheme);

} // namespace oncekey
