// The subcommand against a stand-in for the admin listener that gives prepared answers and remembers what it was asked.
#include "cli/subcommand.h"

#include "cli/admin_token.h"
#include "cli/views.h"
#include "support/http_stand_in.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

namespace oncekey {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

const std::string kId(64, 'a');
// A token that a gateway of this user keeps must not get into these tests.
[[maybe_unused]] const int kNoToken = ::setenv("XDG_STATE_HOME", "/nonexistent", 1);
constexpr const char* kRecord =
    R"({"id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","state":"in_progress","abandoned":true,
        "fence":3,"key":"order-1","route":"/v1/*","method":"POST","target":"/v1/charges",
        "gateway":"eu-1","trace":"4bf92f3577b34da6a3ce929d0e0e4736",
        "first_received":"2026-01-02T03:04:05.678Z","lease_until":"2026-01-02T03:05:05.678Z",
        "expires_at":1767409445678,"settled_at":null,"status":null})";

constexpr const char* kAdminListener = R"({"status":"alive","listener":"oncekey-admin"})";

// Answers the prepared answers in order, one connection each, and then no more. Says that it is an admin listener when
// it is asked, unless it is made to be another server.
class StandIn {
 public:
  explicit StandIn(std::vector<std::pair<int, std::string>> answers, const char* listener = kAdminListener)
      : listener_(listener), thread_([this, answers = std::move(answers)] {
          for (const auto& [status, body] : answers) answer(status, body);
        }) {}
  ~StandIn() { finish(); }

  std::string address() const { return port_.address(); }
  // What was asked, as "METHOD TARGET [token] body". Every prepared answer must have been fetched.
  std::vector<std::string> asked() {
    finish();
    return asked_;
  }

 private:
  void finish() {
    if (thread_.joinable()) thread_.join();
  }

  void answer(int status, const std::string& body) {
    testing_support::ServedConnection connection = port_.accept().value();
    const testing_support::ReceivedRequest request = connection.next_request().value();
    const auto token = request.headers.find("authorization");
    if (request.target == "/livez") {
      EXPECT_EQ(token, request.headers.end()) << "the token must not go to a server that is not known";
      connection.respond(200, listener_);
      if (listener_ == kAdminListener) answer(status, body);
      return;
    }
    std::ostringstream line;
    line << request.method << " " << request.target;
    if (token != request.headers.end()) line << " [" << token->second << "]";
    if (!request.body.empty()) line << " " << request.body;
    asked_.push_back(line.str());
    connection.respond(status, body);
  }

  const std::string listener_;
  testing_support::ListeningPort port_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

struct Ran {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Ran run_keys(std::vector<std::string> arguments, bool (*confirm)(const std::string&) = nullptr,
             const std::string& input = "") {
  CLI::App app;
  const auto command = keys_command(app);
  arguments.insert(arguments.begin(), "keys");
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  EXPECT_TRUE(command->chosen());
  std::ostringstream out;
  std::ostringstream err;
  std::istringstream in(input);
  const int exit_code = command->run(Console{out, err, confirm, 0, &in});
  return {exit_code, out.str(), err.str()};
}

bool agree(const std::string&) { return true; }
bool decline(const std::string&) { return false; }

TEST(KeysList, ShowsATableOfWhatTheGatewayAnswers) {
  StandIn gateway({{200, std::string("{\"keys\":[") + kRecord + "]}"}});
  const Ran ran = run_keys({"list", "--admin", gateway.address(), "--state", "abandoned", "--limit", "5"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out,
            "ID            STATE      STATUS  FIRST RECEIVED        KEY      REQUEST\n"
            "aaaaaaaaaaaa  abandoned  -       2026-01-02 03:04:05Z  order-1  POST /v1/charges\n");
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys?limit=5&state=abandoned"));
}

TEST(KeysList, OfNothingSaysSo) {
  StandIn gateway({{200, "{\"keys\":[]}"}});
  EXPECT_EQ(run_keys({"list", "--admin", gateway.address()}).out, "no keys\n");
}

TEST(KeysList, AsJsonIsTheGatewaysOwn) {
  StandIn gateway({{200, "{\"keys\":[]}"}});
  EXPECT_EQ(run_keys({"list", "--json", "--admin", gateway.address()}).out, "{\"keys\":[]}\n");
}

TEST(KeysList, SaysHowToGoOnAndHowFarItLooked) {
  const std::string keys = std::string("{\"keys\":[") + kRecord + "]";
  StandIn gateway({{200, keys + R"(,"looked":9,"whole":false,"next":"others-5-00"})"},
                   {200, keys + R"(,"looked":100000,"whole":false,"next":null})"},
                   {200, R"({"keys":[],"looked":100000,"whole":false,"next":null,"exact":false,
                     "missing":"--principal: the account"})"}});
  const std::string at = gateway.address();
  EXPECT_THAT(run_keys({"list", "--admin", at}).out, HasSubstr("(there are more: --after others-5-00)\n"));
  const Ran next =
      run_keys({"list", "--admin", at, "--after", "others-5-00", "--route", "/v1/*", "--older-than", "5m"});
  EXPECT_THAT(next.out, HasSubstr("(looked at 100000 keys, not all: narrow it with"));
  EXPECT_EQ(run_keys({"list", "--admin", at, "--key", "order-1"}).out,
            "(looked at 100000 keys, not all; none of them fits: narrow it with --principal: the account)\n");
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys?limit=100",
                                           "GET /api/keys?limit=100&route=%2Fv1%2F%2A&older_than=5m&after=others-5-00",
                                           "POST /api/keys/find {\"key\":\"order-1\"}"));
}

TEST(KeysList, OfAKeyKeepsItsLimitAndSaysWhatWasLookedAt) {
  const std::string keys = std::string("{\"keys\":[") + kRecord + "]";
  StandIn gateway(
      {{200, keys + R"(,"looked":9,"whole":true,"next":null,"more":true,"exact":false,"missing":"--path: p"})"},
       {200, keys + R"(,"looked":9,"whole":true,"next":null,"more":false,"exact":false,"missing":"--path: p"})"},
       {200, keys + R"(,"looked":1,"whole":true,"next":null,"more":false,"exact":true})"}});
  const std::string at = gateway.address();
  EXPECT_THAT(run_keys({"list", "--admin", at, "--key", "order-1", "--limit", "1"}).out,
              HasSubstr("(looked at 9 keys; more of them fit: --limit shows up to 10000)\n"));
  EXPECT_THAT(run_keys({"list", "--admin", at, "--key", "order-1"}).out,
              HasSubstr("(all keys were searched; to ask for one alone, give --path: p)\n"));
  EXPECT_THAT(run_keys({"list", "--admin", at, "--key", "order-1"}).out, Not(HasSubstr("looked")));
  EXPECT_EQ(gateway.asked().front(), "POST /api/keys/find {\"key\":\"order-1\",\"limit\":1}");
}

TEST(KeysList, FitsIntoTheTerminal) {
  const boost::json::value listed = boost::json::parse(
      R"({"keys":[{"id":"aaaaaaaaaaaaaaaa","state":"completed","status":201,"key":"0123456789012345678901234567890123456789",
          "first_received":"2026-01-02T03:04:05.678Z","method":"POST","target":"/v1/a-long-path/with-many/segments"}]})");
  std::istringstream lines(view_of_list(listed, 100));
  for (std::string line; std::getline(lines, line);) EXPECT_LE(line.size(), 100u) << line;
}

TEST(KeysSearch, ShowsTheOneRecordOfAKeyAndAnAccount) {
  StandIn gateway({{200, std::string("{\"keys\":[") + kRecord + "]}"}, {200, kRecord}});
  const Ran ran = run_keys({"show", "--key", "order-1", "--principal", "-", "--header", "Stripe-Account: acct_1",
                            "--path", "/v1/charges", "--admin", gateway.address()},
                           nullptr, "Bearer secret\n");
  EXPECT_EQ(ran.exit_code, 0) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("order-1"));
  EXPECT_THAT(gateway.asked(),
              ElementsAre("POST /api/keys/find {\"key\":\"order-1\",\"principal\":\"Bearer secret\",\"path\":"
                          "\"/v1/charges\",\"headers\":[[\"Stripe-Account\",\"acct_1\"]]}",
                          "GET /api/keys/" + kId + "?body=1"));
}

TEST(KeysSearch, DoesNotActOnTheOnlyRecordOfALookThatSawNotAllKeys) {
  StandIn gateway({{200, std::string("{\"keys\":[") + kRecord + "],\"looked\":100000,\"whole\":false}"}});
  const Ran ran = run_keys({"release", "--key", "order-1", "--reason", "r", "--yes", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("not all keys were looked at"));
  EXPECT_EQ(gateway.asked().size(), 1u) << "nothing was released";
}

TEST(KeysSearch, ActsOnlyWhereOneRecordIsMeant) {
  const std::string two = std::string("{\"keys\":[") + kRecord + "," + kRecord + "]}";
  StandIn gateway({{200, two}, {200, R"({"keys":[],"looked":1,"whole":true,"exact":true})"}});
  const std::vector<std::string> release{"release", "--key", "order-1", "--reason",
                                         "r",       "--yes", "--admin", gateway.address()};
  const Ran several = run_keys(release);
  EXPECT_EQ(several.exit_code, 1);
  EXPECT_THAT(several.err, HasSubstr("several keys were found"));
  const Ran none = run_keys(release);
  EXPECT_EQ(none.exit_code, 1);
  EXPECT_THAT(none.err, HasSubstr("no key was found"));
}

TEST(KeysSearch, WantsAnIdOrAKey) {
  EXPECT_EQ(run_keys({"show", "--admin", "127.0.0.1:1"}).exit_code, 2);
  EXPECT_EQ(run_keys({"show", kId, "--key", "k", "--admin", "127.0.0.1:1"}).exit_code, 2);
  EXPECT_THAT(run_keys({"show", "order-17", "--admin", "127.0.0.1:1"}).err, HasSubstr("--key order-17"));
}

TEST(Keys, DoNotSendTheTokenToAnotherServer) {
  ::setenv("ONCEKEY_ADMIN_TOKEN", "0123456789abcdef", 1);
  StandIn api({{200, "{\"keys\":[]}"}}, "<!DOCTYPE html>");
  const Ran ran = run_keys({"list", "--admin", api.address()});
  ::unsetenv("ONCEKEY_ADMIN_TOKEN");
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("is not an Oncekey admin listener, so the admin token was not sent"));
  EXPECT_THAT(api.asked(), ElementsAre());
}

TEST(Keys, TakeTheListenerAsAUrlAndSayWhatIsNone) {
  StandIn gateway({{200, "{\"keys\":[]}"}});
  EXPECT_EQ(run_keys({"list", "--admin", "http://" + gateway.address()}).exit_code, 0);
  const Ran ran = run_keys({"list", "--admin", "nonsense"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--admin: expected HOST:PORT or http://HOST:PORT"));
}

TEST(KeysShow, SaysWhatIsNextForAKeyThatIsNotSettled) {
  StandIn gateway(
      {{200, R"({"id":"x","state":"indeterminate","abandoned":false,"waits_for":"operator","settled_at":null,
                     "indeterminate_since":"2026-01-02T03:04:05.678Z"})"},
       {200, R"({"id":"x","state":"in_progress","abandoned":false,"rerun":true,"waits_for":null})"}});
  const Ran held = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_THAT(held.out, Not(HasSubstr("settled at")));
  EXPECT_THAT(held.out, HasSubstr("unknown since"));
  EXPECT_THAT(held.out, HasSubstr("decide: release, complete or rerun"));
  const Ran again = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_THAT(again.out, HasSubstr("next retry executes"));
  EXPECT_THAT(again.out, Not(HasSubstr("abandoned")));
}

TEST(KeysShow, ShowsTheRecordAndItsAnswer) {
  StandIn gateway({{200, R"({"id":"x","state":"completed","abandoned":false,"fence":1,"expires_at":1767409445678,
    "response":{"status":201,"reason":"Created","headers":[["Content-Type","text/plain"]],"body":"one\ntwo"}})"}});
  const Ran ran = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("state       completed\n"));
  EXPECT_THAT(ran.out, HasSubstr("expires at  2026-01-03T03:04:05.678Z\n"));
  EXPECT_THAT(ran.out, HasSubstr("\n201 Created\nContent-Type: text/plain\n\none\ntwo\n"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys/aaaaaaaa?body=1"));
}

TEST(KeysShow, TellsWhichGatewayAndTraceItWas) {
  StandIn gateway({{200, kRecord}});
  const Ran ran = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_THAT(ran.out, HasSubstr("gateway         eu-1\n"));
  EXPECT_THAT(ran.out, HasSubstr("trace           4bf92f3577b34da6a3ce929d0e0e4736\n"));
}

TEST(KeysShow, SaysThatTheAnswerIsSealed) {
  StandIn gateway({{200, R"({"id":"x","state":"completed","abandoned":false,"fence":1,"key":"",
    "response":{"status":201,"reason":"Created","sealed":{"key_id":8}}})"}});
  const Ran ran = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_THAT(ran.out, HasSubstr("\n201 Created\n(headers and body are sealed with key 8)\n"));
}

TEST(KeysShow, OfAnUnknownIdFailsWithTheGatewaysReason) {
  StandIn gateway({{404, R"({"error":"no record begins with aaaaaaaa"})"}});
  const Ran ran = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "oncekey keys: no record begins with aaaaaaaa\n");
}

TEST(KeysShow, RefusesWhatCannotBeAnIdWithoutAskingTheGateway) {
  for (const char* id : {"aaaaaaa", "AAAAAAAA", "../../livez", "zzzzzzzz"}) {
    const Ran ran = run_keys({"show", id, "--admin", "127.0.0.1:1"});
    EXPECT_EQ(ran.exit_code, 2) << id;
    EXPECT_THAT(ran.err, HasSubstr("is not an id")) << id;
  }
}

TEST(KeysActions, WithYesAreSentAtOnceWithTheirReason) {
  StandIn gateway({{200, R"({"id":"x","action":"release","result":"done"})"}});
  const Ran ran = run_keys({"release", kId, "--reason", "checked \"by hand\"", "--yes", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, StartsWith("release: done"));
  EXPECT_THAT(gateway.asked(),
              ElementsAre("POST /api/keys/" + kId + "/release {\"reason\":\"checked \\\"by hand\\\"\"}"));
}

TEST(KeysActions, ShowTheRecordAndActOnItOnceConfirmed) {
  StandIn gateway({{200, kRecord}, {200, R"({"id":"x","action":"rerun","result":"done"})"}});
  const Ran ran = run_keys({"rerun", "aaaaaaaa", "--reason", "r", "--admin", gateway.address()}, agree);
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.err, HasSubstr("order-1"));
  EXPECT_THAT(gateway.asked(),
              ElementsAre("GET /api/keys/aaaaaaaa?body=1", "POST /api/keys/" + kId + "/rerun {\"reason\":\"r\"}"));
}

TEST(KeysActions, ChangeNothingWhenDeclined) {
  StandIn gateway({{200, kRecord}});
  const Ran ran = run_keys({"rerun", "aaaaaaaa", "--reason", "r", "--admin", gateway.address()}, decline);
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("nothing was changed"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys/aaaaaaaa?body=1"));
}

TEST(KeysActions, AreRefusedWhereNobodyCanConfirmThem) {
  const Ran ran = run_keys({"release", "aaaaaaaa", "--reason", "r", "--admin", "127.0.0.1:1"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("--yes"));
}

TEST(KeysActions, NeedAReason) {
  EXPECT_THROW(run_keys({"release", "aaaaaaaa", "--yes"}), CLI::RequiredError);
  EXPECT_EQ(run_keys({"release", "aaaaaaaa", "--yes", "--reason", " "}).exit_code, 2);
}

TEST(KeysActions, ReportAConflictAsRefused) {
  StandIn gateway({{409, R"({"error":"an owner is at work"})"}});
  const Ran ran = run_keys({"release", kId, "--reason", "r", "--yes", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_EQ(ran.err, "oncekey keys: an owner is at work\n");
}

TEST(KeysComplete, SendsTheAnswerToKeep) {
  StandIn gateway({{200, R"({"id":"x","action":"complete","result":"done"})"}});
  const Ran ran = run_keys({"complete", kId, "--reason", "r", "--yes", "--status", "201", "--body", "{\"id\":1}",
                            "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 0);
  const auto asked = gateway.asked();
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(boost::json::parse(asked[0].substr(asked[0].find('{'))),
            boost::json::parse(R"({"reason":"r","status":201,"content_type":"application/json","body":"{\"id\":1}"})"));
}

TEST(KeysComplete, RefusesABodyThatIsNotText) {
  const Ran ran = run_keys({"complete", kId, "--reason", "r", "--yes", "--body", "\xff", "--admin", "127.0.0.1:1"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("must be UTF-8"));
}

TEST(Keys, SendTheTokenOfTheEnvironment) {
  ::setenv("ONCEKEY_ADMIN_TOKEN", "0123456789abcdef", 1);
  StandIn gateway({{401, R"({"error":"wrong token"})"}});
  const Ran ran = run_keys({"list", "--admin", gateway.address()});
  ::unsetenv("ONCEKEY_ADMIN_TOKEN");
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("set ONCEKEY_ADMIN_TOKEN"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys?limit=100 [Bearer 0123456789abcdef]"));
}

TEST(Keys, SayThatNoTokenWasFound) {
  StandIn gateway({{401, R"({"error":"send the admin token"})"}});
  const Ran ran = run_keys({"list", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("No admin token was found"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys?limit=100"));
}

class KeysToken : public ::testing::Test {
 protected:
  KeysToken() {
    std::string pattern = (std::filesystem::temp_directory_path() / "oncekey-keys-XXXXXX").string();
    folder_ = ::mkdtemp(pattern.data());
  }
  ~KeysToken() override { std::filesystem::remove_all(folder_); }
  std::string write(const std::string& name, const std::string& content) {
    const std::filesystem::path path = std::filesystem::path(folder_) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << content;
    return path.string();
  }
  // The token that goes out with these arguments.
  static std::string sent_with(std::vector<std::string> arguments) {
    StandIn gateway({{200, "{\"keys\":[]}"}});
    arguments.insert(arguments.begin(), {"list", "--admin", gateway.address()});
    EXPECT_EQ(run_keys(arguments).exit_code, 0);
    const std::string asked = gateway.asked().front();
    const std::size_t begin = asked.find("Bearer ");
    return begin == std::string::npos ? "" : asked.substr(begin + 7, asked.size() - begin - 8);
  }
  std::string folder_;
};

TEST_F(KeysToken, IsThatOfTheNamedFile) {
  EXPECT_EQ(sent_with({"--token-file", write("token", "0123456789abcdef\n")}), "0123456789abcdef");
}

TEST_F(KeysToken, IsTheOneTheConfigurationNamesAndNothingElseOfTheFileIsNeeded) {
  const std::string token = write("token", "fedcba9876543210\n");
  const std::string config =
      write("oncekey.toml", "admin_token = \"file:" + token + "\"\n[[webhook]]\nsecrets = [\"env:NOT_SET_HERE\"]\n");
  EXPECT_EQ(sent_with({"--config", config}), "fedcba9876543210");
}

TEST_F(KeysToken, IsTheOneInTheFolderOfTheConfiguredStore) {
  write("data/admin-token", "aaaaaaaaaaaaaaaaaaaaaaaa\n");
  const std::string config = write("oncekey.toml", "store = \"journal:" + folder_ + "/data\"\n");
  EXPECT_EQ(sent_with({"--config", config}), "aaaaaaaaaaaaaaaaaaaaaaaa");
}

TEST_F(KeysToken, OfAConfigurationWithoutAnyIsAnErrorThatNamesTheFile) {
  const std::string config = write("oncekey.toml", "store = \"journal:" + folder_ + "/data\"\n");
  const Ran ran = run_keys({"list", "--config", config});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr(folder_ + "/data/admin-token"));
}

TEST_F(KeysToken, IsTheOneInTheStateFolder) {
  write("oncekey/admin-token", "bbbbbbbbbbbbbbbbbbbbbbbb\n");
  ::setenv("XDG_STATE_HOME", folder_.c_str(), 1);
  EXPECT_EQ(sent_with({}), "bbbbbbbbbbbbbbbbbbbbbbbb");
  ::setenv("XDG_STATE_HOME", "/nonexistent", 1);
}

TEST_F(KeysToken, IsMadeOnceAndKeptForTheOwnerAlone) {
  const std::string file = folder_ + "/state/oncekey/admin-token";
  const Result<std::string> made = load_or_make_admin_token(file);
  ASSERT_TRUE(made);
  EXPECT_EQ(made->size(), 64u);
  EXPECT_EQ(*load_or_make_admin_token(file), *made);
  struct stat kept {};
  ASSERT_EQ(::stat(file.c_str(), &kept), 0);
  EXPECT_EQ(kept.st_mode & 0777u, 0600u);
  write("short", "abc\n");
  EXPECT_THAT(load_or_make_admin_token(folder_ + "/short").fault().message, HasSubstr("needs at least 16"));
}

TEST(Keys, RefuseAnAdminUrlWithAPath) {
  const Ran ran = run_keys({"list", "--admin", "https://ops.example/console"});
  EXPECT_EQ(ran.exit_code, 2);
  EXPECT_THAT(ran.err, HasSubstr("without a path"));
}

TEST(Keys, SayWhatToDoWhenNobodyListens) {
  std::string address;
  { address = StandIn({}).address(); }
  const Ran ran = run_keys({"list", "--admin", address});
  EXPECT_EQ(ran.exit_code, 3);
  EXPECT_THAT(ran.err, HasSubstr("Is the gateway running?"));
}

TEST(KeysView, DoesNotLetAClientsTextReachTheTerminalRaw) {
  EXPECT_EQ(printable("a\x1b[2Jb\n", 40), "a?[2Jb?");
  EXPECT_EQ(printable("abcdefghij", 8), "abcde...");
}

TEST(KeysView, ShowsTimesInIso8601) {
  EXPECT_EQ(view_of_time(1767323045007), "2026-01-02T03:04:05.007Z");
  EXPECT_EQ(view_of_time("2026-01-02T03:04:05Z"), "2026-01-02T03:04:05Z");
  EXPECT_EQ(view_of_time(nullptr), "-");
  EXPECT_EQ(view_of_time(0), "-");
}

} // namespace
} // namespace oncekey
