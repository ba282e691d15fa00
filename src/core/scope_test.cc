#include "core/scope.h"

#include "core/policy_text.h"

#include <gtest/gtest.h>

#include <set>

namespace oncekey {
namespace {

Headers headers_of(std::initializer_list<Field> fields) {
  Headers headers;
  for (const Field& field : fields) headers.add(field.name, field.value);
  return headers;
}

class Scope : public testing::Test {
 protected:
  Policy policy(std::initializer_list<std::string_view> sources) {
    Policy policy = *policy_by_name("classic");
    policy.scope.clear();
    policy.tokens.unverified = true;
    for (const std::string_view source : sources) policy.scope.push_back(*parse_scope_source(source));
    return policy;
  }

  // The record id in hex, or the refusal's detail.
  std::string id(const Policy& policy, const Headers& headers, std::string_view key = "k",
                 std::string_view method = "POST", std::string_view target = "/a", KeyKind kind = KeyKind::client) {
    const auto found = find_principal(policy, headers, caller_);
    if (const auto* refusal = std::get_if<Refusal>(&found)) {
      EXPECT_EQ(refusal->code, RefusalCode::principal_missing);
      return "refused: " + refusal->detail;
    }
    return to_hex(record_id(policy, std::get<Principal>(found), {method, target, headers}, kind, key, hash_));
  }
  bool refused(const Policy& policy, const Headers& headers) { return id(policy, headers).starts_with("refused"); }

  KeyedHash hash_{Secret{7}};
  Caller caller_;
};

// Believes what a test says of the one token "good", and no other.
class Judge final : public TokenJudge {
 public:
  VerifiedToken token;
  const TokenVerdict& judge(std::string_view text) const override {
    if (text == "good") {
      verdict_ = token;
    } else {
      verdict_ = Refusal{RefusalCode::token_invalid, "It does not hold.", std::nullopt, {}};
    }
    return verdict_;
  }

 private:
  mutable TokenVerdict verdict_;
};

RefusalCode refusal_of(const Policy& policy, const Headers& headers, const Caller& caller) {
  const auto found = find_principal(policy, headers, caller);
  return std::holds_alternative<Refusal>(found) ? std::get<Refusal>(found).code : RefusalCode::mismatch;
}

// {"alg":"none"} . payload . signature
std::string bearer(std::string_view payload_base64url) {
  return "Bearer eyJhbGciOiJub25lIn0." + std::string(payload_base64url) + ".c2ln";
}

TEST_F(Scope, OtherAccountsOtherRecords) {
  const Policy by_header = policy({"header:Authorization"});
  EXPECT_EQ(id(by_header, headers_of({{"Authorization", "a"}})), id(by_header, headers_of({{"authorization", "a"}})));
  EXPECT_NE(id(by_header, headers_of({{"Authorization", "a"}})), id(by_header, headers_of({{"Authorization", "b"}})));
}

TEST_F(Scope, TheSpellingOfAHeaderNameDoesNotMatter) {
  const Headers headers = headers_of({{"X-Tenant", "a"}});
  EXPECT_EQ(id(policy({"header:X-Tenant"}), headers), id(policy({"header:x-tenant"}), headers));
}

TEST_F(Scope, NoPartCanPassForAnother) {
  const Policy two = policy({"header:A?", "header:B?"});
  std::set<std::string> seen;
  const std::initializer_list<std::initializer_list<Field>> requests = {
      {},
      {{"A", ""}},
      {{"B", ""}},
      {{"A", ""}, {"B", ""}},
      {{"A", "x"}},
      {{"B", "x"}},
      {{"A", "xy"}, {"B", "z"}},
      {{"A", "x"}, {"B", "yz"}},
  };
  for (const auto& fields : requests) EXPECT_TRUE(seen.insert(id(two, headers_of(fields))).second);
  EXPECT_TRUE(seen.insert(id(policy({"header:A"}), headers_of({{"A", "x"}}))).second);
  EXPECT_TRUE(seen.insert(id(policy({"header:B"}), headers_of({{"B", "x"}}))).second);
  EXPECT_TRUE(seen.insert(id(policy({"cookie:A"}), headers_of({{"Cookie", "A=x"}}))).second);
  EXPECT_TRUE(seen.insert(id(policy({"global"}), headers_of({}))).second);
}

TEST_F(Scope, MethodAndPathCountWhereThePolicySaysSoAndTheQueryNever) {
  Policy rules = policy({"global"});
  const Headers none;
  const std::string first = id(rules, none, "k", "POST", "/a");
  EXPECT_EQ(id(rules, none, "k", "POST", "/a?x=1"), first);
  EXPECT_NE(id(rules, none, "k", "POST", "/b"), first);
  EXPECT_NE(id(rules, none, "k", "PATCH", "/a"), first);
  EXPECT_NE(id(rules, none, "l", "POST", "/a"), first);
  rules.identity = Identity::key;
  EXPECT_EQ(id(rules, none, "k", "PATCH", "/b"), id(rules, none, "k", "POST", "/a"));
  EXPECT_NE(id(rules, none, "l", "POST", "/a"), id(rules, none, "k", "POST", "/a"));
}

TEST_F(Scope, AKeyMadeOfTheFingerprintNeverMeetsAClientsKey) {
  const Policy rules = policy({"global"});
  const Headers none;
  EXPECT_NE(id(rules, none, "k", "POST", "/a", KeyKind::client),
            id(rules, none, "k", "POST", "/a", KeyKind::fingerprint));
}

TEST_F(Scope, ARequiredPartMustBeThereAndNotEmpty) {
  EXPECT_EQ(id(policy({"header:X-Tenant"}), headers_of({})), "refused: The request has no header X-Tenant.");
  EXPECT_TRUE(refused(policy({"header:X-Tenant"}), headers_of({{"X-Tenant", ""}})));
  EXPECT_TRUE(refused(policy({"cookie:sid"}), headers_of({{"Cookie", "sid="}})));
  EXPECT_TRUE(refused(policy({"header:A?", "header:B"}), headers_of({{"A", "x"}})));
  EXPECT_TRUE(refused(policy({}), headers_of({})));
}

TEST_F(Scope, ASourceThatOccursTwiceIsRefused) {
  EXPECT_EQ(id(policy({"header:Authorization"}), headers_of({{"Authorization", "a"}, {"authorization", "a"}})),
            "refused: Authorization was sent more than once.");
  EXPECT_TRUE(refused(policy({"header:A?"}), headers_of({{"A", "a"}, {"A", "b"}})));
  EXPECT_TRUE(refused(policy({"cookie:sid"}), headers_of({{"Cookie", "sid=a; sid=b"}})));
  EXPECT_TRUE(refused(policy({"cookie:sid"}), headers_of({{"Cookie", "sid=a"}, {"Cookie", "sid=b"}})));
}

TEST_F(Scope, CookiesAreFoundAmongOthersByTheirWholeName) {
  const Policy rules = policy({"cookie:sid"});
  const std::string alone = id(rules, headers_of({{"Cookie", "sid=abc"}}));
  EXPECT_EQ(id(rules, headers_of({{"Cookie", "xsid=1; sid=abc; sidx=2"}})), alone);
  EXPECT_EQ(id(rules, headers_of({{"Cookie", "a=sid=zzz;sid=abc"}})), alone);
  EXPECT_NE(id(rules, headers_of({{"Cookie", "sid=abd"}})), alone);
  EXPECT_TRUE(refused(rules, headers_of({{"Cookie", "SID=abc; sidx=1"}})));
}

TEST_F(Scope, TheSchemeOfCredentialsComparesWithoutCaseAndBlanks) {
  const Policy rules = policy({"header:Authorization"});
  const auto of = [&](std::string_view value) { return id(rules, headers_of({{"Authorization", value}})); };
  const std::string usual = of("Bearer Tok");
  for (const char* same : {"bearer Tok", "BEARER Tok", "Bearer  Tok", "Bearer\tTok", "bEARER \t Tok"}) {
    EXPECT_EQ(of(same), usual) << same;
  }
  for (const char* other : {"Bearer tok", "Basic Tok", "BearerTok", "Tok", "Bearer Tok x", "Bearer  Tok  x"}) {
    EXPECT_NE(of(other), usual) << other;
  }
  EXPECT_NE(of("Secret"), of("secret")) << "one word is no scheme";
  EXPECT_EQ(of("AWS4-HMAC-SHA256 a"), of("aws4-hmac-sha256 a"));
  const Policy other_header = policy({"header:X-Auth"});
  EXPECT_NE(id(other_header, headers_of({{"X-Auth", "Bearer t"}})),
            id(other_header, headers_of({{"X-Auth", "bearer t"}})));
}

TEST_F(Scope, ACookieIsFoundHoweverItIsSpelled) {
  const Policy rules = policy({"cookie:sid"});
  const std::string alone = id(rules, headers_of({{"Cookie", "sid=abc"}}));
  for (const char* same : {"sid=\"abc\"", "a=1;\tsid=abc", "a=1; sid =abc", "sid= abc ; b=2", " \t sid\t=\t\"abc\""}) {
    EXPECT_EQ(id(rules, headers_of({{"Cookie", same}})), alone) << same;
  }
  EXPECT_TRUE(refused(rules, headers_of({{"Cookie", "sid=A;\tsid=B"}})));
  EXPECT_TRUE(refused(rules, headers_of({{"Cookie", "sid=A; sid =B"}})));
  EXPECT_TRUE(refused(rules, headers_of({{"Cookie", "sid=\"\""}})));
  EXPECT_NE(id(rules, headers_of({{"Cookie", "sid=\"abc"}})), alone);
}

TEST_F(Scope, HostNamesSeparateTenants) {
  const Policy rules = policy({"header:Authorization", "host"});
  const auto of = [&](std::string_view host) {
    return id(rules, headers_of({{"Authorization", "a"}, {"Host", host}}));
  };
  EXPECT_EQ(of("a.example"), of("A.example.:443"));
  EXPECT_NE(of("a.example"), of("b.example"));
  EXPECT_EQ(of(""), "refused: The request has no header Host.");
  EXPECT_FALSE(parse_scope_source("header:host"));
  EXPECT_TRUE(parse_scope_source("host?")->optional);
}

TEST_F(Scope, SpellingsOfOnePathAreOneOperation) {
  Policy rules = policy({"global"});
  const Headers none;
  const std::string first = id(rules, none, "k", "POST", "/orders");
  for (const char* same : {"//orders", "/./orders", "/x/../orders", "/%6frders", "/orders;a=1", "/orders/?q"}) {
    EXPECT_EQ(id(rules, none, "k", "POST", same), first) << same;
  }
  EXPECT_NE(id(rules, none, "k", "POST", "/Orders"), first);
  EXPECT_EQ(id(rules, none, "k", "POST", "/v1%2Forders"), id(rules, none, "k", "POST", "/v1/orders"));
  rules.path_case = PathCase::ignore;
  EXPECT_EQ(id(rules, none, "k", "POST", "/Orders"), id(rules, none, "k", "POST", "/orders"));
}

TEST_F(Scope, AClaimStaysWhenTheTokenIsRotated) {
  const Policy rules = policy({"jwt:sub"});
  // {"sub":"user-1","iat":1} and {"iat":2,"sub":"user-1"} and {"sub":"user-2"}
  const std::string first = id(rules, headers_of({{"Authorization", bearer("eyJzdWIiOiJ1c2VyLTEiLCJpYXQiOjF9")}}));
  EXPECT_EQ(id(rules, headers_of({{"Authorization", bearer("eyJpYXQiOjIsInN1YiI6InVzZXItMSJ9")}})), first);
  EXPECT_NE(id(rules, headers_of({{"Authorization", bearer("eyJzdWIiOiJ1c2VyLTIifQ")}})), first);
  // {"sub":7} and {"sub":"7"}
  const std::string number = id(rules, headers_of({{"Authorization", bearer("eyJzdWIiOjd9")}}));
  EXPECT_EQ(number.size(), 64u);
  EXPECT_NE(id(rules, headers_of({{"Authorization", bearer("eyJzdWIiOiI3In0")}})), number);
}

TEST_F(Scope, ATokenThatCannotBeReadHasNoPrincipal) {
  const Policy rules = policy({"jwt:sub"});
  // In turn: no claim, 1.5, null, "", the claim twice, cut off.
  for (const std::string_view payload : {"e30", "eyJzdWIiOjEuNX0", "eyJzdWIiOm51bGx9", "eyJzdWIiOiIifQ",
                                         "eyJzdWIiOiJhIiwic3ViIjoiYiJ9", "eyJzdWIiOiJ1c2VyLTEi", "", "!!!"}) {
    EXPECT_TRUE(refused(rules, headers_of({{"Authorization", bearer(payload)}}))) << payload;
  }
  for (const std::string_view value : {"", "Bearer", "Bearer x", "Bearer a.eyJzdWIiOjd9", "Basic a.eyJzdWIiOjd9.c",
                                       "Bearer a.eyJzdWIiOjd9.c.d", "a.eyJzdWIiOjd9.c"}) {
    EXPECT_TRUE(refused(rules, headers_of({{"Authorization", value}}))) << value;
  }
  EXPECT_FALSE(refused(rules, headers_of({{"Authorization", "bearer a.eyJzdWIiOjd9.c"}})));
  EXPECT_FALSE(refused(policy({"jwt:sub?"}), headers_of({})));
}

TEST_F(Scope, TheIssuerOfATokenIsPartOfTheAccount) {
  Policy rules = policy({"jwt:sub"});
  rules.tokens.unverified = false;
  const Headers headers = headers_of({{"Authorization", "Bearer good"}});
  Judge judge;
  caller_.tokens = &judge;
  judge.token.claims = {{"sub", false, "7"}};
  const std::string without = id(rules, headers);
  judge.token.issuer = "https://a.example";
  const std::string of_a = id(rules, headers);
  judge.token.issuer = "https://b.example";
  const std::string of_b = id(rules, headers);
  judge.token.claims = {{"sub", true, "7"}};
  const std::string number = id(rules, headers);
  EXPECT_EQ((std::set{without, of_a, of_b, number}).size(), 4u);
}

TEST_F(Scope, ATokenThatDoesNotHoldIsRefusedAsSuch) {
  Policy rules = policy({"jwt:sub"});
  rules.tokens.unverified = false;
  Judge judge;
  const Caller caller{&judge, nullptr, nullptr};
  const Headers good = headers_of({{"Authorization", "Bearer good"}});
  const Headers bad = headers_of({{"Authorization", "Bearer bad"}});
  EXPECT_EQ(refusal_of(rules, bad, caller), RefusalCode::token_invalid);
  EXPECT_EQ(refusal_of(rules, good, caller), RefusalCode::token_invalid) << "it has no sub";
  EXPECT_EQ(refusal_of(rules, headers_of({}), caller), RefusalCode::principal_missing);
  EXPECT_EQ(refusal_of(rules, headers_of({{"Authorization", "Basic good"}}), caller), RefusalCode::principal_missing);
  EXPECT_EQ(refusal_of(rules, good, Caller{}), RefusalCode::jwks_unavailable) << "nothing to judge it by";
  // An optional claim may be missing; a token that is there must hold all the same.
  Policy optional = policy({"jwt:sub?"});
  optional.tokens.unverified = false;
  EXPECT_EQ(refusal_of(optional, good, caller), RefusalCode::mismatch);
  EXPECT_EQ(refusal_of(optional, bad, caller), RefusalCode::token_invalid);
}

TEST_F(Scope, ACertificateIsKnownByItsName) {
  const Policy rules = policy({"client-cert"});
  const Headers none;
  EXPECT_EQ(id(rules, none), "refused: The request has no client certificate.");
  std::set<std::string> seen;
  using Kind = CertificateName::Kind;
  for (const CertificateName& name : {CertificateName{Kind::uri, "a", ""}, CertificateName{Kind::dns, "a", ""},
                                      CertificateName{Kind::subject, "a", "x"},
                                      CertificateName{Kind::subject, "a", "y"}, CertificateName{Kind::uri, "b", ""}}) {
    caller_.certificate = &name;
    EXPECT_TRUE(seen.insert(id(rules, none)).second);
  }
}

TEST_F(Scope, ARotatedCredentialKeepsItsAccount) {
  Accounts accounts;
  ASSERT_TRUE(accounts.add("old", "acme").ok());
  ASSERT_TRUE(accounts.add("new", "acme").ok());
  caller_.accounts = &accounts;
  const Policy rules = policy({"header:Authorization"});
  const std::string old = id(rules, headers_of({{"Authorization", "Bearer old"}}));
  EXPECT_EQ(id(rules, headers_of({{"Authorization", "Bearer new"}})), old);
  EXPECT_NE(id(rules, headers_of({{"Authorization", "Bearer other"}})), old);
  EXPECT_NE(id(rules, headers_of({{"Authorization", "Bearer acme"}})), old) << "a name is no credential";
  EXPECT_NE(id(rules, headers_of({{"Authorization", "acme"}})), old);
  const Policy by_cookie = policy({"cookie:sid"});
  EXPECT_EQ(id(by_cookie, headers_of({{"Cookie", "sid=old"}})), id(by_cookie, headers_of({{"Cookie", "sid=new"}})));
}

} // namespace
} // namespace oncekey
