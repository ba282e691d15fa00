// What a search finds is what admit() makes: each scope with a request, and with what an operator knows of it.
#include "admin/key_search.h"

#include "core/admit.h"
#include "core/redaction.h"
#include "support/parsed_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <stdexcept>

namespace oncekey {
namespace {

constexpr std::string_view kTop = "upstream = \"http://127.0.0.1:9090\"\n";
// {"iss":"https://issuer.example","sub":"alice","number":7}, with a signature of no worth.
constexpr std::string_view kToken =
    "eyJhbGciOiJSUzI1NiJ9."
    "eyJpc3MiOiJodHRwczovL2lzc3Vlci5leGFtcGxlIiwic3ViIjoiYWxpY2UiLCJudW1iZXIiOjd9.AAAA";

class KeySearchTest : public ::testing::Test {
 protected:
  void read(std::string_view routes) {
    auto config = parse_config(std::string(kTop) + std::string(routes), "test.toml");
    if (!config) throw std::runtime_error(config.fault().message);
    config_ = std::make_unique<Config>(*std::move(config));
    trust_ = std::make_unique<Trust>(*config_);
  }

  RecordId admitted(std::string_view target, const Headers& headers, const Caller& caller = {},
                    std::string_view method = "POST") {
    const Policy& policy = config_->routes[0].policy;
    const Requester requester(policy, headers, caller);
    const ScreenAnswer screened = screen(policy, {method, target, headers}, requester);
    const auto* const read = std::get_if<ReadBody>(&screened);
    EXPECT_NE(read, nullptr);
    if (read == nullptr) return {};
    const AdmitAnswer answer = admit(policy, {method, target, headers}, requester, read->key, "{}", hash_);
    const auto* const it = std::get_if<Admitted>(&answer);
    EXPECT_NE(it, nullptr);
    if (it == nullptr) return {};
    account_of_last_ = it->account;
    fingerprint_of_last_ = it->fingerprint;
    return it->id;
  }

  static Headers headers(std::initializer_list<std::pair<std::string_view, std::string_view>> fields) {
    Headers all;
    all.add("Idempotency-Key", "order-17");
    for (const auto& [name, value] : fields) all.add(name, value);
    return all;
  }
  static KeySearch search(std::string principal, std::string path = "") {
    KeySearch made;
    made.key = "order-17";
    made.principal = std::move(principal);
    made.path = std::move(path);
    return made;
  }
  SearchedIds ids(const KeySearch& what) { return ids_of(what, {*config_, *trust_, hash_}); }
  bool finds(const RecordId& id, const KeySearch& what) {
    const SearchedIds found = ids(what);
    return std::find(found.ids.begin(), found.ids.end(), id) != found.ids.end();
  }
  void expect_found(const RecordId& id, const KeySearch& what) {
    EXPECT_TRUE(ids(what).complete) << ids(what).missing;
    EXPECT_TRUE(finds(id, what));
  }

  const KeyedHash hash_{Secret{1, 2, 3}};
  // Of what admitted() has made last.
  std::optional<AccountTag> account_of_last_;
  Fingerprint fingerprint_of_last_;
  std::unique_ptr<Config> config_;
  std::unique_ptr<Trust> trust_;
};

TEST_F(KeySearchTest, AHeaderIsTheAccount) {
  read("[[route]]\npath = \"/*\"\npolicy = \"ietf\"\n");
  const RecordId id = admitted("/x?y=1", headers({{"Authorization", "Bearer alice"}}));
  expect_found(id, search("Bearer alice"));
  expect_found(id, search("bearer  alice"));
  EXPECT_FALSE(finds(id, search("Bearer bob")));
  EXPECT_FALSE(ids(search("")).complete);
  EXPECT_NE(ids(search("")).missing.find("--principal"), std::string::npos);
}

TEST_F(KeySearchTest, MethodAndPathAreNeededWhereTheyTellKeysApart) {
  read("[[route]]\npath = \"/v1/*\"\npolicy = \"classic\"\n");
  const RecordId id = admitted("/v1/orders/", headers({{"Authorization", "Bearer alice"}}), {}, "PATCH");
  expect_found(id, search("Bearer alice", "/v1/orders"));
  expect_found(id, search("Bearer alice", "/v1//orders?x=1"));
  const SearchedIds without = ids(search("Bearer alice"));
  EXPECT_FALSE(without.complete);
  EXPECT_NE(without.missing.find("--path"), std::string::npos);
  KeySearch posted = search("Bearer alice", "/v1/orders");
  posted.method = "POST";
  EXPECT_EQ(ids(posted).ids.size(), 1u);
  EXPECT_NE(ids(posted).ids[0], id);

  Record record;
  record.route = "/v1/*";
  record.key = "order-17";
  record.method = "PATCH";
  record.target = "/v1/orders/";
  EXPECT_TRUE(belongs_to(id, record, search("Bearer alice"), {*config_, *trust_, hash_}));
  EXPECT_FALSE(belongs_to(id, record, search("Bearer bob"), {*config_, *trust_, hash_}));
}

TEST_F(KeySearchTest, ARouteWithoutAStarKnowsItsPath) {
  read("[[route]]\npath = \"/orders\"\npolicy = \"classic\"\n");
  expect_found(admitted("/orders", headers({{"Authorization", "Bearer alice"}})), search("Bearer alice"));
}

TEST_F(KeySearchTest, FurtherPartsOfTheScopeAreHeaders) {
  read("[[route]]\npath = \"/*\"\npolicy = \"stripe-v1\"\n");
  const RecordId id = admitted("/x", headers({{"Authorization", "Bearer alice"}, {"Stripe-Account", "acct_1"}}));
  KeySearch connected = search("Bearer alice");
  EXPECT_FALSE(finds(id, connected));
  connected.headers.add("stripe-account", "acct_1");
  expect_found(id, connected);
}

TEST_F(KeySearchTest, AKeyIsReadAsItsRouteReadsIt) {
  read("[[route]]\npath = \"/*\"\npolicy = \"ietf\"\nstrict = true\n");
  Headers quoted;
  quoted.add("Idempotency-Key", "\"order-17\"");
  quoted.add("Authorization", "Bearer alice");
  const RecordId id = admitted("/x", quoted);
  KeySearch as_sent = search("Bearer alice");
  as_sent.key = "\"order-17\"";
  expect_found(id, as_sent);
  expect_found(id, search("Bearer alice"));
  EXPECT_EQ(key_texts_of(as_sent, {*config_, *trust_, hash_}), (std::vector<std::string>{"\"order-17\"", "order-17"}));

  read("[[route]]\npath = \"/*\"\npolicy = \"stripe-v1\"\n");
  EXPECT_FALSE(finds(admitted("/x", headers({{"Authorization", "Bearer alice"}})), as_sent));
  EXPECT_EQ(key_texts_of(as_sent, {*config_, *trust_, hash_}), (std::vector<std::string>{"\"order-17\""}));
}

TEST_F(KeySearchTest, ARedactedRecordIsFoundByWhatStandsInPlaceOfItsTexts) {
  read("[[route]]\npath = \"/v1/*\"\npolicy = \"classic\"\nredact = true\n");
  const IdRules rules{*config_, *trust_, hash_};
  const RecordId id = admitted("/v1/orders", headers({{"Authorization", "Bearer alice"}}));
  Record record;
  record.route = "/v1/*";
  record.method = "POST";
  record.key = redacted(hash_, "order-17");
  record.target = redacted(hash_, "/v1/orders");
  record.context.account = account_of_last_;
  EXPECT_EQ(key_texts_of(search(""), rules), (std::vector<std::string>{"order-17", record.key}));
  EXPECT_TRUE(is_searched(id, record, search(""), rules));
  EXPECT_TRUE(is_searched(id, record, search("", "/v1/orders?page=2"), rules));
  EXPECT_TRUE(is_searched(id, record, search("Bearer alice", "/v1/orders"), rules));
  EXPECT_FALSE(is_searched(id, record, search("", "/v1/other"), rules));
  EXPECT_FALSE(is_searched(id, record, search("Bearer bob", "/v1/orders"), rules));
  // Of the account alone, a listing knows neither key nor path.
  EXPECT_TRUE(belongs_to(id, record, search("Bearer alice"), rules));
  EXPECT_FALSE(belongs_to(id, record, search("Bearer bob"), rules));
  record.key = redacted(hash_, "order-18");
  EXPECT_FALSE(is_searched(id, record, search(""), rules));
}

TEST_F(KeySearchTest, ARecordWithoutAClientsKeyIsItsAccountsByItsFingerprint) {
  read("[[route]]\npath = \"/v1/*\"\npolicy = \"classic\"\nkey_from = \"fingerprint\"\nwindow = \"2m\"\n");
  const RecordId id = admitted("/v1/orders", headers({{"Authorization", "Bearer alice"}}));
  Record record;
  record.route = "/v1/*";
  record.method = "POST";
  record.target = "/v1/orders";
  record.fingerprint = fingerprint_of_last_;
  EXPECT_FALSE(account_of_last_) << "the id can be made again";
  EXPECT_TRUE(belongs_to(id, record, search("Bearer alice"), {*config_, *trust_, hash_}));
  EXPECT_FALSE(belongs_to(id, record, search("Bearer bob"), {*config_, *trust_, hash_}));
}

TEST_F(KeySearchTest, EverythingThatIsGivenNarrowsALook) {
  read("[[route]]\npath = \"/v1/*\"\npolicy = \"classic\"\npath_case = \"ignore\"\n");
  const RecordId id = admitted("/v1/orders", headers({{"Authorization", "Bearer alice"}}));
  Record record;
  record.key = "order-17";
  record.route = "/v1/*";
  record.method = "POST";
  record.target = "/v1/orders";
  const auto fits = [&](const KeySearch& what) { return is_searched(id, record, what, {*config_, *trust_, hash_}); };
  EXPECT_TRUE(fits(search("")));
  EXPECT_TRUE(fits(search("", "/V1//orders/?x=1")));
  EXPECT_FALSE(fits(search("", "/v1/others")));
  EXPECT_TRUE(fits(search("Bearer alice")));
  EXPECT_FALSE(fits(search("Bearer bob")));
  for (const auto& [account, is_it] : {std::pair{"Bearer alice", true}, std::pair{"Bearer bob", false}}) {
    KeySearch by_header = search("");
    by_header.headers.add("Authorization", account);
    EXPECT_EQ(fits(by_header), is_it) << account;
  }
  KeySearch patched = search("");
  patched.method = "PATCH";
  EXPECT_FALSE(fits(patched));
  KeySearch elsewhere = search("");
  elsewhere.route = "/v2/*";
  EXPECT_FALSE(fits(elsewhere));
  KeySearch of_route = search("");
  of_route.route = "/v1/*";
  EXPECT_TRUE(fits(of_route));
  KeySearch other_key = search("");
  other_key.key = "order-18";
  EXPECT_FALSE(fits(other_key));
}

TEST_F(KeySearchTest, ACookieIsTheAccount) {
  read("[[route]]\npath = \"/*\"\npolicy = \"ietf\"\nscope = \"cookie:session\"\n");
  expect_found(admitted("/x", headers({{"Cookie", "a=b; session=s1"}})), search("s1"));
}

TEST_F(KeySearchTest, ATokenNeedNotHoldAnyMore) {
  read(
      "[[route]]\npath = \"/*\"\npolicy = \"ietf\"\nscope = \"jwt:sub\"\njwt_keys = \"https://issuer.example/keys\"\n");
  class Verified final : public TokenJudge {
   public:
    const TokenVerdict& judge(std::string_view) const override { return verdict_; }
    TokenVerdict verdict_ = *read_unverified(kToken, {"sub"});
  } const judge;
  Caller caller;
  caller.tokens = &judge;
  const RecordId id = admitted("/x", headers({{"Authorization", "Bearer " + std::string(kToken)}}), caller);
  expect_found(id, search("Bearer " + std::string(kToken)));
  expect_found(id, search(std::string(kToken)));
}

TEST_F(KeySearchTest, ACertificateIsFoundByItsName) {
  read(
      "client_ca = \"ca.pem\"\ntls_cert = \"c\"\ntls_key = \"k\"\n"
      "[[route]]\npath = \"/*\"\npolicy = \"ietf\"\nscope = \"client-cert\"\n");
  for (const CertificateName::Kind kind : {CertificateName::Kind::uri, CertificateName::Kind::dns}) {
    const CertificateName name{kind, "shop.example", ""};
    Caller caller;
    caller.certificate = &name;
    expect_found(admitted("/x", headers({}), caller), search("shop.example"));
  }
}

TEST_F(KeySearchTest, AGlobalScopeNeedsNoAccount) {
  read("[[route]]\npath = \"/*\"\npolicy = \"ietf\"\nscope = \"global\"\n");
  expect_found(admitted("/x", headers({})), search(""));
}

} // namespace
} // namespace oncekey
