#include "client/judge.h"

#include <gtest/gtest.h>

#include <vector>

namespace oncekey {
namespace {

ClientResponse answered(int status, std::string body = "",
                        std::vector<std::pair<std::string, std::string>> fields = {}) {
  ClientResponse response;
  response.status = status;
  response.body = std::move(body);
  for (const auto& [name, value] : fields) response.headers.add(name, value);
  return response;
}

std::string judged(int status, std::string body = "", std::vector<std::pair<std::string, std::string>> fields = {}) {
  switch (judge(answered(status, std::move(body), std::move(fields))).judgement) {
    case Judgement::success:
      return "success";
    case Judgement::refusal:
      return "refusal";
    case Judgement::retry:
      return "retry";
  }
  return "";
}

TEST(Judge, ByTheStatusAlone) {
  for (const int status : {200, 201, 202, 204, 299, 303}) EXPECT_EQ(judged(status), "success") << status;
  for (const int status :
       {300, 301, 302, 304, 307, 308, 400, 401, 402, 403, 404, 405, 410, 412, 413, 415, 422, 424, 451})
    EXPECT_EQ(judged(status), "refusal") << status;
  for (const int status : {408, 409, 425, 429, 500, 501, 502, 503, 504, 599})
    EXPECT_EQ(judged(status), "retry") << status;
}

TEST(Judge, StripesServers) {
  const std::string in_use =
      R"({"error":{"type":"invalid_request_error","code":"idempotency_key_in_use","message":"There is currently..."}})";
  const std::string mismatch =
      R"({"error":{"type":"idempotency_error","message":"Keys for idempotent requests can..."}})";
  EXPECT_EQ(judged(409, in_use), "retry");
  EXPECT_EQ(judged(400, mismatch), "refusal");
  EXPECT_EQ(judged(409, mismatch), "refusal");
  EXPECT_EQ(judged(409, R"({"error":{"type":"invalid_request_error"}})", {{"Stripe-Should-Retry", "true"}}), "retry");
  EXPECT_EQ(judged(429, R"({"error":{"code":"lock_timeout"}})"), "retry");
  EXPECT_EQ(judged(402, R"({"error":{"type":"card_error","code":"card_declined"}})"), "refusal");
}

TEST(Judge, StripeShouldRetryOverrulesTheStatusBothWays) {
  EXPECT_EQ(judged(500, "", {{"Stripe-Should-Retry", "false"}}), "refusal");
  EXPECT_EQ(judged(503, "", {{"stripe-should-retry", "false"}}), "refusal");
  EXPECT_EQ(judged(409, "", {{"Stripe-Should-Retry", "false"}}), "refusal");
  EXPECT_EQ(judged(429, "", {{"Stripe-Should-Retry", "false"}}), "refusal");
  EXPECT_EQ(judged(400, "", {{"Stripe-Should-Retry", "true"}}), "retry");
  EXPECT_EQ(judged(201, "", {{"Stripe-Should-Retry", "true"}}), "success");
}

TEST(Judge, ServersModelledOnTheIetfDraft) {
  const std::string used = R"({"type":"https://example.com/idempotency","title":"Idempotency-Key is already used"})";
  const std::string outstanding =
      R"({"type":"https://example.com/idempotency","title":"A request is outstanding for this Idempotency-Key"})";
  EXPECT_EQ(judged(422, used), "refusal");
  EXPECT_EQ(judged(409, used), "refusal");
  EXPECT_EQ(judged(409, outstanding), "retry");
  EXPECT_EQ(judged(400, R"({"title":"Idempotency-Key is missing"})"), "refusal");
}

TEST(Judge, OncekeysOwnProblems) {
  const auto problem = [](const std::string& code) { return R"({"type":"urn:oncekey:problem:)" + code + R"("})"; };
  EXPECT_EQ(judged(409, problem("in_progress")), "retry");
  EXPECT_EQ(judged(409, problem("mismatch")), "refusal");
  EXPECT_EQ(judged(422, problem("mismatch")), "refusal");
  EXPECT_EQ(judged(409, problem("indeterminate")), "refusal");
  EXPECT_EQ(judged(409, problem("answer_not_kept")), "refusal");
  EXPECT_EQ(judged(503, problem("store_unavailable")), "retry");
  EXPECT_EQ(judged(502, problem("upstream_unknown")), "retry");
  const std::string unknown = R"({"error":{"type":"idempotency_error","code":"idempotency_outcome_unknown"}})";
  EXPECT_EQ(judged(409, unknown), "refusal");
}

TEST(Judge, OtherVendors) {
  EXPECT_EQ(judged(400, R"({"code":"IDEMPOTENCY_KEY_REUSED"})"), "refusal");
  EXPECT_EQ(judged(409, R"({"code":"IdempotentParameterMismatch"})"), "refusal");
  EXPECT_EQ(judged(422, R"({"errorCode":"704"})", {{"transient-error", "true"}}), "retry");
}

TEST(Judge, BodiesOfUnknownFormCountForNothing) {
  for (const char* body :
       {"", "not json", "[]", "{", "{\"type\":7}", "{\"error\":\"x\"}", "{\"type\":\"a\",\"type\":\"mismatch\"}"})
    EXPECT_EQ(judged(409, body), "retry") << body;
}

TEST(Judge, KnowsWhichTriesMayHaveHadAnEffect) {
  for (const int status : {408, 425, 429, 400, 401, 422}) EXPECT_FALSE(judge(answered(status)).may_have_done) << status;
  for (const int status : {302, 409, 500, 502, 503, 504}) EXPECT_TRUE(judge(answered(status)).may_have_done) << status;
  EXPECT_FALSE(judge(answered(409, R"({"type":"x:mismatch"})")).may_have_done);
  // A server that failed has not judged the key, whatever it fails with.
  for (const char* const body : {R"({"error":{"code":"ledger_mismatch"}})", R"({"error":{"type":"idempotency_error"}})",
                                 R"({"code":"connection_reused"})"}) {
    EXPECT_EQ(judge(answered(500, body)).judgement, Judgement::retry) << body;
    EXPECT_TRUE(judge(answered(500, body)).may_have_done) << body;
  }
  EXPECT_TRUE(judge(answered(409, R"({"type":"x:indeterminate"})")).may_have_done);
}

TEST(Judge, KnowsAReplayByItsMarker) {
  EXPECT_TRUE(is_replay(answered(200, "", {{"Idempotent-Replayed", "true"}}).headers));
  EXPECT_FALSE(is_replay(answered(200, "", {{"Idempotent-Replayed", "false"}}).headers));
  EXPECT_FALSE(is_replay(answered(200).headers));
}

// 2023-11-14T22:13:20Z
constexpr Time kWall{Millis(1'700'000'000'000)};

std::optional<Millis> after(std::string value, std::vector<std::pair<std::string, std::string>> others = {}) {
  others.emplace_back("Retry-After", std::move(value));
  return retry_after(answered(503, "", others).headers, kWall);
}

TEST(RetryAfter, InSeconds) {
  EXPECT_EQ(after("0"), Millis(0));
  EXPECT_EQ(after("5"), Millis(5000));
  EXPECT_EQ(after("007"), Millis(7000));
  EXPECT_GT(after("99999999999999999999999"), Millis(1'000'000));
  EXPECT_EQ(retry_after(answered(503).headers, kWall), std::nullopt);
}

TEST(RetryAfter, AsADateInAllThreeForms) {
  EXPECT_EQ(after("Tue, 14 Nov 2023 22:13:30 GMT"), Millis(10'000));
  EXPECT_EQ(after("Tuesday, 14-Nov-23 22:13:30 GMT"), Millis(10'000));
  EXPECT_EQ(after("Tue Nov 14 22:13:30 2023"), Millis(10'000));
  EXPECT_EQ(after("Tue, 14 Nov 2023 22:13:00 GMT"), Millis(0)); // in the past: now
}

TEST(RetryAfter, CountsFromTheServersOwnDate) {
  EXPECT_EQ(after("Tue, 14 Nov 2023 23:00:09 GMT", {{"Date", "Tue, 14 Nov 2023 23:00:00 GMT"}}), Millis(9'000));
  EXPECT_EQ(after("Tue, 14 Nov 2023 22:13:30 GMT", {{"Date", "nonsense"}}), Millis(10'000));
}

TEST(RetryAfter, OfAnyOtherFormIsAsIfItWereNotThere) {
  for (const char* text :
       {"", "-5", "+5", "5.5", "5s", "soon", "Tue, 14 Nov 2023 22:13:30", "Tue, 14 Nov 2023 24:13:30 GMT",
        "Tue, 31 Feb 2023 22:13:30 GMT", "Tue, 14 Xyz 2023 22:13:30 GMT", "Tue, 14 Nov 2023 22:13:30 GMTx",
        "Tue, -4 Nov 2023 22:13:30 GMT", "14 Nov 2023 22:13:30 GMT"})
    EXPECT_EQ(after(text), std::nullopt) << text;
}

TEST(HttpDate, OfTheRfcsExamples) {
  const Time example{Millis(784'111'777'000)};
  EXPECT_EQ(parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT", kWall), example);
  EXPECT_EQ(parse_http_date("Sunday, 06-Nov-94 08:49:37 GMT", kWall), example);
  EXPECT_EQ(parse_http_date("Sun Nov  6 08:49:37 1994", kWall), example);
}

} // namespace
} // namespace oncekey
