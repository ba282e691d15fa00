#include "core/replies.h"

#include "base/json_text.h"

#include <gtest/gtest.h>
#include <boost/json.hpp>

namespace oncekey {
namespace {

const ReplyContext kContext{"key-1", "req_new", {}};

const std::vector<RefusalCode> kCodes = {RefusalCode::key_missing,
                                         RefusalCode::key_invalid,
                                         RefusalCode::key_repeated,
                                         RefusalCode::key_in_connection,
                                         RefusalCode::principal_missing,
                                         RefusalCode::mismatch,
                                         RefusalCode::in_progress,
                                         RefusalCode::indeterminate,
                                         RefusalCode::answer_not_kept,
                                         RefusalCode::request_too_large,
                                         RefusalCode::store_unavailable,
                                         RefusalCode::record_not_written,
                                         RefusalCode::upstream_unreachable,
                                         RefusalCode::upstream_unknown,
                                         RefusalCode::upstream_timeout,
                                         RefusalCode::overloaded,
                                         RefusalCode::draining,
                                         RefusalCode::rate_limited,
                                         RefusalCode::too_many_in_flight,
                                         RefusalCode::over_share,
                                         RefusalCode::store_full,
                                         RefusalCode::abandoned,
                                         RefusalCode::operation_unknown,
                                         RefusalCode::answer_unusable,
                                         RefusalCode::upgrade_with_key,
                                         RefusalCode::request_invalid,
                                         RefusalCode::not_finished,
                                         RefusalCode::application_mistake};

Policy policy(std::string_view name) { return *policy_by_name(name); }

Refusal refusal(RefusalCode code, std::string detail = {}, std::string key = "key-1") {
  return {code, std::move(detail), std::nullopt, std::move(key)};
}

boost::json::object object_of(const Reply& reply) {
  boost::json::error_code error;
  const boost::json::value value = boost::json::parse(reply.body, error);
  EXPECT_FALSE(error) << reply.body;
  return value.is_object() ? value.get_object() : boost::json::object{};
}

std::string text(const boost::json::object& object, std::string_view name) {
  const auto* value = object.if_contains(name);
  return value && value->is_string() ? std::string(value->get_string()) : "<none>";
}

std::string header(const Reply& reply, std::string_view name) {
  EXPECT_LE(reply.headers.count(name), 1u) << name << " is there twice";
  return std::string(reply.headers.get(name).value_or("<none>"));
}

StoredResponse response(int status, std::initializer_list<Field> fields = {}) {
  StoredResponse answer{status, "Fine", {}, "the body", std::nullopt};
  for (const Field& field : fields) answer.headers.add(field.name, field.value);
  return answer;
}

TEST(Refuse, EveryCodeInEveryFormatIsWholeAndValid) {
  const std::string nasty = "k\"\\\x01\xff</script>";
  for (const std::string& name : policy_names()) {
    for (const RefusalCode code : kCodes) {
      SCOPED_TRACE(name + " " + std::string(to_string(code)));
      const Reply reply = refuse(policy(name), refusal(code, "More on \"" + nasty + "\".", nasty), kContext);
      EXPECT_GE(reply.status, 400);
      EXPECT_FALSE(reply.reason.empty());
      EXPECT_EQ(header(reply, "Cache-Control"), "no-store");
      const boost::json::object body = object_of(reply);
      if (policy(name).errors == ErrorFormat::stripe) {
        EXPECT_EQ(header(reply, "Content-Type"), "application/json");
        EXPECT_EQ(header(reply, "Request-Id"), "req_new");
        ASSERT_TRUE(body.contains("error"));
        const auto& error = body.at("error").get_object();
        EXPECT_NE(text(error, "type"), "<none>");
        EXPECT_NE(text(error, "message"), "<none>");
      } else {
        EXPECT_EQ(header(reply, "Content-Type"), "application/problem+json");
        EXPECT_EQ(text(body, "type"), "urn:oncekey:problem:" + std::string(to_string(code)));
        EXPECT_NE(text(body, "title"), "<none>");
        EXPECT_NE(text(body, "detail").find("More on"), std::string::npos);
        EXPECT_EQ(body.at("status").as_int64(), reply.status);
      }
      EXPECT_EQ(reply.status == 503 || reply.status == 429 || code == RefusalCode::in_progress,
                reply.headers.has("Retry-After"));
    }
  }
}

TEST(Refuse, TheStatusesAreThoseOfTheTable) {
  const auto statuses = [](std::string_view name) {
    std::vector<int> all;
    for (const RefusalCode code : kCodes) all.push_back(refuse(policy(name), refusal(code), kContext).status);
    return all;
  };
  EXPECT_EQ(statuses("classic"),
            (std::vector<int>{400, 400, 400, 400, 400, 422, 409, 409, 409, 413, 503, 503, 503, 502,
                              504, 503, 503, 429, 429, 429, 503, 409, 404, 502, 400, 400, 503, 500}));
  EXPECT_EQ(statuses("ietf"), statuses("classic"));
  EXPECT_EQ(statuses("stripe-v1"),
            (std::vector<int>{400, 400, 400, 400, 400, 400, 409, 409, 409, 413, 503, 503, 503, 502,
                              504, 503, 503, 429, 429, 429, 503, 409, 404, 502, 400, 400, 503, 500}));
  EXPECT_EQ(statuses("stripe-v2"), statuses("stripe-v1"));
}

TEST(Refuse, ALimitIsNamedWhereStripesClientsLookForIt) {
  Refusal limited = refusal(RefusalCode::rate_limited);
  limited.retry_after = std::chrono::seconds(7);
  limited.limited_by = "endpoint-rate";
  const Reply stripe = refuse(policy("stripe-v1"), limited, kContext);
  EXPECT_EQ(header(stripe, "Stripe-Rate-Limited-Reason"), "endpoint-rate");
  EXPECT_EQ(header(stripe, "Stripe-Should-Retry"), "true");
  EXPECT_EQ(header(stripe, "Retry-After"), "7");
  EXPECT_EQ(text(object_of(stripe).at("error").get_object(), "code"), "rate_limit");
  EXPECT_EQ(header(refuse(policy("classic"), limited, kContext), "Stripe-Rate-Limited-Reason"), "<none>");
}

TEST(Refuse, TheTitlesAreThoseOfTheDraft) {
  const auto title = [](RefusalCode code) {
    return text(object_of(refuse(policy("ietf"), refusal(code), kContext)), "title");
  };
  EXPECT_EQ(title(RefusalCode::key_missing), "Idempotency-Key is missing");
  EXPECT_EQ(title(RefusalCode::mismatch), "Idempotency-Key is already used");
  EXPECT_EQ(title(RefusalCode::in_progress), "A request is outstanding for this Idempotency-Key");
}

TEST(Refuse, OnlyTheIetfPolicyLinksToThePublishedOnes) {
  EXPECT_EQ(header(refuse(policy("ietf"), refusal(RefusalCode::key_missing), kContext), "Link"),
            "</.well-known/idempotency>; rel=\"describedby\"");
  EXPECT_EQ(header(refuse(policy("classic"), refusal(RefusalCode::key_missing), kContext), "Link"), "<none>");
}

TEST(Refuse, StripesOwnSentencesAreVerbatim) {
  EXPECT_EQ(
      refuse(policy("stripe-v1"), refusal(RefusalCode::mismatch), kContext).body,
      "{\"error\":{\"type\":\"idempotency_error\",\"message\":\"Keys for idempotent requests can only be used with the "
      "same parameters they were first used with. Try using a key other than 'key-1' if you meant to execute a "
      "different request.\"}}\n");
  EXPECT_EQ(
      refuse(policy("stripe-v1"), refusal(RefusalCode::in_progress), kContext).body,
      "{\"error\":{\"type\":\"invalid_request_error\",\"code\":\"idempotency_key_in_use\",\"doc_url\":\"https://"
      "stripe.com/"
      "docs/error-codes/idempotency-key-in-use\",\"message\":\"There is currently another in-progress request using "
      "this Idempotent Key (that probably means you submitted twice, and the other request is still going "
      "through): key-1. Please try again later.\"}}\n");
}

TEST(Refuse, ShouldRetryIsTrueWhereARetryHelpsAndFalseWhereItCannot) {
  const auto should_retry = [](std::string_view name, RefusalCode code) {
    return header(refuse(policy(name), refusal(code), kContext), "Stripe-Should-Retry");
  };
  for (const RefusalCode code : {RefusalCode::in_progress, RefusalCode::store_unavailable, RefusalCode::overloaded,
                                 RefusalCode::upstream_unreachable, RefusalCode::draining}) {
    EXPECT_EQ(should_retry("stripe-v1", code), "true");
    EXPECT_EQ(should_retry("classic", code), "<none>");
  }
  for (const RefusalCode code : {RefusalCode::mismatch, RefusalCode::indeterminate, RefusalCode::answer_not_kept}) {
    EXPECT_EQ(should_retry("stripe-v2", code), "false");
  }
  EXPECT_EQ(should_retry("stripe-v1", RefusalCode::upstream_timeout), "<none>");
}

TEST(Refuse, NoTextSaysThatNothingWasExecutedWhereSomethingMayHaveBeen) {
  for (const Fate fate : {Fate::still_running, Fate::owner_gone, Fate::maybe_executed, Fate::not_told, Fate::held}) {
    for (const RefusalCode code : kCodes) {
      Refusal refused = refusal(code);
      refused.fate = fate;
      const std::string detail = text(object_of(refuse(policy("classic"), refused, kContext)), "detail");
      EXPECT_EQ(detail.find("Nothing was executed"), std::string::npos) << detail;
      EXPECT_NE(detail.find(fate == Fate::still_running ? "still being worked on" : "may have been executed"),
                std::string::npos)
          << detail;
    }
  }
}

TEST(Refuse, RetryAfterIsWhatTheRefusalSays) {
  Refusal busy = refusal(RefusalCode::in_progress);
  busy.retry_after = std::chrono::seconds(17);
  EXPECT_EQ(header(refuse(policy("classic"), busy, kContext), "Retry-After"), "17");
  EXPECT_EQ(header(refuse(policy("classic"), refusal(RefusalCode::draining), kContext), "Retry-After"), "1");
}

TEST(Refuse, WhoseOwnerIsGoneIsNotSaidToBeAtWork) {
  Refusal lost = refusal(RefusalCode::in_progress);
  lost.retry_after = std::chrono::seconds(29);
  lost.fate = Fate::owner_gone;
  for (const std::string_view name : {"classic", "stripe-v1"}) {
    const Reply reply = refuse(policy(name), lost, kContext);
    EXPECT_EQ(reply.status, 409);
    EXPECT_EQ(header(reply, "Retry-After"), "29");
    EXPECT_NE(reply.body.find("again in 29 s"), std::string::npos) << reply.body;
    EXPECT_EQ(reply.body.find("worked on"), std::string::npos) << reply.body;
    EXPECT_EQ(reply.body.find("still going through"), std::string::npos) << reply.body;
  }
}

TEST(Refuse, AGoodKeyIsEchoedAndARefusedOneIsNot) {
  EXPECT_EQ(header(refuse(policy("classic"), refusal(RefusalCode::mismatch), kContext), "Idempotency-Key"), "key-1");
  EXPECT_EQ(header(refuse(policy("classic"), refusal(RefusalCode::key_invalid), kContext), "Idempotency-Key"),
            "<none>");
}

TEST(FirstAnswer, IsTheUpstreamsWithTheKeyEchoed) {
  const Reply reply = first_answer(policy("classic"),
                                   response(201, {{"Content-Type", "text/plain"},
                                                  {"Set-Cookie", "a=1"},
                                                  {"Set-Cookie", "b=2"},
                                                  {"RateLimit-Limit", "5"},
                                                  {"X-y", ""}}),
                                   kContext, Kept::yes);
  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(reply.reason, "Fine");
  EXPECT_EQ(reply.body, "the body");
  EXPECT_EQ(reply.headers.lines(),
            "Content-Type: text/plain\r\nSet-Cookie: a=1\r\nSet-Cookie: b=2\r\nRateLimit-Limit: 5\r\nX-y: \r\n"
            "Idempotency-Key: key-1\r\n");
}

TEST(FirstAnswer, NeverHasTwoOfWhatTheUpstreamSendsToo) {
  const StoredResponse upstream = response(200, {{"idempotency-key", "theirs"},
                                                 {"idempotent-replayed", "true"},
                                                 {"Idempotent-Replayed", "true"},
                                                 {"Oncekey-Outcome", "not-executed"},
                                                 {"request-id", "req_theirs"},
                                                 {"original-request", "req_x"}});
  const Reply classic = first_answer(policy("classic"), upstream, kContext, Kept::no);
  EXPECT_EQ(header(classic, "Idempotency-Key"), "key-1");
  EXPECT_EQ(header(classic, "Idempotent-Replayed"), "true");
  EXPECT_EQ(header(classic, "Oncekey-Outcome"), "<none>");
  EXPECT_EQ(header(classic, "Request-Id"), "req_theirs");
  const Reply stripe = first_answer(policy("stripe-v1"), upstream, kContext, Kept::no);
  EXPECT_EQ(header(stripe, "Request-Id"), "req_theirs");
  EXPECT_EQ(header(stripe, "Original-Request"), "req_theirs");
}

TEST(FirstAnswer, UnderTheStripePoliciesHasARequestIdAndSaysWhenA5xxIsFinal) {
  const Policy stripe = policy("stripe-v1");
  const Reply good = first_answer(stripe, response(200), kContext, Kept::yes);
  EXPECT_EQ(header(good, "Request-Id"), "req_new");
  EXPECT_EQ(header(good, "Original-Request"), "req_new");
  EXPECT_EQ(header(good, "Stripe-Should-Retry"), "<none>");
  const StoredResponse failed = response(500, {{"stripe-should-retry", "maybe"}});
  EXPECT_EQ(header(first_answer(stripe, failed, kContext, Kept::yes), "Stripe-Should-Retry"), "false");
  EXPECT_EQ(header(first_answer(stripe, failed, kContext, Kept::no), "Stripe-Should-Retry"), "maybe");
  EXPECT_EQ(header(first_answer(policy("classic"), response(500), kContext, Kept::yes), "Stripe-Should-Retry"),
            "<none>");
}

TEST(Replay, HasTheSameStatusBodyAndHeadersButTheListedOnes) {
  const StoredResponse stored = response(201, {{"Location", "/c/1"},
                                               {"Date", "then"},
                                               {"Age", "3"},
                                               {"RateLimit", "x"},
                                               {"ratelimit-reset", "1"},
                                               {"X-RateLimit-Remaining", "1"},
                                               {"X-Rate-Limit-Limit", "1"},
                                               {"Retry-After", "9"},
                                               {"Stripe-Rate-Limited-Reason", "global-rate"},
                                               {"Alt-Svc", "h3"},
                                               {"Server-Timing", "db"},
                                               {"Set-Cookie", "a=1"},
                                               {"Idempotency-Key", "theirs"},
                                               {"Idempotent-Replayed", "false"},
                                               {"X-Rate", "kept"},
                                               {"Vary", "Origin"},
                                               {"ETag", "\"e\""}});
  const Reply reply = replay(policy("classic"), stored, {"\"key 1\"", "req_new", {}});
  EXPECT_EQ(reply.status, 201);
  EXPECT_EQ(reply.reason, "Fine");
  EXPECT_EQ(reply.body, "the body");
  EXPECT_EQ(reply.headers.lines(),
            "Location: /c/1\r\nX-Rate: kept\r\nVary: Origin\r\nETag: \"e\"\r\n"
            "Idempotency-Key: \"key 1\"\r\nIdempotent-Replayed: true\r\n");
}

TEST(Replay, KeepsCookiesWhereTheRouteSaysSo) {
  Policy rules = policy("classic");
  rules.replay_set_cookie = true;
  const Reply reply = replay(rules, response(200, {{"Set-Cookie", "a=1"}, {"Set-Cookie", "b=2"}}), kContext);
  EXPECT_EQ(reply.headers.count("Set-Cookie"), 2u);
}

TEST(Replay, UnderTheStripePoliciesNamesTheFirstRequest) {
  const Policy stripe = policy("stripe-v1");
  for (const bool upstream_has_ids : {true, false}) {
    StoredResponse first = response(500, {{"Stripe-Should-Retry", "true"}, {"Oncekey-Outcome", "executed"}});
    if (upstream_has_ids) first.headers.add("request-id", "req_theirs");
    const Reply answer = first_answer(stripe, first, {"key-1", "req_first", {}}, Kept::yes);
    const StoredResponse stored = to_store(stripe, first, {"key-1", "req_first", {}});
    EXPECT_FALSE(stored.headers.has("Oncekey-Outcome"));
    const Reply again = replay(stripe, stored, kContext);
    EXPECT_EQ(header(again, "Request-Id"), "req_new");
    EXPECT_EQ(header(again, "Original-Request"), header(answer, "Request-Id"));
    EXPECT_EQ(header(again, "Stripe-Should-Retry"), "false");
    EXPECT_EQ(header(again, "Idempotent-Replayed"), "true");
  }
}

TEST(Replay, OutsideTheStripePoliciesLeavesRequestIdsAlone) {
  const StoredResponse stored = to_store(policy("classic"), response(200, {{"Request-Id", "theirs"}}), kContext);
  EXPECT_EQ(header(replay(policy("classic"), stored, kContext), "Request-Id"), "theirs");
  EXPECT_FALSE(to_store(policy("classic"), response(200), kContext).headers.has("Request-Id"));
}

TEST(Replay, WithoutAKeyOfTheClientEchoesNone) {
  EXPECT_EQ(header(replay(policy("classic"), response(200), {"", "req", {}}), "Idempotency-Key"), "<none>");
}

TEST(PublishedPolicies, SayWhatAClientMayRelyOn) {
  const Policy classic = policy("classic");
  const Policy stripe = policy("stripe-v2");
  const auto document =
      boost::json::parse(published_routes({{"/orders", &classic}, {"/v2/\"*", &stripe}})).get_object();
  const auto& routes = document.at("routes").get_array();
  ASSERT_EQ(routes.size(), 2u);
  const auto& first = routes[0].get_object();
  EXPECT_EQ(text(first, "path"), "/orders");
  EXPECT_EQ(text(first, "policy"), "classic");
  EXPECT_FALSE(first.at("key_required").get_bool());
  EXPECT_EQ(text(first, "retention"), "24h");
  EXPECT_EQ(first.at("retention_seconds").as_int64(), 86400);
  EXPECT_EQ(text(first, "replayed_statuses"), "200-400,402,404-407,410-424,426-428,430-499");
  EXPECT_EQ(first.at("mismatch_status").as_int64(), 422);
  EXPECT_EQ(first.at("key_from").get_array()[0].get_string(), "header:Idempotency-Key");
  const auto& second = routes[1].get_object();
  EXPECT_EQ(text(second, "path"), "/v2/\"*");
  EXPECT_EQ(second.at("retention_seconds").as_int64(), 30 * 86400);
  EXPECT_EQ(second.at("scope").get_array()[1].get_string(), "header:Stripe-Account?");
  EXPECT_TRUE(boost::json::parse(published_routes({})).get_object().at("routes").get_array().empty());
}

TEST(PublishedPolicies, TellAnonymousClientsNeitherPathsNorScopes) {
  const Policy classic = policy("classic");
  const Policy stripe = policy("stripe-v2");
  const std::string published =
      published_expiry({{"/orders", &classic}, {"/v2/*", &stripe}, {"/internal/payouts", &classic}});
  const auto document = boost::json::parse(published);
  const auto& policies = document.get_object().at("policies").get_array();
  ASSERT_EQ(policies.size(), 2u) << "one for each set of rules";
  const auto& first = policies[0].get_object();
  EXPECT_EQ(first.at("key_headers").get_array()[0].get_string(), "Idempotency-Key");
  EXPECT_EQ(first.at("retention_seconds").as_int64(), 86400);
  EXPECT_EQ(policies[1].get_object().at("retention_seconds").as_int64(), 30 * 86400);
  for (const char* hidden : {"/orders", "/internal", "Authorization", "scope", "methods"}) {
    EXPECT_EQ(published.find(hidden), std::string::npos) << hidden;
  }
}

TEST(Replay, GrantsCrossOriginAccessToTheOriginItWasGrantedToAlone) {
  StoredResponse stored = response(200);
  stored.headers.add("Access-Control-Allow-Origin", "https://shop.example");
  stored.headers.add("Access-Control-Allow-Credentials", "true");
  const ReplyContext same{"key-1", "", "https://shop.example"};
  const ReplyContext other{"key-1", "", "https://evil.example"};
  EXPECT_EQ(header(replay(policy("classic"), stored, same), "Access-Control-Allow-Origin"), "https://shop.example");
  EXPECT_EQ(header(replay(policy("classic"), stored, other), "Access-Control-Allow-Origin"), "<none>");
  EXPECT_EQ(header(replay(policy("classic"), stored, other), "Access-Control-Allow-Credentials"), "<none>");
}

TEST(Replay, KeepsTheFirstDateOfAnAnswerThatSaysHowLongItIsFresh) {
  StoredResponse stored = response(200);
  stored.headers.add("Date", "Sun, 06 Nov 1994 08:49:37 GMT");
  EXPECT_EQ(header(replay(policy("classic"), stored, kContext), "Date"), "<none>");
  stored.headers.add("Cache-Control", "max-age=60");
  EXPECT_EQ(header(replay(policy("classic"), stored, kContext), "Date"), "Sun, 06 Nov 1994 08:49:37 GMT");
}

} // namespace
} // namespace oncekey
