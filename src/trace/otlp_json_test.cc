#include "trace/otlp_json.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

TEST(OtlpJson, ASpanHasHexIdsTimesAsTextAndEnumeratorsAsNumbers) {
  Span span;
  span.trace.fill(0xab);
  span.span.fill(0x01);
  span.parent = SpanId{};
  span.parent->fill(0x02);
  span.state = "a=1";
  span.name = "POST /v1/*";
  span.kind = SpanKind::server;
  span.begin = std::chrono::system_clock::time_point(std::chrono::nanoseconds(1'767'323'045'678'000'123));
  span.end = span.begin + std::chrono::milliseconds(5);
  span.attributes = {{"http.route", std::string("/v1/\"*")}, {"http.response.status_code", std::int64_t{201}}};
  span.link = SpanLink{span.trace, *span.parent};
  span.fault = "it failed";
  EXPECT_EQ(
      otlp_json({"oncekey", "1.2", "eu-1"}, {&span, 1}),
      R"({"resourceSpans":[{"resource":{"attributes":[{"key":"service.name","value":{"stringValue":"oncekey"}},)"
      R"({"key":"service.version","value":{"stringValue":"1.2"}},)"
      R"({"key":"service.instance.id","value":{"stringValue":"eu-1"}}]},"scopeSpans":[{"scope":{"name":"oncekey"},)"
      R"("spans":[{"traceId":"abababababababababababababababab","spanId":"0101010101010101",)"
      R"("parentSpanId":"0202020202020202","traceState":"a=1","name":"POST /v1/*","kind":2,)"
      R"("startTimeUnixNano":"1767323045678000123","endTimeUnixNano":"1767323045683000123","attributes":[)"
      R"({"key":"http.route","value":{"stringValue":"/v1/\"*"}},)"
      R"({"key":"http.response.status_code","value":{"intValue":"201"}}],)"
      R"("links":[{"traceId":"abababababababababababababababab","spanId":"0202020202020202"}],)"
      R"("status":{"code":2,"message":"it failed"}}]}]}]})");
}

TEST(OtlpJson, WhatASpanDoesNotHaveIsLeftOut) {
  Span root;
  const std::array<Span, 2> spans{root, root};
  const std::string text = otlp_json({}, spans);
  for (const char* const name : {"parentSpanId", "traceState", "links", "status", "service.version"})
    EXPECT_EQ(text.find(name), std::string::npos) << name;
  EXPECT_NE(text.find(R"("attributes":[]},{"traceId")"), std::string::npos);
}

} // namespace
} // namespace oncekey
