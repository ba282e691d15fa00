#include "core/path.h"

#include <gtest/gtest.h>

namespace oncekey {
namespace {

std::string name_of_host(std::string_view host) {
  Headers headers;
  headers.add("Host", host);
  std::string storage;
  return std::string(host_name(headers, storage));
}

TEST(HostNames, HaveOneSpelling) {
  const struct {
    const char* sent;
    const char* name;
  } cases[] = {
      {"api.example", "api.example"},
      {"API.Example", "api.example"},
      {"api.example:8080", "api.example"},
      {"api.example.", "api.example"},
      {"Api.example.:443", "api.example"},
      {"a%70i.example", "api.example"},
      {"a%2Fb", "a%2fb"},
      {"[::1]:8080", "[::1]"},
      {"[FE80::1]", "[fe80::1]"},
      {"[", "["},
      {":80", ""},
      {"", ""},
  };
  for (const auto& c : cases) EXPECT_EQ(name_of_host(c.sent), c.name) << c.sent;
  std::string storage;
  EXPECT_EQ(host_name(Headers(), storage), "");
}

} // namespace
} // namespace oncekey
