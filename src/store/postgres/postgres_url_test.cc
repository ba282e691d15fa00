#include "store/postgres/postgres_url.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

namespace oncekey::postgres {
namespace {

std::string keyword(const PostgresTarget& target, std::string_view name) {
  for (const auto& [key, value] : target.keywords) {
    if (key == name) return value;
  }
  return "";
}

TEST(PostgresUrl, OursAreTakenOutAndTheRestIsLeftToLibpq) {
  const auto url =
      split_postgres_url("postgres://u:p@h:1/d?sslmode=require&call_timeout=250ms&connections=3&passfile=/x");
  ASSERT_TRUE(url) << url.fault().message;
  EXPECT_EQ(url->for_libpq, "postgres://u:p@h:1/d?sslmode=require&passfile=/x");
  EXPECT_EQ(url->call_timeout, Millis{250});
  EXPECT_EQ(url->connections, 3);
}

TEST(PostgresUrl, WithoutOursNothingChanges) {
  for (const char* const text : {"postgres://h/d", "postgresql://h/d?sslmode=require", "service=shop dbname=d"}) {
    const auto url = split_postgres_url(text);
    ASSERT_TRUE(url);
    EXPECT_EQ(url->for_libpq, text);
    EXPECT_FALSE(url->call_timeout);
  }
}

TEST(PostgresUrl, OursAreTakenOutOfKeywordsToo) {
  const auto url = split_postgres_url("host=h password='a b connections=9' connections=2 dbname=d call_timeout=1s");
  ASSERT_TRUE(url);
  EXPECT_EQ(url->for_libpq, "host=h password='a b connections=9' dbname=d");
  EXPECT_EQ(url->connections, 2);
  EXPECT_EQ(url->call_timeout, Millis{1000});
}

TEST(PostgresUrl, NonsenseIsSaid) {
  EXPECT_FALSE(split_postgres_url("postgres://h/d?connections=0"));
  EXPECT_FALSE(split_postgres_url("postgres://h/d?connections=many"));
  EXPECT_FALSE(split_postgres_url("postgres://h/d?call_timeout=2"));
  EXPECT_FALSE(split_postgres_url("postgres://h/d?call_timeout=0s"));
}

TEST(PostgresTarget, IsNamedWithoutUserAndPassword) {
  const auto target = postgres_target("postgres://user:secret@db.example:5433/shop");
  ASSERT_TRUE(target);
  EXPECT_EQ(target->name, "db.example:5433/shop");
}

TEST(PostgresTarget, KeepsWhatTheUserSaid) {
  const auto target = postgres_target("postgres://h/d?keepalives_idle=99");
  ASSERT_TRUE(target);
  EXPECT_EQ(keyword(*target, "keepalives_idle"), "");
  EXPECT_EQ(keyword(*target, "keepalives_interval"), "5");
  EXPECT_EQ(keyword(*target, "target_session_attrs"), "");
}

TEST(PostgresTarget, OfSeveralHostsTakesTheOneThatWrites) {
  const auto target = postgres_target("postgres://a,b/d");
  ASSERT_TRUE(target);
  EXPECT_EQ(keyword(*target, "target_session_attrs"), "read-write");
}

TEST(PostgresTarget, SaysWhatLibpqDoesNotUnderstandWithoutThePassword) {
  const auto unknown = postgres_target("postgres://user:secret@h/d?nonsense=1");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.fault().message.find("nonsense"), std::string::npos);
  const auto malformed = postgres_target("postgres://user:secret@[h/d");
  ASSERT_FALSE(malformed);
  EXPECT_EQ(malformed.fault().message.find("secret"), std::string::npos) << malformed.fault().message;
}

TEST(PostgresTarget, WhatLibpqWouldFindOutByConnectingIsSaidAtOnce) {
  EXPECT_EQ(
      postgres_target("postgres://h/d?sslmode=bogus").fault().message,
      "the URL of the Postgres store: sslmode must be disable, allow, prefer, require, verify-ca, verify-full (got "
      "\"bogus\")");
  const auto missing = postgres_target("postgres://h/d?sslmode=verify-ca&sslrootcert=/nowhere.pem");
  ASSERT_FALSE(missing.ok());
  EXPECT_THAT(missing.fault().message, testing::HasSubstr("sslrootcert /nowhere.pem"));
  EXPECT_TRUE(postgres_target("postgres://h/d?sslmode=require&sslrootcert=/nowhere.pem").ok())
      << "libpq does not read it";
}

TEST(PostgresTarget, APasswordThatShouldHaveBeenEscapedIsNotShown) {
  for (const char* const text :
       {"postgres://u:TOP%ZZSECRET@h/d", "postgres://u:TOP/SECRET@127.0.0.1/d", "postgres://u:TOP?SECRET@h/d",
        "postgres://u:TOP@SECRET@h/d", "postgres://u:TOP@SEC/RET@h/d", "postgres://h/d?password=TOP%ZZSECRET",
        "host=h password=TOP SECRET"}) {
    const auto target = postgres_target(text);
    ASSERT_FALSE(target) << text;
    EXPECT_EQ(target.fault().message.find("TOP"), std::string::npos) << target.fault().message;
    EXPECT_EQ(target.fault().message.find("SEC"), std::string::npos) << target.fault().message;
  }
}

TEST(PostgresTarget, WhatIsEscapedOrHasNoPasswordIsLeftToLibpq) {
  for (const char* const text :
       {"postgres://u:TOP%2FSECRET%40@h:5432/d", "postgres://[::1]:5432/d", "postgres://u@a:1,b:2/d",
        "postgres:///d?host=/run&user=a@b", "postgresql://", "postgres://u:p@%2Frun%2Fpg/d"}) {
    const auto target = postgres_target(text);
    EXPECT_TRUE(target) << text << ": " << target.fault().message;
  }
}

} // namespace
} // namespace oncekey::postgres
