#include "core/policy.h"

#include "core/policy_text.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

std::string scope_of(const Policy& policy) {
  std::string text;
  for (const ScopeSource& source : policy.scope) text += to_string(source) + " ";
  return text;
}

// One line for each policy, in the order of the table in docs/POLICIES.md.
std::string row(std::string_view name) {
  const Policy policy = *policy_by_name(name);
  std::string text;
  for (const std::string& method : policy.methods) text += method + " ";
  for (const std::string_view word :
       {to_string(policy.key_syntax), to_string(policy.identity), to_string(policy.fingerprint), to_string(policy.key),
        to_string(policy.on_unknown), to_string(policy.on_abandoned), to_string(policy.errors)}) {
    text += std::string(word) + " ";
  }
  return text + std::to_string(policy.mismatch_status) + " " + std::to_string(policy.in_progress_status) + " " +
         policy.kept.to_string() + " " + std::to_string(policy.retention / std::chrono::hours(1)) + "h " +
         scope_of(policy) + to_string(policy.key_from.at(0));
}

TEST(Policies, AreTheFourColumnsOfTheTable) {
  const std::string kept = "200-400,402,404-407,410-424,426-428,430-499";
  EXPECT_EQ(row("classic"), "POST PATCH visible-ascii operation-key bytes pass abandon reexecute problem 422 409 " +
                                kept + " 24h header:Authorization header:Idempotency-Key");
  EXPECT_EQ(row("ietf"), "POST PATCH structured-string key bytes required abandon reexecute problem-link 422 409 " +
                             kept + " 24h header:Authorization header:Idempotency-Key");
  EXPECT_EQ(row("stripe-v1"),
            "POST raw key canonical pass hold hold stripe 400 409 200-400,402-408,410-428,430-599 24h "
            "header:Authorization header:Stripe-Account? header:Idempotency-Key");
  EXPECT_EQ(row("stripe-v2"),
            "POST DELETE raw operation-key canonical pass abandon reexecute stripe 400 409 200-399 720h "
            "header:Authorization header:Stripe-Account? header:Idempotency-Key");
}

TEST(Policies, HaveNamesThatFindThemAndNoOthersExist) {
  for (const std::string& name : policy_names()) EXPECT_EQ(policy_by_name(name)->name, name);
  EXPECT_EQ(policy_names().size(), 4u);
  EXPECT_FALSE(policy_by_name("Classic"));
  EXPECT_FALSE(policy_by_name(""));
}

TEST(StatusSet, IsReadAndWrittenAsRanges) {
  for (const std::string text : {"200", "200-299", "100-599", "200-299,404,500-599", "none"}) {
    const auto set = StatusSet::parse(text);
    ASSERT_TRUE(set) << text;
    EXPECT_EQ(set->to_string(), text);
  }
  EXPECT_EQ(StatusSet::parse("200-499, !401-403 ,!409, 402")->to_string(), "200-400,402,404-408,410-499");
  EXPECT_TRUE(StatusSet::parse("204")->contains(204));
  EXPECT_FALSE(StatusSet::parse("204")->contains(205));
  EXPECT_FALSE(StatusSet::parse("100-599")->contains(99));
  EXPECT_FALSE(StatusSet::parse("100-599")->contains(600));
  EXPECT_FALSE(StatusSet::parse("100-599")->contains(-1));
}

TEST(StatusSet, RefusesWhatIsNoStatus) {
  for (const std::string text :
       {"", ",", "200,", "99", "600", "2xx", "200-", "-200", "299-200", "200--300", "0200", "!", "+200", "200 300"}) {
    EXPECT_FALSE(StatusSet::parse(text)) << text;
  }
}

template <class Parse>
void expect_round_trip(Parse parse, std::initializer_list<std::string_view> spellings) {
  for (const std::string_view text : spellings) {
    const auto value = parse(text);
    ASSERT_TRUE(value.ok()) << text;
    EXPECT_EQ(to_string(*value), text);
  }
  const auto wrong = parse("nonsense");
  ASSERT_FALSE(wrong.ok());
  // The message names the text and what is allowed instead.
  EXPECT_NE(wrong.fault().message.find("nonsense"), std::string::npos);
  EXPECT_NE(wrong.fault().message.find("allowed are"), std::string::npos) << wrong.fault().message;
}

TEST(PolicyText, EverySettingIsReadAsItIsWritten) {
  expect_round_trip(parse_word<KeySyntax>, {"visible-ascii", "structured-string", "raw"});
  expect_round_trip(parse_word<Identity>, {"key", "operation-key"});
  expect_round_trip(parse_word<FingerprintMode>, {"bytes", "canonical"});
  expect_round_trip(parse_word<MissingKey>, {"pass", "required"});
  expect_round_trip(parse_word<OnUnknown>, {"hold", "abandon"});
  expect_round_trip(parse_word<OnAbandoned>, {"hold", "reexecute", "probe"});
  expect_round_trip(parse_word<OnStoreError>, {"refuse", "bypass"});
  expect_round_trip(parse_word<Mode>, {"enforce", "observe"});
  expect_round_trip(parse_word<ErrorFormat>, {"problem", "problem-link", "stripe"});
  expect_round_trip(parse_scope_source, {"header:X-Tenant", "header:A?", "jwt:sub", "jwt:https://x/claim?",
                                         "cookie:sid", "cookie:sid?", "client-cert", "client-cert?", "global"});
  expect_round_trip(parse_key_source, {"header:PayPal-Request-Id", "body:/idempotency_key", "body:/a~1b/0", "form:key",
                                       "form:a b", "fingerprint"});
}

TEST(PolicyText, ScopesThatAreNone) {
  for (const std::string_view text :
       {"", "header:", "header:?", "header:a b", "header", "Header:A", "cookie:", "cookie:a=b", "jwt:", "jwt:?",
        "global?", "Global", "header:A??", "client-cert:x", "Client-Cert"}) {
    EXPECT_FALSE(parse_scope_source(text).ok()) << text;
  }
}

TEST(PolicyText, KeySourcesThatAreNone) {
  for (const std::string_view text : {"", "header:", "header:a:b", "body:", "body:key", "body:/a~2", "body:/a~",
                                      "form:", "fingerprint:x", "cookie:a"}) {
    EXPECT_FALSE(parse_key_source(text).ok()) << text;
  }
}

TEST(PolicyText, Reauthorizations) {
  for (const std::string_view text : {"GET /v1/me", "HEAD /me?full=1"}) {
    const auto question = parse_reauthorization(text);
    ASSERT_TRUE(question.ok()) << text;
    EXPECT_EQ(question->method + " " + question->target, text);
  }
  for (const std::string_view text : {"", "GET", "POST /me", "GET me", "GET /a b", "GET  /me"}) {
    EXPECT_FALSE(parse_reauthorization(text).ok()) << text;
  }
}

TEST(PolicyText, Probes) {
  const auto probe = parse_probe("GET /v1/charges?key={key}");
  ASSERT_TRUE(probe.ok());
  EXPECT_EQ(probe->method, "GET");
  EXPECT_EQ(probe->target, "/v1/charges?key={key}");
  EXPECT_TRUE(parse_probe("HEAD /{key}").ok());
  for (const std::string_view text : {"", "GET", "GET ", "POST /x?{key}", "get /{key}", "GET x/{key}", "GET /x",
                                      "GET /{key} HTTP/1.1", "GET  /{key}", "GET /{key}\n"}) {
    EXPECT_FALSE(parse_probe(text).ok()) << text;
  }
}

TEST(PolicyText, JsonPointersPointIntoTheDocument) {
  EXPECT_TRUE(check_json_pointer("/").ok());
  EXPECT_TRUE(check_json_pointer("/a~0b~1c/0").ok());
  for (const std::string_view text : {"", "a", "/~", "/a~2"}) EXPECT_FALSE(check_json_pointer(text).ok()) << text;
}

} // namespace
} // namespace oncekey
