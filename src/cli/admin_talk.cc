#include "cli/admin_talk.h"

#include "base/utf8.h"
#include "cli/admin_token.h"
#include "cli/exit_codes.h"
#include "cli/keys_view.h"
#include "config/config.h"

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <boost/json.hpp>

#include <cstdlib>
#include <fstream>
#include <iostream>

namespace oncekey {

namespace json = boost::json;

namespace {

// Shorter prefixes often match several ids.
constexpr std::size_t kShortestPrefix = 8;
constexpr std::size_t kWholeId = 64;
constexpr std::size_t kLargestBody = 8u << 20; // the default of max_stored_body

bool ask_on_the_terminal(const std::string& question) {
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

constexpr std::string_view kUsualAddress = "127.0.0.1:8081";

Result<AdminToken> token_in_file(const std::string& file) {
  auto content = read_small_file(file);
  if (!content) return std::move(content).fault();
  return AdminToken{content->substr(0, content->find_first_of("\r\n")), file};
}

// The token that a gateway with this store keeps in a file; nothing if there is none.
Result<std::optional<AdminToken>> token_kept_for(std::string_view store_url) {
  const std::string file = admin_token_file(store_url);
  if (file.empty()) return std::optional<AdminToken>();
  Result<std::optional<std::string>> token = load_admin_token(file);
  if (!token) return std::move(token).fault();
  if (!*token) return std::optional<AdminToken>();
  return std::optional<AdminToken>(AdminToken{**std::move(token), file});
}

Result<AdminToken> token_of_config(const Config& config, const std::string& config_file) {
  if (!config.admin_token.empty()) return AdminToken{config.admin_token, "admin_token of " + config_file};
  Result<std::optional<AdminToken>> kept = token_kept_for(config.store);
  if (!kept) return std::move(kept).fault();
  if (*kept) return **std::move(kept);
  return invalid(
      fmt::format("{} sets no admin_token, and there is no {}: has the gateway been started, as this user and in this "
                  "folder?",
                  config_file, admin_token_file(config.store)));
}

Result<AdminToken> token_by_default() {
  const char* const given = std::getenv("ONCEKEY_ADMIN_TOKEN");
  if (given != nullptr && *given != '\0') return AdminToken{given, "ONCEKEY_ADMIN_TOKEN"};
  // Where `oncekey serve` keeps it: in its store's folder, or in the user's state folder for a store elsewhere.
  for (const std::string& store : {Config{}.store, std::string("memory:")}) {
    Result<std::optional<AdminToken>> kept = token_kept_for(store);
    if (!kept) return std::move(kept).fault();
    if (*kept) return **std::move(kept);
  }
  return AdminToken{};
}

// HOST:PORT, or a URL without a path.
Result<Url> url_of(const std::string& text, bool tls) {
  if (text.find("://") != std::string::npos) {
    Result<Url> url = parse_url(text);
    if (!url) return invalid(fmt::format("--admin: {}", url.fault().message));
    if (url->target != "/") return invalid("--admin: give the listener without a path, as in http://HOST:PORT");
    return url;
  }
  const Result<Address> address = parse_address(text);
  if (!address) {
    return invalid(fmt::format(
        "--admin: expected HOST:PORT or http://HOST:PORT of the gateway's admin listener, got \"{}\"", text));
  }
  // A gateway that listens on all addresses is reached on loopback.
  const std::string host = address->host == "0.0.0.0" ? "127.0.0.1" : address->host == "::" ? "::1" : address->host;
  return parse_url(fmt::format("{}://{}", tls ? "https" : "http", host_and_port(host, address->port)));
}

} // namespace

Console standard_console() {
  const bool somebody_there = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  winsize window{};
  const bool to_terminal = ::isatty(STDOUT_FILENO) == 1 && ::ioctl(STDOUT_FILENO, TIOCGWINSZ, &window) == 0;
  return Console{std::cout, std::cerr, somebody_there ? ask_on_the_terminal : nullptr,
                 to_terminal ? std::size_t{window.ws_col} : 0, &std::cin};
}

bool Subcommand::chosen() const { return command_->parsed(); }

void AdminFlags::add_to(CLI::App& command) {
  command.add_option("--admin", admin,
                     fmt::format("HOST:PORT of the gateway's admin listener, or its http:// or https:// URL (default: "
                                 "that of --config, or {})",
                                 kUsualAddress));
  command.add_option("--admin-ca", admin_ca, "PEM certificates to trust for https (default: the system's)");
  command.add_option("--config", config, "the gateway's configuration file: where it listens and keeps its token");
  command.add_option("--token-file", token_file, "file with the admin token (else --config, else ONCEKEY_ADMIN_TOKEN)");
  command.add_flag("--json", as_json, "print the gateway's JSON instead of a table");
}

Result<AdminClient> AdminFlags::client() const {
  Config settings;
  if (!config.empty()) {
    Result<Config> loaded = load_admin_settings(config);
    if (!loaded) return std::move(loaded).fault();
    settings = *std::move(loaded);
  }
  const std::string where = !admin.empty() ? admin : host_and_port(settings.admin.host, settings.admin.port);
  Result<Url> url = url_of(where, !settings.admin_tls_cert.empty());
  if (!url) return std::move(url).fault();
  Result<AdminToken> token = !token_file.empty() ? token_in_file(token_file)
                             : !config.empty()   ? token_of_config(settings, config)
                                                 : token_by_default();
  if (!token) return std::move(token).fault();
  // The certificate in the gateway's configuration is trusted: that is enough for a self-signed one.
  return AdminClient(*std::move(url), *std::move(token), !admin_ca.empty() ? admin_ca : settings.admin_tls_cert);
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

std::optional<std::string> show_and_confirm(Result<AdminAnswer> answer,
                                            const std::function<std::string(const json::value&)>& view,
                                            const std::string& question, std::string_view command,
                                            const Console& console, int& exit_code) {
  const auto shown = body_or_complain(std::move(answer), command, console, exit_code);
  if (!shown) return std::nullopt;
  json::error_code error;
  const json::value parsed = json::parse(*shown, error);
  const json::value* const id = !error && parsed.is_object() ? parsed.as_object().if_contains("id") : nullptr;
  if (id == nullptr || !id->is_string()) {
    exit_code = print_answer(*shown, false, view, command, console);
    return std::nullopt;
  }
  console.err << view(parsed) << "\n";
  if (!console.confirm(question)) {
    console.err << "nothing was changed\n";
    exit_code = kRefused;
    return std::nullopt;
  }
  return std::string(id->as_string().c_str());
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
    console.err << "oncekey " << command << ": " << answer.fault().message << "\n";
    if (answer.fault().kind != FaultKind::invalid)
      console.err << "Is the gateway running? Say where its admin listener is with --admin HOST:PORT.\n";
    exit_code = kUnreachable;
    return std::nullopt;
  }
  // Another server may have answered anything; only UTF-8 is printed.
  if (answer->status == 200) return as_utf8(answer->body);
  console.err << "oncekey " << command << ": " << view_of_error(answer->body) << "\n";
  if (answer->status == 401 || answer->status == 403) {
    console.err
        << (answer->token_from.empty() ? "No admin token was found"
                                       : "This gateway does not know the token of " + answer->token_from)
        << ": set ONCEKEY_ADMIN_TOKEN, or give --token-file FILE or the gateway's --config FILE. A gateway that "
           "made its token itself logs the file at its start (event=admin_token).\n";
  }
  exit_code = kRefused;
  return std::nullopt;
}

int print_answer(const std::string& body, bool as_json, const std::function<std::string(const json::value&)>& view,
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
