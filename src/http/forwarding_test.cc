#include "http/forwarding.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

const ProxyIdentity kSelf{"oncekey-1", {"10.0.0.1"}};

RequestHead request(std::initializer_list<Field> fields) {
  RequestHead head;
  head.method = "POST";
  head.target = "/";
  for (const Field& field : fields) head.headers.add(field.name, field.value);
  return head;
}

TEST(Forwarding, DropsConnectionAndWhatItNames) {
  const UpstreamRequest out =
      forward(request({{"Connection", "X-Mine, close"}, {"X-Mine", "1"}, {"Keep-Alive", "5"}, {"X-Other", "2"}}),
              {"1.2.3.4", false}, kSelf, {});
  EXPECT_FALSE(out.headers.has("Connection"));
  EXPECT_FALSE(out.headers.has("X-Mine"));
  EXPECT_FALSE(out.headers.has("Keep-Alive"));
  EXPECT_EQ(out.headers.get("X-Other"), "2");
}

TEST(Forwarding, KnowsARequestForWebSocket) {
  const auto asks = [](std::initializer_list<Field> fields, auto change) {
    RequestHead head = request(fields);
    head.method = "GET";
    change(head);
    return asks_for_websocket(head);
  };
  const auto as_it_is = [](RequestHead&) {};
  EXPECT_TRUE(asks({{"Connection", "Upgrade"}, {"Upgrade", "websocket"}}, as_it_is));
  EXPECT_TRUE(asks({{"connection", "keep-alive"}, {"connection", "UPGRADE"}, {"upgrade", "h2c, WebSocket"}}, as_it_is));
  EXPECT_FALSE(asks({{"Upgrade", "websocket"}}, as_it_is));
  EXPECT_FALSE(asks({{"Connection", "Upgrade"}}, as_it_is));
  EXPECT_FALSE(asks({{"Connection", "Upgrade"}, {"Upgrade", "h2c"}}, as_it_is));
  EXPECT_FALSE(asks({{"Connection", "Upgrade"}, {"Upgrade", "websocket/13"}}, as_it_is));
  const std::initializer_list<Field> good = {{"Connection", "Upgrade"}, {"Upgrade", "websocket"}};
  EXPECT_FALSE(asks(good, [](RequestHead& head) { head.method = "POST"; }));
  EXPECT_FALSE(asks(good, [](RequestHead& head) { head.version = 10; }));
  EXPECT_FALSE(asks(good, [](RequestHead& head) { head.framing = Framing::chunked; }));
  EXPECT_FALSE(asks(good, [](RequestHead& head) {
    head.framing = Framing::length;
    head.content_length = 1;
  }));
}

TEST(Forwarding, KnowsAnAnswerThatGrantsWebSocketAlone) {
  const auto grants = [](int status, std::string_view connection, std::string_view upgrade) {
    ResponseHead head;
    head.status = status;
    head.headers.add("Connection", connection);
    head.headers.add("Upgrade", upgrade);
    return grants_websocket(head);
  };
  EXPECT_TRUE(grants(101, "upgrade", "WebSocket"));
  EXPECT_FALSE(grants(200, "upgrade", "websocket"));
  EXPECT_FALSE(grants(101, "close", "websocket"));
  EXPECT_FALSE(grants(101, "upgrade", "h2c"));
  EXPECT_FALSE(grants(101, "upgrade", "websocket, h2c"));
}

TEST(Forwarding, FindsWhatALongConnectionListNames) {
  std::string list = "X-Mine";
  for (int i = 0; i < 1000; ++i) list += ",z" + std::to_string(i);
  ResponseHead head;
  for (const Field& field : std::initializer_list<Field>{{"Connection", list}, {"x-mine", "1"}, {"X-Other", "2"}})
    head.headers.add(field.name, field.value);
  const Headers kept = end_to_end(head.headers);
  EXPECT_FALSE(kept.has("X-Mine"));
  EXPECT_TRUE(kept.has("X-Other"));
}

TEST(Forwarding, TellsWhichFieldConnectionWouldStrip) {
  const auto stripped = [](std::initializer_list<Field> fields) {
    return std::string(stripped_by_connection(request(fields).headers).value_or("none"));
  };
  EXPECT_EQ(stripped({{"Connection", "keep-alive, x-user"}, {"X-User", "alice"}}), "X-User");
  EXPECT_EQ(stripped({{"Connection", "x-user"}}), "none") << "not there";
  EXPECT_EQ(stripped({{"X-User", "alice"}}), "none");
  EXPECT_EQ(stripped({{"Connection", "Keep-Alive, Upgrade, HTTP2-Settings, TE, close"},
                      {"Keep-Alive", "5"},
                      {"Upgrade", "h2c"},
                      {"HTTP2-Settings", "x"},
                      {"TE", "trailers"}}),
            "none");
}

TEST(Forwarding, AppendsItselfToVia) {
  const UpstreamRequest out = forward(request({{"Via", "1.0 a"}, {"Via", "1.1 b"}}), {"1.2.3.4", false}, kSelf, {});
  EXPECT_EQ(out.headers.get("Via"), "1.0 a, 1.1 b, 1.1 oncekey-1");
}

TEST(Forwarding, BelievesForwardedFieldsOfTrustedPeersOnly) {
  const RequestHead head = request({{"Host", "api"}, {"X-Forwarded-For", "9.9.9.9"}, {"X-Forwarded-Proto", "https"}});
  const UpstreamRequest stranger = forward(head, {"1.2.3.4", false}, kSelf, {});
  EXPECT_EQ(stranger.headers.get("X-Forwarded-For"), "1.2.3.4");
  EXPECT_EQ(stranger.headers.get("X-Forwarded-Proto"), "http");
  const UpstreamRequest trusted = forward(head, {"10.0.0.1", false}, kSelf, {});
  EXPECT_EQ(trusted.headers.get("X-Forwarded-For"), "9.9.9.9, 10.0.0.1");
  EXPECT_EQ(trusted.headers.get("X-Forwarded-Proto"), "https");
  EXPECT_EQ(trusted.headers.get("X-Forwarded-Host"), "api");
}

TEST(Forwarding, NeverForwardsAClientsOwnFence) {
  const UpstreamRequest out = forward(request({{"Oncekey-Fence", "99"}}), {"1.2.3.4", false}, kSelf, {});
  EXPECT_FALSE(out.headers.has("Oncekey-Fence"));
}

TEST(Forwarding, KnowsALoop) {
  EXPECT_TRUE(loops(kSelf, request({{"Via", "1.1 other, 1.1 oncekey-1"}}).headers));
  EXPECT_FALSE(loops(kSelf, request({{"Via", "1.1 oncekey-12"}}).headers));
}

} // namespace
} // namespace oncekey
