#include "cli/subcommand.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <fstream>
#include <sstream>

namespace oncekey {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

struct Checked {
  int exit_code;
  std::string path;
  std::string out;
  std::string err;
};

Checked check(const std::string& text) {
  const std::string path = testing::TempDir() + "oncekey_check_" + std::to_string(::getpid()) + ".toml";
  std::ofstream(path) << text;
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = run_check(path, Output::text, {out, err});
  return {exit_code, path, out.str(), err.str()};
}

TEST(Check, AnAccessLogThatCannotBeMadeIsFound) {
  const Checked checked = check("upstream = \"http://127.0.0.1:9090\"\naccess_log = \"/nonexistent/access.log\"\n");
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_EQ(checked.err, checked.path + ":2: access_log: /nonexistent/access.log: No such file or directory\n");
}

TEST(Check, AnAuditLogWhoseFolderCanBeMadeIsFine) {
  const std::string config = "upstream = \"http://127.0.0.1:9090\"\nstore = \"memory:\"\naudit_log = ";
  EXPECT_EQ(check(config + "\"" + testing::TempDir() + "made/at/start/audit.log\"\n").exit_code, 0);
  const Checked nowhere = check(config + "\"/proc/none/audit.log\"\n");
  EXPECT_EQ(nowhere.err,
            nowhere.path + ":3: audit_log: /proc belongs to the kernel and keeps no files; name a folder on a disk\n");
}

TEST(Check, FilesThatTheStoresUrlNamesAreRead) {
  const std::string config = "upstream = \"http://127.0.0.1:9090\"\nstore = ";
  for (const char* const url :
       {"rediss://127.0.0.1:1?tls_ca=/missing.pem", "redis://127.0.0.1:1?password_file=/missing.pem",
        "rediss://127.0.0.1:1?tls_cert=/missing.pem&tls_key=/missing.key",
        "postgres://127.0.0.1/d?sslmode=verify-full&sslrootcert=/missing.pem"}) {
    const Checked checked = check(config + "\"" + url + "\"\n");
    EXPECT_EQ(checked.exit_code, 1) << url;
    EXPECT_THAT(checked.err, StartsWith(checked.path + ":2: store: ")) << url;
    EXPECT_THAT(checked.err, HasSubstr("/missing.pem")) << url;
  }
}

TEST(Check, SaysOkAndShowsWhatEachRouteFollows) {
  const Checked checked = check(R"(upstream = "http://127.0.0.1:9090"
[[route]]
path = "/v1/*"
policy = "stripe-v1"
[[route]]
path = "/orders"
key = "required"
lease = "5s"
)");
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_THAT(checked.out, StartsWith(checked.path + ": ok: 2 routes\nROUTE "));
  EXPECT_THAT(checked.out, HasSubstr("\n/v1/*    stripe-v1  POST        pass header:Idempotency-Key      "
                                     "header:Authorization,header:Stripe-Account?  60s    24h"));
  EXPECT_THAT(checked.out, HasSubstr("\n/orders  classic    POST,PATCH  required header:Idempotency-Key  "));
  EXPECT_EQ(checked.err, "");
}

TEST(Check, ShowsWhereEachRouteGoesIfThereAreSeveralUpstreams) {
  const Checked checked = check(R"(upstream = "http://127.0.0.1:9090"
[[route]]
path = "/orders"
upstream = "https://orders.internal"
[[route]]
path = "/*"
)");
  EXPECT_EQ(checked.exit_code, 0) << checked.err;
  EXPECT_THAT(checked.out, HasSubstr("  UPSTREAM\n/orders "));
  EXPECT_THAT(checked.out, HasSubstr("  https://orders.internal\n/* "));
  EXPECT_THAT(checked.out, HasSubstr("  http://127.0.0.1:9090\n"));
}

TEST(Check, GivesWarningsAndStillSaysOk) {
  const Checked checked = check("upstream = \"http://127.0.0.1:9090\"\nstore = \"memory:\"\n");
  EXPECT_EQ(checked.exit_code, 0);
  EXPECT_THAT(checked.out, HasSubstr(": ok: 1 route\n"));
  EXPECT_THAT(checked.err, StartsWith(checked.path + ": warning: store memory: keeps nothing"));
}

TEST(Check, PutsFindingsOnStandardErrorAndFails) {
  const Checked checked = check("upstream = \"http://127.0.0.1:9090\"\nleese = \"5s\"\n");
  EXPECT_EQ(checked.exit_code, 1);
  EXPECT_EQ(checked.out, "");
  EXPECT_EQ(checked.err, checked.path + ":2: leese: no such setting; did you mean \"lease\"?\n");
}

} // namespace
} // namespace oncekey
