// The subcommand against a stand-in for the admin listener that gives prepared answers and remembers what it was asked.
#include "cli/keys.h"

#include "cli/admin_token.h"
#include "cli/keys_view.h"
#include "cli/table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
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

namespace asio = boost::asio;
namespace http = boost::beast::http;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::StartsWith;

const std::string kId(64, 'a');
// A token that a gateway of this user keeps must not get into these tests.
[[maybe_unused]] const int kNoToken = ::setenv("XDG_STATE_HOME", "/nonexistent", 1);
constexpr const char* kRecord =
    R"({"id":"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa","state":"in_progress","abandoned":true,
        "fence":3,"key":"order-1","route":"/v1/*","method":"POST","target":"/v1/charges",
        "first_received":"2026-01-02T03:04:05.678Z","lease_until":"2026-01-02T03:05:05.678Z",
        "expires_at":1767409445678,"settled_at":null,"status":null})";

// Answers the prepared answers in order, one connection each, and then no more.
class StandIn {
 public:
  explicit StandIn(std::vector<std::pair<int, std::string>> answers)
      : acceptor_(context_, {asio::ip::address_v4::loopback(), 0}), thread_([this, answers = std::move(answers)] {
          for (const auto& [status, body] : answers) answer(status, body);
        }) {}
  ~StandIn() { finish(); }

  std::string address() const { return "127.0.0.1:" + std::to_string(acceptor_.local_endpoint().port()); }
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
    asio::ip::tcp::socket socket = acceptor_.accept();
    boost::beast::flat_buffer buffer;
    http::request<http::string_body> request;
    http::read(socket, buffer, request);
    std::ostringstream line;
    line << request.method_string() << " " << request.target();
    if (request.count(http::field::authorization) != 0) line << " [" << request[http::field::authorization] << "]";
    if (!request.body().empty()) line << " " << request.body();
    asked_.push_back(line.str());
    http::response<http::string_body> response(http::int_to_status(static_cast<unsigned>(status)), 11);
    response.body() = body;
    response.prepare_payload();
    http::write(socket, response);
  }

  asio::io_context context_;
  asio::ip::tcp::acceptor acceptor_;
  std::vector<std::string> asked_;
  std::thread thread_;
};

struct Ran {
  int exit_code = 0;
  std::string out;
  std::string err;
};

Ran run_keys(std::vector<std::string> arguments, bool (*confirm)(const std::string&) = nullptr) {
  CLI::App app;
  const KeysCommand command(app);
  arguments.insert(arguments.begin(), "keys");
  std::reverse(arguments.begin(), arguments.end());
  app.parse(arguments);
  EXPECT_TRUE(command.chosen());
  std::ostringstream out;
  std::ostringstream err;
  const int exit_code = command.run(Console{out, err, confirm});
  return {exit_code, out.str(), err.str()};
}

bool agree(const std::string&) { return true; }
bool decline(const std::string&) { return false; }

TEST(KeysList, ShowsATableOfWhatTheGatewayAnswers) {
  StandIn gateway({{200, std::string("{\"keys\":[") + kRecord + "]}"}});
  const Ran ran = run_keys({"list", "--admin", gateway.address(), "--state", "abandoned", "--limit", "5"});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_EQ(ran.out,
            "ID            STATE      STATUS  FENCE  FIRST RECEIVED            KEY      REQUEST\n"
            "aaaaaaaaaaaa  abandoned  -       3      2026-01-02T03:04:05.678Z  order-1  POST /v1/charges\n");
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

TEST(KeysShow, ShowsTheRecordAndItsAnswer) {
  StandIn gateway({{200, R"({"id":"x","state":"completed","abandoned":false,"fence":1,"expires_at":1767409445678,
    "response":{"status":201,"reason":"Created","headers":[["Content-Type","text/plain"]],"body":"one\ntwo"}})"}});
  const Ran ran = run_keys({"show", "aaaaaaaa", "--admin", gateway.address()});
  EXPECT_EQ(ran.exit_code, 0);
  EXPECT_THAT(ran.out, HasSubstr("state           completed\n"));
  EXPECT_THAT(ran.out, HasSubstr("expires at      2026-01-03T03:04:05.678Z\n"));
  EXPECT_THAT(ran.out, HasSubstr("\n201 Created\nContent-Type: text/plain\n\none\ntwo\n"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys/aaaaaaaa"));
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
              ElementsAre("GET /api/keys/aaaaaaaa", "POST /api/keys/" + kId + "/rerun {\"reason\":\"r\"}"));
}

TEST(KeysActions, ChangeNothingWhenDeclined) {
  StandIn gateway({{200, kRecord}});
  const Ran ran = run_keys({"rerun", "aaaaaaaa", "--reason", "r", "--admin", gateway.address()}, decline);
  EXPECT_EQ(ran.exit_code, 1);
  EXPECT_THAT(ran.err, HasSubstr("nothing was changed"));
  EXPECT_THAT(gateway.asked(), ElementsAre("GET /api/keys/aaaaaaaa"));
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
  const std::string config = write("oncekey.toml", "store = \"rocksdb:" + folder_ + "/data\"\n");
  EXPECT_EQ(sent_with({"--config", config}), "aaaaaaaaaaaaaaaaaaaaaaaa");
}

TEST_F(KeysToken, OfAConfigurationWithoutAnyIsAnErrorThatNamesTheFile) {
  const std::string config = write("oncekey.toml", "store = \"rocksdb:" + folder_ + "/data\"\n");
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
