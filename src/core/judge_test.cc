#include "core/judge.h"

#include <gtest/gtest.h>

#include <vector>

namespace oncekey {
namespace {

using Fields = std::vector<std::pair<std::string, std::string>>;

Headers headers_of(const Fields& fields) {
  Headers headers;
  for (const auto& [name, value] : fields) headers.add(name, value);
  return headers;
}

Judged judge(int status, const std::string& body = "", const Fields& fields = {}) {
  return judge_call(status, "", headers_of(fields), body);
}

std::string_view to_string(Judgement judgement) {
  switch (judgement) {
    case Judgement::success:
      return "success";
    case Judgement::refusal:
      return "refusal";
    case Judgement::retry:
      return "retry";
  }
  return "";
}

std::string_view to_string(Suspect suspect) {
  switch (suspect) {
    case Suspect::message:
      return "message";
    case Suspect::either:
      return "either";
    case Suspect::receiver:
      return "receiver";
  }
  return "";
}

std::string_view judged(int status, const std::string& body = "", const Fields& fields = {}) {
  return to_string(judge(status, body, fields).judgement);
}

// Every status there is, in ranges that mean the same. docs/WEBHOOKS.md says the same in words.
TEST(StatusMeaning, IsThisTable) {
  struct Row {
    int first, last;
    std::string_view call, may_have_done, delivery, suspect;
  };
  const Row rows[] = {
      {100, 199, "refusal", "may", "retry", "either"},  {200, 299, "success", "may", "success", "message"},
      {300, 302, "refusal", "may", "retry", "either"},  {303, 303, "success", "may", "retry", "either"},
      {304, 399, "refusal", "may", "retry", "either"},  {400, 400, "refusal", "not", "retry", "message"},
      {401, 401, "refusal", "not", "retry", "either"},  {402, 402, "refusal", "not", "retry", "message"},
      {403, 403, "refusal", "not", "retry", "either"},  {404, 406, "refusal", "not", "retry", "message"},
      {407, 407, "refusal", "not", "retry", "either"},  {408, 408, "retry", "not", "retry", "receiver"},
      {409, 409, "retry", "may", "retry", "message"},   {410, 410, "refusal", "not", "refusal", "message"},
      {411, 424, "refusal", "not", "retry", "message"}, {425, 425, "retry", "not", "retry", "receiver"},
      {426, 428, "refusal", "not", "retry", "message"}, {429, 429, "retry", "not", "retry", "receiver"},
      {430, 499, "refusal", "not", "retry", "message"}, {500, 502, "retry", "may", "retry", "either"},
      {503, 503, "retry", "may", "retry", "receiver"},  {504, 599, "retry", "may", "retry", "either"},
  };
  int next = 100;
  for (const Row& row : rows) {
    EXPECT_EQ(row.first, next) << "a status is missing or twice in the table";
    next = row.last + 1;
    for (int status = row.first; status <= row.last; ++status) {
      const StatusMeaning& meaning = meaning_of(status);
      EXPECT_EQ(to_string(meaning.call), row.call) << status;
      EXPECT_EQ(meaning.may_have_done, row.may_have_done == "may") << status;
      EXPECT_EQ(to_string(meaning.delivery), row.delivery) << status;
      EXPECT_EQ(to_string(meaning.suspect), row.suspect) << status;
      EXPECT_EQ(judged(status), row.call) << status;
    }
  }
  EXPECT_EQ(next, 600);
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
  for (const int status : {408, 425, 429, 400, 401, 422}) EXPECT_FALSE(judge(status).may_have_done) << status;
  for (const int status : {302, 409, 500, 502, 503, 504}) EXPECT_TRUE(judge(status).may_have_done) << status;
  EXPECT_FALSE(judge(409, R"({"type":"x:mismatch"})").may_have_done);
  // A server that failed has not judged the key, whatever it fails with.
  for (const char* const body : {R"({"error":{"code":"ledger_mismatch"}})", R"({"error":{"type":"idempotency_error"}})",
                                 R"({"code":"connection_reused"})"}) {
    EXPECT_EQ(judge(500, body).judgement, Judgement::retry) << body;
    EXPECT_TRUE(judge(500, body).may_have_done) << body;
  }
  EXPECT_TRUE(judge(409, R"({"type":"x:indeterminate"})").may_have_done);
}

TEST(Judge, KnowsAReplayByItsMarker) {
  EXPECT_TRUE(is_replay(headers_of({{"Idempotent-Replayed", "true"}})));
  EXPECT_FALSE(is_replay(headers_of({{"Idempotent-Replayed", "false"}})));
  EXPECT_FALSE(is_replay({}));
}

// 2023-11-14T22:13:20Z
constexpr Time kWall{Millis(1'700'000'000'000)};

std::optional<Millis> after(std::string value, std::vector<std::pair<std::string, std::string>> others = {}) {
  others.emplace_back("Retry-After", std::move(value));
  return retry_after(headers_of(others), kWall);
}

TEST(RetryAfter, InSeconds) {
  EXPECT_EQ(after("0"), Millis(0));
  EXPECT_EQ(after("5"), Millis(5000));
  EXPECT_EQ(after("007"), Millis(7000));
  EXPECT_GT(after("99999999999999999999999"), Millis(1'000'000));
  EXPECT_EQ(retry_after({}, kWall), std::nullopt);
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
