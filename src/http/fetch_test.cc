#include "http/fetch.h"

#include <gtest/gtest.h>

#include <sys/resource.h>

#include <system_error>

namespace oncekey {
namespace {

TEST(Fetcher, WithoutDescriptorsNothingIsSent) {
  const auto fetcher = Fetcher::open("", {}).value();
  FetchRequest request;
  request.url = *parse_url("http://127.0.0.1:1/");
  // The undefined-behaviour sanitizer looks at each type once, and needs descriptors to do so.
  const std::system_error looked_at(std::make_error_code(std::errc::too_many_files_open));
  ASSERT_TRUE(looked_at.code());
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit none{0, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
  const Fetched fetched = fetcher->fetch(request, std::chrono::steady_clock::now() + std::chrono::seconds(30));
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  const auto* const failure = std::get_if<FetchFailure>(&fetched);
  ASSERT_NE(failure, nullptr);
  EXPECT_EQ(failure->kind, FetchFailure::Kind::not_sent) << failure->reason;
  EXPECT_FALSE(failure->lasting);
}

} // namespace
} // namespace oncekey
