#include "net/connect.h"

#include "net/loop.h"
#include "net/socket_address.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

namespace oncekey {
namespace {

MonotonicTime long_from_now() { return std::chrono::steady_clock::now() + std::chrono::seconds(30); }

TEST(Resolve, AnAddressNeedsNoNameServer) {
  Loop loop;
  for (const std::string host : {"127.0.0.1", "::1"}) {
    const Resolved resolved = loop.run_to_end(resolve(loop, host, 80, MonotonicTime::min()));
    ASSERT_EQ(resolved.addresses.size(), 1u);
    EXPECT_EQ(resolved.addresses[0].ip(), host);
    EXPECT_EQ(resolved.addresses[0].port(), 80);
  }
}

TEST(Resolve, ANameHasAddressesOrAReason) {
  Loop loop;
  const Resolved known = loop.run_to_end(resolve(loop, "localhost", 80, long_from_now()));
  ASSERT_FALSE(known.addresses.empty()) << known.reason;
  EXPECT_TRUE(known.addresses[0].is_loopback());
  const Resolved unknown = loop.run_to_end(resolve(loop, "not a name", 80, long_from_now()));
  EXPECT_TRUE(unknown.addresses.empty());
  EXPECT_NE(unknown.reason.find("cannot be resolved"), std::string::npos) << unknown.reason;
}

TEST(Resolve, ALookupMayOutliveItsLoop) {
  // Sanitizers tell if its answer is used.
  Loop loop;
  const auto ask = [&]() -> Task<void> { (void)co_await resolve(loop, "localhost", 80, long_from_now()); };
  spawn(ask());
}

TEST(SocketAddress, IsParsedAsItIsUsuallyWritten) {
  EXPECT_EQ(parse_ip("127.0.0.1", 80)->text(), "127.0.0.1:80");
  EXPECT_EQ(parse_ip("::1", 80)->text(), "[::1]:80");
  EXPECT_FALSE(parse_ip("127.1"));
  EXPECT_FALSE(parse_ip("localhost"));
  EXPECT_FALSE(parse_ip(""));
  EXPECT_TRUE(parse_ip("127.8.8.8")->is_loopback());
  EXPECT_TRUE(parse_ip("::1")->is_loopback());
  EXPECT_FALSE(parse_ip("::2")->is_loopback());
}

} // namespace
} // namespace oncekey
