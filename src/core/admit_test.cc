#include "core/admit.h"

#include "../../tests/tables/decision_table.h"
#include "core/policy_text.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>

namespace oncekey {
namespace {

struct Request {
  std::string method = "POST";
  std::string target = "/v1/charges";
  Headers headers;
  std::string body = R"({"amount":1})";
  RequestView view() const { return {method, target, headers}; }
};

Request request_with(std::initializer_list<Field> fields, std::string method = "POST") {
  Request request;
  request.method = std::move(method);
  for (const Field& field : fields) request.headers.add(field.name, field.value);
  return request;
}

Request keyed(std::string_view key, std::string method = "POST") {
  return request_with({{"Authorization", "Bearer t"}, {"Idempotency-Key", key}}, std::move(method));
}

const std::map<std::string, Request>& requests() {
  const Field auth{"Authorization", "Bearer t"};
  const Field key{"Idempotency-Key", "k"};
  const std::string long_key(255, 'x');
  const std::string too_long_key(256, 'x');
  static const std::map<std::string, Request> all = {
      {"key", keyed("k")},
      {"no_key", request_with({auth})},
      {"get", keyed("k", "GET")},
      {"put", keyed("k", "PUT")},
      {"patch", keyed("k", "PATCH")},
      {"delete", keyed("k", "DELETE")},
      {"delete_with_two_keys", request_with({auth, key, key}, "DELETE")},
      {"empty_key", keyed("")},
      {"blank_key", keyed(" \t")},
      {"quoted_key", keyed("\"k\"")},
      {"quoted_empty_key", keyed("\"\"")},
      {"unclosed_quote", keyed("\"k")},
      {"lone_quote", keyed("\"")},
      {"escaped_quote", keyed(R"("a\"b")")},
      {"bad_escape", keyed(R"("a\b")")},
      {"quoted_with_parameter", keyed("\"k\";a=1")},
      {"quoted_with_rubbish", keyed("\"k\"x")},
      {"uuid", keyed("8e03978e-40d5-43e8-bc93-6894a57f9324")},
      {"key_of_255", keyed(long_key)},
      {"key_of_256", keyed(too_long_key)},
      {"quoted_key_of_255", keyed('"' + long_key + '"')},
      {"quoted_key_of_256", keyed('"' + too_long_key + '"')},
      {"space_in_key", keyed("a b")},
      {"quoted_space_in_key", keyed("\"a b\"")},
      {"tab_in_key", keyed("a\tb")},
      {"control_byte_in_key", keyed("a\x01")},
      {"delete_byte_in_key", keyed("a\x7f")},
      {"non_ascii_in_key", keyed("k\xc3\xa9")},
      {"quoted_non_ascii", keyed("\"k\xc3\xa9\"")},
      {"two_keys", request_with({auth, key, {"idempotency-key", "l"}})},
      {"same_key_twice", request_with({auth, key, key})},
      {"string_over_two_lines", request_with({auth, {"Idempotency-Key", "\"foo"}, {"Idempotency-Key", "bar\""}})},
      {"key_in_connection", request_with({auth, key, {"Connection", "close, idempotency-key"}})},
      {"connection_close", request_with({auth, key, {"Connection", "close"}})},
      {"no_principal", request_with({key})},
      {"empty_principal", request_with({key, {"Authorization", ""}})},
      {"two_principals", request_with({key, auth, {"authorization", "Bearer u"}})},
      {"no_key_no_principal", request_with({})},
      {"account_header", request_with({auth, key, {"Stripe-Account", "acct_1"}})},
      {"empty_account_header", request_with({auth, key, {"Stripe-Account", ""}})},
      {"two_account_headers", request_with({auth, key, {"Stripe-Account", "a"}, {"Stripe-Account", "b"}})},
  };
  return all;
}

class Admit : public testing::Test {
 protected:
  static ScreenAnswer screen(const Policy& policy, const Request& request) {
    return oncekey::screen(policy, request.view(), Requester(policy, request.headers));
  }
  // Both steps, as the gateway makes them.
  AdmitAnswer admit(const Policy& policy, const Request& request) {
    const Requester requester(policy, request.headers);
    ScreenAnswer screened = oncekey::screen(policy, request.view(), requester);
    if (auto* refusal = std::get_if<Refusal>(&screened)) return std::move(*refusal);
    if (std::holds_alternative<Unprotected>(screened)) return Unprotected{};
    return oncekey::admit(policy, request.view(), requester, std::get<ReadBody>(screened).key, request.body, hash_);
  }
  Admitted admitted(const Policy& policy, const Request& request) {
    AdmitAnswer answer = admit(policy, request);
    if (auto* yes = std::get_if<Admitted>(&answer)) return *yes;
    ADD_FAILURE() << "not admitted: " << text(answer);
    return {};
  }
  template <class Answer>
  static std::string text(const Answer& answer) {
    if (auto* refusal = std::get_if<Refusal>(&answer)) return std::string(to_string(refusal->code));
    if (std::holds_alternative<Unprotected>(answer)) return "pass";
    if constexpr (std::is_same_v<Answer, ScreenAnswer>) {
      return "read_body";
    } else {
      return "admitted";
    }
  }
  Policy classic_ = *policy_by_name("classic");
  KeyedHash hash_{Secret{1, 2, 3}};
};

std::string shown(std::string key) {
  if (key.empty()) return "-";
  if (key.size() > 40) return "<" + std::to_string(key.size()) + ">";
  for (char& c : key) c = c == ' ' ? '_' : c;
  return key;
}

TEST_F(Admit, EveryCellOfTheTable) {
  DecisionTable table("admit.txt", 2);
  for (const std::string& name : policy_names()) {
    const Policy policy = *policy_by_name(name);
    for (const auto& [request_name, request] : requests()) {
      const AdmitAnswer answer = admit(policy, request);
      const auto* yes = std::get_if<Admitted>(&answer);
      table.expect({name, request_name},
                   text(screen(policy, request)) + " " + text(answer) + " " + (yes ? shown(yes->key) : "-"));
    }
  }
  table.expect_every_line_was_a_cell();
}

TEST_F(Admit, ConnectionMayNotNameWhatARecordIsFoundBy) {
  Policy policy = classic_;
  policy.scope = {{ScopeSource::Kind::header, "X-Account", true}};
  policy.fingerprint_headers = {"X-Version"};
  const auto naming = [](std::string_view name) {
    return request_with({{"Idempotency-Key", "k"}, {"X-Account", "a"}, {"Connection", name}});
  };
  for (const std::string_view name : {"x-account", "close, X-Version"}) {
    EXPECT_EQ(text(screen(policy, naming(name))), "key_in_connection");
    EXPECT_EQ(text(admit(policy, naming(name))), "key_in_connection");
  }
  EXPECT_EQ(text(admit(policy, naming("close, X-Other"))), "admitted");
  const Request unkeyed = request_with({{"X-Account", "a"}, {"Connection", "x-account"}});
  EXPECT_EQ(text(admit(policy, unkeyed)), "pass");
}

TEST_F(Admit, StrictStructuredStringsMustBeQuoted) {
  Policy policy = *policy_by_name("ietf");
  policy.strict = true;
  EXPECT_EQ(text(screen(policy, keyed("k"))), "key_invalid");
  EXPECT_EQ(admitted(policy, keyed("\"k\"")).key, "k");
}

TEST_F(Admit, KeySourcesAreTriedInOrder) {
  classic_.key_from = {*parse_key_source("header:PayPal-Request-Id"), *parse_key_source("body:/idempotency_key"),
                       *parse_key_source("header:Idempotency-Key")};
  Request request = keyed("from-header");
  EXPECT_EQ(admitted(classic_, request).key, "from-header");
  request.body = R"({"idempotency_key":"from-body"})";
  EXPECT_EQ(admitted(classic_, request).key, "from-body");
  request.headers.add("paypal-request-id", "from-paypal");
  EXPECT_EQ(admitted(classic_, request).key, "from-paypal");
}

TEST_F(Admit, ABrokenKeyHeaderIsRefusedEvenWhenAnotherSourceHasAKey) {
  classic_.key_from = {*parse_key_source("body:/key"), *parse_key_source("header:Idempotency-Key")};
  Request request = keyed("a b");
  request.body = R"({"key":"good"})";
  EXPECT_EQ(text(screen(classic_, request)), "key_invalid");
  EXPECT_EQ(text(admit(classic_, request)), "key_invalid");
}

TEST_F(Admit, AKeyInTheBodyNeedsTheBodyAndNoPrincipalBefore) {
  classic_.key_from = {*parse_key_source("body:/key")};
  Request request = request_with({{"Content-Type", "application/json"}});
  EXPECT_EQ(text(screen(classic_, request)), "read_body");
  EXPECT_EQ(text(admit(classic_, request)), "pass");
  request.body = R"({"key":"k"})";
  EXPECT_EQ(text(admit(classic_, request)), "principal_missing");
  classic_.key = MissingKey::required;
  EXPECT_EQ(text(screen(classic_, request)), "principal_missing");
  request.headers.add("Authorization", "t");
  EXPECT_EQ(admitted(classic_, request).key, "k");
  request.body = "{}";
  EXPECT_EQ(text(admit(classic_, request)), "key_missing");
}

TEST_F(Admit, KeysInJsonBodies) {
  classic_.key_from = {*parse_key_source("body:/meta/0/a~1b")};
  const auto answer = [&](std::string body) {
    Request request = request_with({{"Authorization", "t"}, {"Content-Type", "application/json; charset=utf-8"}});
    request.body = std::move(body);
    const AdmitAnswer admission = admit(classic_, request);
    const auto* yes = std::get_if<Admitted>(&admission);
    return yes ? "key " + yes->key : text(admission);
  };
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"k"}]})"), "key k");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"\u006b"}]})"), "key k");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":9007199254740993}]})"), "key 9007199254740993");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"\"k\""}]})"), "key \"k\"") << "quotes of a body's key are its own";
  EXPECT_EQ(answer(R"({"meta":[{},{"a/b":"k"}]})"), "pass");
  EXPECT_EQ(answer(R"({"meta":[]})"), "pass");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":""}]})"), "key_invalid");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":null}]})"), "key_invalid");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":true}]})"), "key_invalid");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":["k"]}]})"), "key_invalid");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"k\n"}]})"), "key_invalid");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"k","a/b":"l"}]})"), "key_repeated");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"k"}],"meta":[]})"), "key_repeated");
  EXPECT_EQ(answer(R"({"meta":[{"a/b":"k"}])"), "key_invalid") << "an upstream might read what we cannot";
  EXPECT_EQ(answer(""), "pass");
}

TEST_F(Admit, KeysInForms) {
  classic_.key_from = {*parse_key_source("form:order id")};
  const auto answer = [&](std::string body) {
    Request request =
        request_with({{"Authorization", "t"}, {"Content-Type", "Application/X-WWW-Form-Urlencoded;charset=utf-8"}});
    request.body = std::move(body);
    const AdmitAnswer admission = admit(classic_, request);
    const auto* yes = std::get_if<Admitted>(&admission);
    return yes ? "key " + yes->key : text(admission);
  };
  EXPECT_EQ(answer("a=1&order+id=k%2D1"), "key k-1");
  EXPECT_EQ(answer("a=1&order%20id=k"), "key k");
  EXPECT_EQ(answer("a=1"), "pass");
  EXPECT_EQ(answer("order+id="), "key_invalid");
  EXPECT_EQ(answer("order+id"), "key_invalid");
  EXPECT_EQ(answer("order+id=a+b"), "key_invalid");
  EXPECT_EQ(answer("order+id=k&order%20id=k"), "key_repeated");
  EXPECT_EQ(answer("order+id=%zz"), "key_invalid");
  EXPECT_EQ(answer("order+id=%4"), "key_invalid");
  // A body that is no form has no fields, and need not be read.
  Request json = request_with({{"Content-Type", "application/json"}});
  EXPECT_EQ(text(screen(classic_, json)), "pass");
}

TEST_F(Admit, RequestsAlikeAreOneWithinTheWindow) {
  classic_.key_from = {*parse_key_source("header:Idempotency-Key"), *parse_key_source("fingerprint")};
  classic_.window = std::chrono::seconds(10);
  Request request = request_with({{"Authorization", "t"}});
  EXPECT_EQ(text(screen(classic_, request)), "read_body");
  const Admitted first = admitted(classic_, request);
  EXPECT_EQ(first.key, "");
  EXPECT_EQ(first.retention, std::chrono::seconds(10));
  EXPECT_EQ(admitted(classic_, request).id, first.id);
  Request other = request;
  other.body = "other";
  EXPECT_NE(admitted(classic_, other).id, first.id);
  // The client's own key comes first, with the policy's retention.
  EXPECT_EQ(admitted(classic_, keyed("k")).retention, std::chrono::hours(24));
}

} // namespace
} // namespace oncekey
