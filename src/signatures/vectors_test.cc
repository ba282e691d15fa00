// The providers' own examples (see their documentation) and what their own libraries computed.
#include "signatures/provider.h"

#include <gtest/gtest.h>

#include <vector>

namespace oncekey {
namespace {

using std::chrono::seconds;

struct Webhook {
  std::string provider;
  std::vector<std::string> secrets;
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::int64_t now = 0;
  std::string url = "https://example.com/hook";
};

Verification verify(const Webhook& webhook) {
  Headers headers;
  for (const auto& [name, value] : webhook.headers) headers.add(name, value);
  const auto provider = webhook_provider(webhook.provider);
  EXPECT_TRUE(provider.ok());
  return (*provider)->verify({"POST", webhook.url, headers, webhook.body}, (*provider)->keys_of(webhook.secrets),
                             seconds(300), WallSeconds(seconds(webhook.now)));
}

// The event id, or why there is none.
std::string event_of(const Webhook& webhook) {
  const Verification answer = verify(webhook);
  if (const auto* refused = std::get_if<Refused>(&answer)) return "refused: " + std::string(to_string(refused->fault));
  return std::get<Verified>(answer).event_id;
}

TEST(Stripe, Vector) {
  EXPECT_EQ(event_of({"stripe",
                      {"whsec_test_secret"},
                      {{"Stripe-Signature",
                        "t=1700000000,v1=0c8670ed117751cc551a20e35839447075c42800ea3cf3e8a2fbda99cd1e6edd"}},
                      R"({"id":"evt_1","object":"event"})",
                      1700000000}),
            "evt_1");
}

TEST(Github, Vector) {
  EXPECT_EQ(
      event_of({"github",
                {"It's a Secret to Everybody"},
                {{"X-Hub-Signature-256", "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"},
                 {"X-GitHub-Delivery", "72d3162e-cc78-11e3-81ab-4c9367dc0958"}},
                "Hello, World!",
                0}),
      "72d3162e-cc78-11e3-81ab-4c9367dc0958");
}

TEST(Shopify, Vector) {
  EXPECT_EQ(event_of({"shopify",
                      {"hush"},
                      {{"X-Shopify-Hmac-Sha256", "VnKUjZsLuN5iZWjn5EntcBVCF9kMN43LglzCE1/GSeY="},
                       {"X-Shopify-Webhook-Id", "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043"},
                       {"X-Shopify-Event-Id", "98880550-7158-44d4-b7cd-2c97c8a091b5"}},
                      R"({"id":1})",
                      0}),
            "b54557e4-bdd9-4b37-8a5f-bf7d70bcd043");
}

Webhook standard_vector() {
  return {"standard",
          {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"},
          {{"webhook-id", "msg_p5jXN8AQM9LWM0D4loKWxJek"},
           {"webhook-timestamp", "1614265330"},
           {"webhook-signature", "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="}},
          R"({"test": 2432232314})",
          1614265330};
}

// Made by node:crypto with the key of RFC 8032, section 7.1, test 1.
constexpr const char* kPublicKey = "whpk_11qYAYKxCrfVS/7TyWQHOg7hcvPapiMlrwIaaPcHURo=";
constexpr const char* kEd25519 =
    "v1a,fldxM4gAKugP6nnt1hdz3sgGfZ6d99nzrMFnZOELIxbzEHoVmAb2ADpkJK7zgPePmPsle0zV9jSeGlHFG2NVAw==";

TEST(Standard, Vector) { EXPECT_EQ(event_of(standard_vector()), "msg_p5jXN8AQM9LWM0D4loKWxJek"); }

TEST(Standard, TheSecretsPrefixMayBeLeftOut) {
  Webhook webhook = standard_vector();
  webhook.secrets = {"MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"};
  EXPECT_EQ(event_of(webhook), "msg_p5jXN8AQM9LWM0D4loKWxJek");
}

TEST(Standard, UnderSvixsHeaderNames) {
  Webhook webhook = standard_vector();
  for (auto& [name, value] : webhook.headers) name.replace(0, 7, "svix");
  EXPECT_EQ(event_of(webhook), "msg_p5jXN8AQM9LWM0D4loKWxJek");
}

TEST(Standard, HalfOfEachFamilyOfHeadersIsNotEnough) {
  Webhook webhook = standard_vector();
  webhook.headers[0].first = "svix-id";
  EXPECT_EQ(event_of(webhook), "refused: header_missing");
}

TEST(Standard, Ed25519) {
  Webhook webhook = standard_vector();
  webhook.headers[2].second = kEd25519;
  webhook.secrets = {kPublicKey};
  EXPECT_EQ(event_of(webhook), "msg_p5jXN8AQM9LWM0D4loKWxJek");
  webhook.body += " ";
  EXPECT_EQ(event_of(webhook), "refused: signature_wrong");
}

TEST(Standard, EachKindOfSignatureIsCheckedWithItsOwnKindOfSecret) {
  Webhook webhook = standard_vector();
  webhook.secrets = {kPublicKey};
  EXPECT_EQ(event_of(webhook), "refused: signature_wrong");
  webhook.headers[2].second += std::string(" ") + kEd25519;
  EXPECT_EQ(event_of(webhook), "msg_p5jXN8AQM9LWM0D4loKWxJek");
  // A public key is public: a MAC made with it proves nothing.
  webhook.headers[2].second = "v1a,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
  EXPECT_EQ(event_of(webhook), "refused: signature_wrong");
}

TEST(Standard, SignaturesOfOtherVersionsDoNotCount) {
  Webhook webhook = standard_vector();
  webhook.headers[2].second = "v2,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
  EXPECT_EQ(event_of(webhook), "refused: header_malformed");
}

Webhook slack_vector() {
  return {"slack",
          {"8f742231b10e8888abcd99yyyzzz85a5"},
          {{"X-Slack-Signature", "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"},
           {"X-Slack-Request-Timestamp", "1531420618"},
           {"Content-Type", "application/x-www-form-urlencoded"}},
          "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name="
          "foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%"
          "2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015."
          "47445629121.803a0bc887a14d10d2c447fce8b6703c",
          1531420618};
}

TEST(Slack, Vector) {
  EXPECT_EQ(event_of(slack_vector()), "398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c");
}

Webhook twilio_vector() {
  return {"twilio",
          {"12345"},
          {{"X-Twilio-Signature", "RSOYDt4T1cUTdK1PDd93/VVr8B8="},
           {"Content-Type", "application/x-www-form-urlencoded; charset=UTF-8"},
           {"I-Twilio-Idempotency-Token", "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f"}},
          "CallSid=CA1234567890ABCDE&To=%2B18005551212&Caller=%2B14158675309&From=%2B14158675309&Digits=1234",
          0,
          "https://mycompany.com/myapp.php?foo=1&bar=2"};
}

TEST(Twilio, Vectors) {
  Webhook webhook = twilio_vector();
  EXPECT_EQ(event_of(webhook), "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f");
  webhook.headers[0].second = "0/KCTR6DLpKmkAf8muzZqo1nDgQ=";
  webhook.body = "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212";
  EXPECT_EQ(event_of(webhook), "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f");
}

// The following were computed by Twilio's own library for Node.
TEST(Twilio, ThePortMayBeInTheSignedUrlOrNot) {
  Webhook webhook = twilio_vector();
  webhook.body = "A=1";
  for (const auto& [url, signature] : std::vector<std::pair<std::string, std::string>>{
           {"https://mycompany.com:8443/sms", "DtIGP7IvBDUK5ZucSX1u3M62rU0="},
           {"https://mycompany.com:8443/sms", "eyn34tCMsrmDCGjZPTmPgBRbSnA="},
           {"https://mycompany.com/sms", "Iagx+cnpuNR08xYddqjbOcOcvNY="},
           {"https://mycompany.com/sms", "eyn34tCMsrmDCGjZPTmPgBRbSnA="}}) {
    webhook.url = url;
    webhook.headers[0].second = signature;
    EXPECT_EQ(event_of(webhook), "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f") << url << " " << signature;
  }
  webhook.url = "http://mycompany.com/sms";
  EXPECT_EQ(event_of(webhook), "refused: signature_wrong");
}

TEST(Twilio, RepeatedParametersAreSortedAndCountOnce) {
  Webhook webhook = twilio_vector();
  webhook.url = "https://mycompany.com/sms";
  webhook.body = "B=y&A=%C3%BC+z&B=x&B=y";
  webhook.headers[0].second = "ImdW92AEg9EHGv6d0SNgDcCPnAc=";
  EXPECT_EQ(event_of(webhook), "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f");
}

TEST(Twilio, OtherBodiesAreCoveredByTheirHashInTheUrl) {
  Webhook webhook = twilio_vector();
  webhook.url = "https://mycompany.com/j?bodySHA256=d5729c000e5de6b3a10698fec78d482db85d744f1be820d1382b6bda1cfb7795";
  webhook.body = R"({"property":"value","boolean":true})";
  webhook.headers[0].second = "hS6EzsDMeq5Blr9ZUviOUg610+c=";
  webhook.headers[1].second = "application/json";
  EXPECT_EQ(event_of(webhook), "3d93f94b-9d16-4ad5-9a8b-0a9d2cb7eb3f");
  webhook.body += "\n";
  EXPECT_EQ(event_of(webhook), "refused: body_not_covered");
}

TEST(Twilio, ABodyThatNothingCoversIsRefused) {
  Webhook webhook = twilio_vector();
  webhook.headers[1].second = "application/json";
  EXPECT_EQ(event_of(webhook), "refused: body_not_covered");
}

TEST(Twilio, WithoutATokenTheSameRequestIsTheSameEvent) {
  Webhook webhook = twilio_vector();
  webhook.headers.pop_back();
  const std::string event = event_of(webhook);
  EXPECT_TRUE(event.starts_with("sha256:")) << event;
  EXPECT_EQ(event_of(webhook), event);
  webhook.headers[0].second = "0/KCTR6DLpKmkAf8muzZqo1nDgQ=";
  webhook.body = "CallSid=CA1234567890ABCDE&Caller=%2B12349013030&Digits=1234&From=%2B12349013030&To=%2B18005551212";
  EXPECT_NE(event_of(webhook), event);
}

TEST(WebhookProvider, OfAnUnknownNameIsAFaultThatNamesTheKnown) {
  const auto provider = webhook_provider("strype");
  ASSERT_FALSE(provider.ok());
  EXPECT_NE(provider.fault().message.find("stripe, github, shopify, standard, slack, twilio"), std::string::npos);
}

} // namespace
} // namespace oncekey
