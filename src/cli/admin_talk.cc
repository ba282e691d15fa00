#include "cli/admin_talk.h"

#include "base/utf8.h"
#include "cli/exit_codes.h"
#include "cli/keys_view.h"
#include "config/config.h"

#include <fmt/format.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>

namespace oncekey {

namespace json = boost::json;

namespace {

// Shorter prefixes meet by chance too soon.
constexpr std::size_t kShortestPrefix = 8;
constexpr std::size_t kWholeId = 64;
constexpr std::size_t kLargestBody = 8u << 20; // the default of max_stored_body

bool ask_on_the_terminal(const std::string& question) {
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

Result<std::string> token_from(const std::string& token_file) {
  if (token_file.empty()) {
    const char* token = std::getenv("ONCEKEY_ADMIN_TOKEN");
    return std::string(token == nullptr ? "" : token);
  }
  auto token = read_small_file(token_file);
  if (!token) return token;
  return token->substr(0, token->find_first_of("\r\n"));
}

} // namespace

Console standard_console() {
  const bool somebody_there = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  return Console{std::cout, std::cerr, somebody_there ? ask_on_the_terminal : nullptr};
}

void AdminFlags::add_to(CLI::App& command) {
  command.add_option("--admin", admin, "HOST:PORT of the gateway's admin listener")->capture_default_str();
  command.add_option("--token-file", token_file, "file with the admin token (else ONCEKEY_ADMIN_TOKEN)");
  command.add_flag("--json", as_json, "print the gateway's JSON instead of a table");
}

Result<AdminClient> AdminFlags::client() const {
  const auto address = parse_address(admin);
  if (!address) return address.fault();
  const auto token = token_from(token_file);
  if (!token) return token.fault();
  return AdminClient(*address, *token);
}

Status check_id(const std::string& id, std::string_view command) {
  if (id.size() >= kShortestPrefix && id.size() <= kWholeId &&
      id.find_first_not_of("0123456789abcdef") == std::string::npos) {
    return ok_status();
  }
  return invalid(
      fmt::format("\"{}\" is not an id: give 8 to 64 of its hexadecimal digits, as `oncekey {} list` shows "
                  "them",
                  id, command));
}

Result<std::string> read_small_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string content(kLargestBody + 1, '\0');
  if (file) file.read(content.data(), static_cast<std::streamsize>(content.size()));
  if (!file.is_open() || file.bad()) return invalid(fmt::format("cannot read {}", path));
  content.resize(static_cast<std::size_t>(file.gcount()));
  if (content.size() > kLargestBody) return invalid(fmt::format("{} is longer than {} bytes", path, kLargestBody));
  return content;
}

std::optional<std::string> body_or_complain(Result<AdminAnswer> answer, std::string_view command,
                                            const Console& console, int& exit_code) {
  if (!answer) {
    console.err << "oncekey " << command << ": " << answer.fault().message
                << "\nIs the gateway running? Say where its admin listener is with --admin HOST:PORT.\n";
    exit_code = kUnreachable;
    return std::nullopt;
  }
  // Whatever answered: what is printed is UTF-8.
  if (answer->status == 200) return as_utf8(answer->body);
  console.err << "oncekey " << command << ": " << view_of_error(answer->body) << "\n";
  if (answer->status == 401 || answer->status == 403)
    console.err << "The admin listener wants a token: set ONCEKEY_ADMIN_TOKEN or give --token-file FILE.\n";
  exit_code = kRefused;
  return std::nullopt;
}

int print_answer(const std::string& body, bool as_json, std::string (*view)(const json::value&),
                 std::string_view command, const Console& console) {
  if (as_json) {
    console.out << body << (body.ends_with('\n') ? "" : "\n");
    return kDone;
  }
  json::error_code error;
  const json::value parsed = json::parse(body, error);
  if (error) {
    console.err << "oncekey " << command
                << ": what answered is not an Oncekey admin listener: its answer is not JSON\n";
    return kUnreachable;
  }
  console.out << view(parsed);
  return kDone;
}

} // namespace oncekey
