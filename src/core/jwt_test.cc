#include "core/jwt.h"

#include "base/crypto.h"

#include <gtest/gtest.h>

#include <fmt/format.h>

#include <array>

namespace oncekey {
namespace {

// RFC 7515, appendix A: keys, and one payload signed in three ways.
constexpr std::string_view kRfcSecret =
    R"({"kty":"oct","k":"AyM1SysPpbyDfgZld3umj1qzKObwVMkoqQ-EstJQLr_T-1qS0gZH75aKtMN3Yj0iPS4hcgUuTwjAzZr1Z9CAow"})";
constexpr std::string_view kRfcModulus =
    "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-"
    "pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-"
    "KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_"
    "h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
constexpr std::string_view kRfcP256 =
    R"({"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU","y":"x_FEzRu9m36HLN_tue659LNpXW6pCyStikYjKIWI5a0"})";
constexpr std::string_view kRfcPayload =
    "eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
constexpr std::int64_t kRfcExpires = 1300819380;
constexpr std::string_view kRfcHs256 = "eyJ0eXAiOiJKV1QiLA0KICJhbGciOiJIUzI1NiJ9";
constexpr std::string_view kRfcHs256Signature = "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk";
constexpr std::string_view kRfcRs256 = "eyJhbGciOiJSUzI1NiJ9";
constexpr std::string_view kRfcRs256Signature =
    "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_"
    "O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_"
    "nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_"
    "eSN9383LcOLn6_dO--xi12jzDwusC-"
    "eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_"
    "IoypGlUPQGe77Rw";
constexpr std::string_view kRfcEs256 = "eyJhbGciOiJFUzI1NiJ9";
constexpr std::string_view kRfcEs256Signature =
    "DtEhU3ljbEg8L38VWAfUAqOyKAM6-Xx-F4GawxaepmXFCgfTjDxw5djxLa8ISlSApmWQxfKTUJqPP3-Kg6NU1Q";

std::string rfc_rsa() { return fmt::format(R"({{"kty":"RSA","n":"{}","e":"AQAB"}})", kRfcModulus); }

JwkSet set_of(std::initializer_list<std::string_view> keys) {
  std::string json;
  for (const std::string_view key : keys) json += fmt::format("{}{}", json.empty() ? "" : ",", key);
  auto set = parse_jwks(fmt::format("{{\"keys\":[{}]}}", json), SecretKeys::allowed);
  EXPECT_TRUE(set.ok()) << set.fault().message;
  return *std::move(set);
}

std::string base64url(std::string_view bytes) {
  std::string text = base64_encode(bytes);
  while (text.ends_with('=')) text.pop_back();
  for (char& c : text) c = c == '+' ? '-' : c == '/' ? '_' : c;
  return text;
}

constexpr std::string_view kSecret = "0123456789abcdef0123456789abcdef";
constexpr std::int64_t kJudgedAt = 1'700'000'000;

std::string own_secret(std::string_view more = "") {
  return fmt::format(R"({{"kty":"oct","k":"{}"{}}})", base64url(kSecret), more);
}

std::string signed_token(std::string_view header, std::string_view payload, std::string_view secret = kSecret) {
  std::string token = base64url(header) + "." + base64url(payload);
  const std::array<std::string_view, 1> pieces{token};
  const std::string signature = Hmac(HashAlgorithm::sha256, secret).of(pieces);
  return token + "." + base64url(signature);
}

constexpr std::string_view kHs = R"({"alg":"HS256"})";

// "ok", "unknown key", or why the token was refused.
std::string judged(std::string_view token, const JwkSet& keys, const TokenRules& rules = {},
                   std::int64_t now = kJudgedAt) {
  const TokenJudgement judgement = judge_token(token, keys, rules, {"sub"}, now);
  if (const auto* refused = std::get_if<RefusedToken>(&judgement)) return std::string(refused->reason);
  return std::holds_alternative<VerifiedToken>(judgement) ? "ok" : "unknown key";
}

std::string judged_payload(std::string_view payload, const TokenRules& rules = {}, std::int64_t now = kJudgedAt) {
  return judged(signed_token(kHs, payload), set_of({own_secret()}), rules, now);
}

std::string joined(std::string_view header, std::string_view payload, std::string_view signature) {
  return fmt::format("{}.{}.{}", header, payload, signature);
}

TEST(Jwt, TheExamplesOfRfc7515Hold) {
  const JwkSet all = set_of({kRfcSecret, rfc_rsa(), kRfcP256});
  const struct {
    std::string_view header, signature;
  } examples[] = {{kRfcHs256, kRfcHs256Signature}, {kRfcRs256, kRfcRs256Signature}, {kRfcEs256, kRfcEs256Signature}};
  for (const auto& example : examples) {
    const std::string token = joined(example.header, kRfcPayload, example.signature);
    EXPECT_EQ(judged(token, all, {}, kRfcExpires - 1), "ok");
    EXPECT_EQ(judged(token, all, {}, kRfcExpires + 59), "ok") << "within the leeway";
    EXPECT_EQ(judged(token, all, {}, kRfcExpires + 60), "The token has expired.");
    const auto verified = std::get<VerifiedToken>(judge_token(token, all, {}, {"iss"}, kRfcExpires));
    EXPECT_EQ(verified.issuer, "joe");
    EXPECT_EQ(verified.expires, kRfcExpires);
    ASSERT_NE(verified.find("iss"), nullptr);
  }
}

TEST(Jwt, AnExampleWithAnythingChangedDoesNotHold) {
  const JwkSet all = set_of({kRfcSecret, rfc_rsa(), kRfcP256});
  for (const auto& [header, signature] :
       {std::pair{kRfcHs256, kRfcHs256Signature}, {kRfcRs256, kRfcRs256Signature}, {kRfcEs256, kRfcEs256Signature}}) {
    std::string payload(kRfcPayload);
    payload[10] = payload[10] == 'A' ? 'B' : 'A';
    EXPECT_NE(judged(joined(header, payload, signature), all, {}, kRfcExpires), "ok");
    std::string other(signature);
    other[10] = other[10] == 'A' ? 'B' : 'A';
    EXPECT_NE(judged(joined(header, kRfcPayload, other), all, {}, kRfcExpires), "ok");
    EXPECT_NE(judged(joined(header, kRfcPayload, ""), all, {}, kRfcExpires), "ok");
    EXPECT_NE(judged(joined(header, kRfcPayload, signature.substr(0, signature.size() - 4)), all, {}, kRfcExpires),
              "ok");
  }
}

TEST(Jwt, TheExampleOfRfc8037Holds) {
  const JwkSet set = set_of({R"({"kty":"OKP","crv":"Ed25519","x":"11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"})"});
  constexpr std::string_view kSigned = "eyJhbGciOiJFZERTQSJ9.RXhhbXBsZSBvZiBFZDI1NTE5IHNpZ25pbmc";
  constexpr std::string_view kSignature =
      "hgyY0il_MGCjP0JzlnLWG1PPOt7-09PGcvMg3AIbQR6dWbhijcNR4ki4iylGjg5BhVsPt9g7sVvpAr_MuM0KAg";
  EXPECT_TRUE(set.keys.front().key.verify(SignatureScheme::eddsa, kSigned, *base64url_decode_strictly(kSignature)));
  // Its payload is a sentence and no claims: the signature holds, and it is refused for that.
  EXPECT_EQ(judged(fmt::format("{}.{}", kSigned, kSignature), set), "The token's payload cannot be read.");
}

TEST(Jwt, TheUnsecuredExampleOfRfc7519IsRefused) {
  const JwkSet all = set_of({kRfcSecret, rfc_rsa(), kRfcP256});
  EXPECT_NE(judged(joined("eyJhbGciOiJub25lIn0", kRfcPayload, ""), all, {}, kRfcExpires), "ok");
  for (const char* none : {R"({"alg":"none"})", R"({"alg":"None"})", R"({"alg":"NONE"})", R"({"alg":""})", R"({})",
                           R"({"alg":null})", R"({"alg":["HS256"]})", R"({"alg":"HS512"})", R"({"alg":"hs256"})"}) {
    EXPECT_NE(judged(signed_token(none, R"({"exp":1700000100})"), set_of({own_secret()})), "ok") << none;
  }
}

TEST(Jwt, APublicKeyIsNeverTakenForASecret) {
  const std::string payload = R"({"sub":"victim","exp":1700000100})";
  // What an attacker knows of the public key, in the spellings that have worked elsewhere.
  const std::string modulus = *base64url_decode_strictly(kRfcModulus);
  for (const std::string& secret : {modulus, rfc_rsa(), std::string(kRfcModulus), std::string()}) {
    EXPECT_EQ(judged(signed_token(kHs, payload, secret), set_of({rfc_rsa()})), "The token's signature does not hold.");
    const std::string named = fmt::format(R"({{"kty":"RSA","kid":"a","n":"{}","e":"AQAB"}})", kRfcModulus);
    EXPECT_EQ(judged(signed_token(R"({"alg":"HS256","kid":"a"})", payload, secret), set_of({named})),
              "The token's signature does not hold.");
  }
  // A secret is no RSA key either, and a key for RS256 does not check PS256.
  EXPECT_NE(judged(signed_token(R"({"alg":"RS256"})", payload), set_of({own_secret()})), "ok");
  const std::string for_ps256 = fmt::format(R"({{"kty":"RSA","alg":"PS256","n":"{}","e":"AQAB"}})", kRfcModulus);
  EXPECT_NE(judged(joined(kRfcRs256, kRfcPayload, kRfcRs256Signature), set_of({for_ps256}), {}, kRfcExpires), "ok");
}

TEST(Jwt, KeysInTheTokenItselfCountForNothing) {
  const std::string payload = R"({"sub":"victim","exp":1700000100})";
  const std::string own = "attackers-secret-attackers-secret";
  const std::string header = fmt::format(R"({{"alg":"HS256","jwk":{{"kty":"oct","k":"{}"}}}})", base64url(own));
  EXPECT_NE(judged(signed_token(header, payload, own), set_of({own_secret()})), "ok");
  EXPECT_NE(judged(signed_token(R"({"alg":"HS256","jku":"https://evil.example/jwks"})", payload, own),
                   set_of({own_secret()})),
            "ok");
}

TEST(Jwt, WhatHasTwoMeaningsIsRefused) {
  const JwkSet set = set_of({own_secret()});
  const std::string payload = R"({"sub":"a","exp":1700000100})";
  EXPECT_EQ(judged(signed_token(kHs, payload), set), "ok");
  for (const char* header : {R"({"alg":"HS256","alg":"HS256"})", R"({"alg":"HS256","crit":["exp"],"exp":1})",
                             R"({"alg":"HS256","crit":[]})", R"({"alg":"HS256","b64":false,"crit":["b64"]})",
                             R"(["alg","HS256"])", R"("HS256")", R"({"alg":"HS256"} x)", R"({"alg":"HS256","kid":7})",
                             R"({"alg":"HS256","x":{"y":1,"y":2}})", R"({"alg":"HS256","al\u0067":"HS256"})"}) {
    EXPECT_NE(judged(signed_token(header, payload), set), "ok") << header;
  }
  for (const char* twice : {R"({"sub":"a","sub":"b","exp":1700000100})", R"({"sub":"a","exp":1,"exp":1700000100})",
                            R"({"sub":"a","s\u0075b":"b","exp":1700000100})", R"([1])", R"("a")", R"()"}) {
    EXPECT_NE(judged(signed_token(kHs, twice), set), "ok") << twice;
  }
  const std::string token = signed_token(kHs, payload);
  for (const std::string& other : {token + "=", token + ".", "." + token, token + ".x", token + " ", std::string("a.b"),
                                   std::string(), std::string(kTokenBytesMax + 1, 'a')}) {
    EXPECT_NE(judged(other, set), "ok") << other.substr(0, 100);
  }
  // The last character of 32 bytes has two unused bits: another spelling of the same signature is another token.
  std::string respelled = token;
  respelled.back() = static_cast<char>(respelled.back() + 1);
  EXPECT_NE(judged(respelled, set), "ok");
}

TEST(Jwt, TimesCountWithAMinuteOfLeeway) {
  EXPECT_EQ(judged_payload(R"({"sub":"a"})"), "The token has no exp: tokens that never expire are not accepted.");
  EXPECT_EQ(judged_payload(R"({"exp":1699999941})"), "ok");
  EXPECT_EQ(judged_payload(R"({"exp":1699999940})"), "The token has expired.");
  EXPECT_EQ(judged_payload(R"({"exp":1.7e9})"), "ok");
  for (const char* none : {R"({"exp":"1700000100"})", R"({"exp":null})", R"({"exp":true})", R"({"exp":[1700000100]})",
                           R"({"exp":1e999})", R"({"exp":1700000100,"nbf":"x"})"}) {
    EXPECT_NE(judged_payload(none), "ok") << none;
  }
  EXPECT_EQ(judged_payload(R"({"exp":1e300})"), "ok");
  EXPECT_EQ(judged_payload(R"({"exp":-1e300})"), "The token has expired.");
  EXPECT_EQ(judged_payload(R"({"exp":1700000900,"nbf":1700000060})"), "ok");
  EXPECT_EQ(judged_payload(R"({"exp":1700000900,"nbf":1700000061})"), "The token is not valid yet.");
}

TEST(Jwt, AudienceAndIssuerCountWhereTheyAreSet) {
  TokenRules rules;
  rules.audiences = {"payments", "orders"};
  rules.issuers = {"https://id.example"};
  const auto with = [&](std::string_view members) {
    return judged_payload(fmt::format(R"({{"exp":1700000100,{}}})", members), rules);
  };
  EXPECT_EQ(with(R"("iss":"https://id.example","aud":"orders")"), "ok");
  EXPECT_EQ(with(R"("iss":"https://id.example","aud":["x","payments"])"), "ok");
  for (const char* aud : {R"("aud":"x")", R"("aud":["x"])", R"("aud":[])", R"("aud":["payments",7])", R"("aud":"")",
                          R"("x":1)", R"("aud":{"payments":1})"}) {
    EXPECT_EQ(with(fmt::format(R"("iss":"https://id.example",{})", aud)), "The token is for another audience.") << aud;
  }
  for (const char* iss : {R"("iss":"https://id.example/")", R"("x":1)", R"("iss":"")"}) {
    EXPECT_EQ(with(fmt::format(R"("aud":"orders",{})", iss)), "The token is from another issuer.") << iss;
  }
  EXPECT_EQ(judged_payload(R"({"exp":1700000100,"iss":7})"), "The token's iss is not text.");
}

TEST(Jwt, KidSelectsTheKey) {
  const std::string other = fmt::format(R"({{"kty":"oct","kid":"b","k":"{}"}})", base64url(std::string(32, 'b')));
  const JwkSet set = set_of({own_secret(R"(,"kid":"a")"), other});
  const std::string payload = R"({"exp":1700000100})";
  EXPECT_EQ(judged(signed_token(R"({"alg":"HS256","kid":"a"})", payload), set), "ok");
  EXPECT_EQ(judged(signed_token(R"({"alg":"HS256","kid":"b"})", payload), set), "The token's signature does not hold.");
  EXPECT_EQ(judged(signed_token(R"({"alg":"HS256","kid":"c"})", payload), set), "unknown key");
  EXPECT_EQ(judged(signed_token(R"({"alg":"HS256","kid":""})", payload), set), "unknown key");
  EXPECT_EQ(judged(signed_token(kHs, payload), set), "ok") << "without a kid every key is tried";
}

TEST(Jwt, WithoutAKidOnlySoManyKeysAreTried) {
  std::string keys;
  for (std::size_t i = 0; i < kKeysTriedMax; ++i)
    keys += fmt::format(R"({{"kty":"oct","k":"{}"}},)", base64url(std::string(32, static_cast<char>('a' + i))));
  EXPECT_NE(judged(signed_token(kHs, R"({"exp":1700000100})"), set_of({keys + own_secret()})), "ok");
}

TEST(Jwt, ClaimsAreTextOrWholeNumbers) {
  const auto claim = [](std::string_view value) -> std::optional<TokenClaim> {
    const std::string token = signed_token(kHs, fmt::format(R"({{"exp":1700000100,"sub":{}}})", value));
    const auto judged = judge_token(token, set_of({own_secret()}), {}, {"sub"}, kJudgedAt);
    const TokenClaim* const found = std::get<VerifiedToken>(judged).find("sub");
    return found == nullptr ? std::nullopt : std::optional(*found);
  };
  EXPECT_EQ(claim("\"7\"")->value, "7");
  EXPECT_FALSE(claim("\"7\"")->number);
  EXPECT_TRUE(claim("7")->number);
  EXPECT_EQ(claim("9007199254740993")->value, "9007199254740993");
  for (const char* none : {"7.5", "1e3", "null", "true", "[\"a\"]", "{\"a\":1}"}) EXPECT_FALSE(claim(none)) << none;
}

// Keys.

TEST(Jwks, WeakKeysAreRejected) {
  const auto reason = [](const std::string& key) {
    const auto set = parse_jwks(fmt::format("{{\"keys\":[{}]}}", key), SecretKeys::allowed);
    return set ? std::string("accepted") : set.fault().message;
  };
  EXPECT_EQ(reason(own_secret()), "accepted");
  EXPECT_NE(reason(fmt::format(R"({{"kty":"oct","k":"{}"}})", base64url(std::string(31, 'a')))).find("31 bytes"),
            std::string::npos);
  const std::string short_modulus = base64url(std::string(128, '\xff'));
  EXPECT_NE(reason(fmt::format(R"({{"kty":"RSA","n":"{}","e":"AQAB"}})", short_modulus)).find("1024 bits"),
            std::string::npos);
  EXPECT_NE(reason(fmt::format(R"({{"kty":"RSA","n":"{}","e":"AQ"}})", kRfcModulus)), "accepted") << "exponent 1";
  EXPECT_NE(reason(fmt::format(R"({{"kty":"RSA","n":"{}","e":"AQAB","d":"AQ"}})", kRfcModulus)), "accepted");
  EXPECT_NE(reason(R"({"kty":"EC","crv":"P-256","x":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU",)"
                   R"("y":"f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU"})"),
            "accepted")
      << "no point of the curve";
  EXPECT_NE(reason(R"({"kty":"OKP","crv":"Ed25519","x":"AAAA"})"), "accepted");
  EXPECT_NE(reason(fmt::format(R"({{"kty":"RSA","alg":"ES256","n":"{}","e":"AQAB"}})", kRfcModulus)), "accepted");
}

TEST(Jwks, OneKeyThatCannotBeUsedIsNamedAndTheOthersStay) {
  const JwkSet set = set_of({own_secret(), R"({"kty":"oct","kid":"short","k":"AAAA"})"});
  EXPECT_EQ(set.keys.size(), 1u);
  ASSERT_EQ(set.rejected.size(), 1u);
  EXPECT_NE(set.rejected.front().find("short"), std::string::npos);
}

TEST(Jwks, KeysForOtherPurposesAreLeftOut) {
  const JwkSet set = set_of({own_secret(), own_secret(R"(,"use":"enc")"), own_secret(R"(,"key_ops":["sign"])"),
                             own_secret(R"(,"alg":"HS512")"), own_secret(R"(,"use":"sig","key_ops":["verify"])"),
                             R"({"kty":"EC","crv":"P-384","x":"AA","y":"AA"})", R"({"kty":"new"})", "7"});
  EXPECT_EQ(set.keys.size(), 2u);
  EXPECT_TRUE(set.rejected.empty());
}

TEST(Jwks, ASecretAtAUrlIsNone) {
  const std::string text = fmt::format("{{\"keys\":[{},{}]}}", own_secret(), kRfcP256);
  const auto set = parse_jwks(text, SecretKeys::refused);
  ASSERT_TRUE(set.ok());
  EXPECT_EQ(set->keys.size(), 1u);
  EXPECT_EQ(set->rejected.size(), 1u);
}

TEST(Jwks, ALifetimeIsThatOfCacheControlWithinBounds) {
  const auto lifetime = [](std::string_view value) {
    Headers headers;
    headers.add("cache-control", value);
    return jwks_lifetime(headers).count();
  };
  EXPECT_EQ(jwks_lifetime(Headers()).count(), 3600);
  EXPECT_EQ(lifetime("public, max-age=600"), 600);
  EXPECT_EQ(lifetime("Max-Age=5"), 60);
  EXPECT_EQ(lifetime("max-age=100000"), 86400);
  EXPECT_EQ(lifetime("max-age=soon"), 3600);
  EXPECT_EQ(lifetime("max-age=-1"), 3600);
  EXPECT_EQ(lifetime("no-store"), 60);
}

TEST(Jwks, WhatIsNoSetIsRefused) {
  for (const char* text : {"", "{}", "[]", R"({"keys":{}})", R"({"keys":[]})", "<html>", R"({"keys":[)"}) {
    EXPECT_FALSE(parse_jwks(text, SecretKeys::allowed).ok()) << text;
  }
}

} // namespace
} // namespace oncekey
