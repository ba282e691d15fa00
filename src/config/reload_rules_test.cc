#include "config/reload_rules.h"

#include "config/load.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace oncekey {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

ReadConfig read_reloaded(const std::string& text) {
  ReadConfig config =
      read_config_text("upstream = \"http://127.0.0.1:9090\"\n" + text, "test.toml", NamedFiles::left_alone);
  EXPECT_THAT(config.findings, IsEmpty()) << text;
  return config;
}

TEST(ReloadRules, NothingHasChangedBetweenTwoSpellingsOfOneFile) {
  const ConfigChanges changes =
      changes_between(read_reloaded("lease = \"5s\"\n[limits]\nmax_connections = 7\n"),
                      read_reloaded("# more\nlease = '5s'\nlimits = { max_connections = 7 }\n"));
  EXPECT_THAT(changes.reloadable, IsEmpty());
  EXPECT_THAT(changes.need_restart, IsEmpty());
}

TEST(ReloadRules, TellWhatARunningGatewayCanTakeOn) {
  const ConfigChanges changes = changes_between(
      read_reloaded(
          "log_level = \"info\"\nthreads = 1\n[timeouts]\nidle = \"5s\"\n[[route]]\npath = \"/a\"\nlease = \"5s\"\n"),
      read_reloaded(
          "log_level = \"debug\"\nthreads = 2\nrate = \"5/s\"\n[timeouts]\nidle = \"6s\"\n[[route]]\npath = \"/a\"\n"
          "lease = \"6s\"\n[[route]]\npath = \"/b\"\n"));
  EXPECT_THAT(changes.reloadable, ElementsAre("log_level", "rate", "route", "route /a: lease", "route /b: path"));
  EXPECT_THAT(changes.need_restart, ElementsAre("threads", "timeouts.idle"));
}

TEST(ReloadRules, WebhooksAndWhetherAListenerServesTlsNeedARestart) {
  const std::string hook =
      "[[webhook]]\npath = \"/h\"\nprovider = \"github\"\nsecrets = \"env:HOME\"\ndeliver_to = "
      "\"http://127.0.0.1:1\"\n";
  EXPECT_THAT(changes_between(read_reloaded(""), read_reloaded(hook)).need_restart,
              testing::Contains("webhook /h: path"));
  EXPECT_THAT(changes_between(read_reloaded(""), read_reloaded("tls_cert = \"a\"\ntls_key = \"b\"\n")).need_restart,
              ElementsAre("tls_cert"));
  EXPECT_THAT(changes_between(read_reloaded("tls_cert = \"a\"\ntls_key = \"b\"\n"),
                              read_reloaded("tls_cert = \"c\"\ntls_key = \"d\"\n"))
                  .need_restart,
              IsEmpty());
}

TEST(ReloadRules, AnotherKeyFileIsTakenOnAndEncryptionItselfNeedsARestart) {
  const std::string one = "encryption_key_file = \"a\"\n";
  const std::string two = "encryption_key_file = \"b\"\n";
  EXPECT_THAT(changes_between(read_reloaded(one), read_reloaded(two)).need_restart, IsEmpty());
  EXPECT_THAT(changes_between(read_reloaded(one), read_reloaded(two)).reloadable, ElementsAre("encryption_key_file"));
  EXPECT_THAT(changes_between(read_reloaded(""), read_reloaded(one)).need_restart, ElementsAre("encryption_key_file"));
  EXPECT_THAT(changes_between(read_reloaded(one), read_reloaded("")).need_restart, ElementsAre("encryption_key_file"));
}

TEST(ReloadRules, ATokenMayChangeAndIsRevokedOnlyByARestart) {
  const std::string one = "admin_token = \"one-token-of-operators\"\n";
  const std::string two = "admin_token = \"two-token-of-operators\"\n";
  EXPECT_THAT(changes_between(read_reloaded(one), read_reloaded(two)).need_restart, IsEmpty());
  EXPECT_THAT(changes_between(read_reloaded(""), read_reloaded(one)).need_restart, IsEmpty());
  EXPECT_THAT(changes_between(read_reloaded(one), read_reloaded("")).need_restart, ElementsAre("admin_token"));
}

TEST(ReloadRules, TheNewOrderOfRoutesIsAChange) {
  const std::string a = "[[route]]\npath = \"/a\"\n";
  const std::string b = "[[route]]\npath = \"/b\"\n";
  EXPECT_THAT(changes_between(read_reloaded(a + b), read_reloaded(b + a)).reloadable, ElementsAre("route"));
}

} // namespace
} // namespace oncekey
