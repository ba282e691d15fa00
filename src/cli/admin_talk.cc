#include "cli/admin_talk.h"

#include "base/private_files.h"
#include "base/utf8.h"
#include "cli/admin_token.h"
#include "cli/views.h"
#include "http/fetch.h"

#include <fmt/format.h>

#include <cstdlib>

namespace oncekey {

namespace json = boost::json;

namespace {

// Shorter prefixes often match several ids.
constexpr std::size_t kShortestPrefix = 8;
constexpr std::size_t kWholeId = 64;
constexpr std::size_t kLargestBody = 8u << 20; // the default of max_stored_body
// Listing a large store reads all of it.
constexpr std::chrono::seconds kPatience{30};
// A record's body is at most max_stored_body, and base64 in JSON makes it a third longer.
constexpr std::uint64_t kLargestAnswer = 256u << 20;

constexpr std::string_view kUsualAddress = "127.0.0.1:8081";

Result<AdminToken> token_in_file(const std::string& file) {
  auto content = read_small_file(file);
  if (!content) return std::move(content).fault();
  return AdminToken{content->substr(0, content->find_first_of("\r\n")), file};
}

// The token that a gateway with this store keeps in a file; an empty one if there is none.
Result<AdminToken> token_kept_for(std::string_view store_url) {
  const std::string file = admin_token_file(store_url);
  if (file.empty()) return AdminToken{};
  Result<std::string> token = load_admin_token(file);
  if (!token) return std::move(token).fault();
  return token->empty() ? AdminToken{} : AdminToken{*std::move(token), file};
}

Result<AdminToken> token_of_config(const Config& config, const std::string& config_file) {
  if (!config.admin_token.empty()) return AdminToken{config.admin_token, "admin_token of " + config_file};
  Result<AdminToken> kept = token_kept_for(config.store);
  if (!kept || !kept->from.empty()) return kept;
  return invalid(
      fmt::format("{} sets no admin_token, and there is no {}: has the gateway been started, as this user and in this "
                  "folder?",
                  config_file, admin_token_file(config.store)));
}

// `named`: a store that the command was given; may be empty.
Result<AdminToken> token_by_default(const std::string& named) {
  const char* const given = std::getenv("ONCEKEY_ADMIN_TOKEN");
  if (given != nullptr && *given != '\0') return AdminToken{given, "ONCEKEY_ADMIN_TOKEN"};
  // Where `oncekey serve` keeps it: in its store's folder, or in the user's state folder for a store elsewhere.
  for (const std::string& store : {named.empty() ? Config{}.store : named, Config{}.store, std::string("memory:")}) {
    Result<AdminToken> kept = token_kept_for(store);
    if (!kept || !kept->from.empty()) return kept;
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

// What the configuration file says about the admin listener; the defaults without a file.
Result<Config> admin_settings(const std::string& config_file) {
  if (config_file.empty()) return Config{};
  return load_admin_settings(config_file);
}

Result<Url> admin_url(const std::string& given, const Config& settings) {
  const std::string where = !given.empty() ? given : host_and_port(settings.admin.host, settings.admin.port);
  return url_of(where, !settings.admin_tls_cert.empty());
}

} // namespace

Result<AdminClient> anonymous_admin_client(const std::string& admin, const std::string& ca_file,
                                           const std::string& config_file) {
  const Result<Config> settings = admin_settings(config_file);
  if (!settings) return settings.fault();
  Result<Url> url = admin_url(admin, *settings);
  if (!url) return std::move(url).fault();
  return AdminClient(*std::move(url), AdminToken{}, !ca_file.empty() ? ca_file : settings->admin_tls_cert);
}

Status AdminClient::identify() const {
  if (identified_) return ok_status();
  const Result<AdminAnswer> answer = send("GET", "/livez", "", SendToken::no);
  if (!answer) return answer.fault();
  json::error_code error;
  const json::value parsed = json::parse(answer->body, error);
  if (answer->status == 503 && (error || member(parsed, "listener").is_null())) {
    return unavailable(
        fmt::format("{} answers 503: it has as many connections as it takes. Try again in a moment", url_.authority));
  }
  if (error || member(parsed, "listener") != "oncekey-admin") {
    return invalid(fmt::format(
        "{} is not an Oncekey admin listener, so the admin token was not sent there. Give its admin address "
        "with --admin HOST:PORT; `oncekey serve` logs it (event=listening admin=...)",
        url_.authority));
  }
  identified_ = true;
  return ok_status();
}

Result<AdminAnswer> AdminClient::send(std::string_view method, std::string_view target, std::string_view json,
                                      SendToken send_token) const {
  if (send_token == SendToken::yes) {
    if (const Status known = identify(); !known) return known.fault();
  }
  // A new connection for each call: a gateway that has been restarted since has closed the last one.
  const auto fetcher = Fetcher::open(ca_file_, {kLargestAnswer, AnswerLimit::Longer::fails});
  if (!fetcher) return fetcher.fault();
  FetchRequest request{std::string(method), url_, {}, json};
  request.url.target = target;
  request.headers.add("User-Agent", "oncekey-keys");
  if (send_token == SendToken::yes && !token_.text.empty())
    request.headers.add("Authorization", fmt::format("Bearer {}", token_.text));
  if (method == "POST") request.headers.add("Content-Type", "application/json");
  Fetched fetched = (*fetcher)->fetch(request, std::chrono::steady_clock::now() + kPatience);
  if (const auto* failure = std::get_if<FetchFailure>(&fetched)) {
    return unavailable(
        fmt::format("cannot reach the gateway's admin listener at {}: {}", url_.authority, failure->reason));
  }
  auto& answer = std::get<FetchedAnswer>(fetched);
  return AdminAnswer{answer.status, std::move(answer.body), token_.from};
}

AdminCommand::AdminCommand(CLI::App& app, const std::string& name, const std::string& description)
    : Subcommand(app, name, description) {
  command_->fallthrough();
  command_->add_option("--admin", admin_,
                       fmt::format("HOST:PORT of the gateway's admin listener, or its http:// or https:// URL "
                                   "(default: that of --config, or {})",
                                   kUsualAddress));
  command_->add_option("--admin-ca", admin_ca_, "PEM certificates to trust for https (default: the system's)");
  command_->add_option("--config", config_, "the gateway's configuration file: where it listens and keeps its token");
  command_->add_option("--token-file", token_file_,
                       "file with the admin token (else --config, else ONCEKEY_ADMIN_TOKEN)");
  command_->add_flag("--json", as_json_, "print the gateway's JSON instead of a table");
}

CLI::App* AdminCommand::acting(CLI::App* subcommand) {
  subcommand->add_option("--reason", reason_, "why; goes into the audit line")->required();
  subcommand->add_flag("--yes", yes_, "do not ask");
  return subcommand;
}

Result<Config> AdminCommand::settings() const {
  if (config_.empty()) return Config{};
  return load_admin_settings(config_);
}

Result<AdminClient> AdminCommand::client(const std::string& store) const {
  Result<Config> loaded = admin_settings(config_);
  if (!loaded) return std::move(loaded).fault();
  const Config settings = *std::move(loaded);
  Result<Url> url = admin_url(admin_, settings);
  if (!url) return std::move(url).fault();
  Result<AdminToken> token = !token_file_.empty() ? token_in_file(token_file_)
                             : !config_.empty()   ? token_of_config(settings, config_)
                                                  : token_by_default(store);
  if (!token) return std::move(token).fault();
  // The certificate in the gateway's configuration is trusted: that is enough for a self-signed one.
  return AdminClient(*std::move(url), *std::move(token), !admin_ca_.empty() ? admin_ca_ : settings.admin_tls_cert);
}

Status AdminCommand::check_id(const std::string& id) const {
  if (id.size() >= kShortestPrefix && id.size() <= kWholeId &&
      id.find_first_not_of("0123456789abcdef") == std::string::npos)
    return ok_status();
  return invalid(
      fmt::format("\"{}\" is not an id: give 8 to 64 of its hexadecimal digits, as `oncekey {} list` shows them", id,
                  command_->get_name()));
}

Status AdminCommand::check_reason() const {
  if (reason_.find_first_not_of(" \t") == std::string::npos) return invalid("--reason must not be empty");
  return ok_status();
}

Status AdminCommand::check_confirmable(const Console& console) const {
  if (yes_ || console.confirm != nullptr) return ok_status();
  return invalid(fmt::format("not a terminal: add --yes to confirm {}", action()));
}

std::optional<std::string> AdminCommand::body_of(const Result<AdminAnswer>& answer, const Console& console,
                                                 int& exit_code) const {
  if (!answer) {
    exit_code = complain(console, answer.fault().message, kUnreachable);
    if (answer.fault().kind != FaultKind::invalid)
      console.err << "Is the gateway running? Say where its admin listener is with --admin HOST:PORT.\n";
    return std::nullopt;
  }
  // Another server may have answered anything; only UTF-8 is printed.
  if (answer->status == 200 || answer->status == 202) return as_utf8(answer->body);
  exit_code = complain(console, view_of_error(answer->body), kRefused);
  if (answer->status == 401) {
    console.err
        << (answer->token_from.empty() ? "No admin token was found"
                                       : "This gateway does not know the token of " + answer->token_from)
        << ": set ONCEKEY_ADMIN_TOKEN, or give --token-file FILE or the gateway's --config FILE. A gateway that "
           "made its token itself logs the file at its start (event=admin_token).\n";
  }
  return std::nullopt;
}

std::optional<json::value> AdminCommand::parsed(const Result<AdminAnswer>& answer, const Console& console,
                                                int& exit_code) const {
  const auto body = body_of(answer, console, exit_code);
  if (!body) return std::nullopt;
  json::error_code error;
  json::value value = json::parse(*body, error);
  if (!error) return value;
  exit_code = complain(console, "what answered is not an Oncekey admin listener: its answer is not JSON", kUnreachable);
  return std::nullopt;
}

int AdminCommand::print(const Result<AdminAnswer>& answer, const View& view, const Console& console) const {
  int exit_code = kDone;
  if (as_json_) {
    if (const auto body = body_of(answer, console, exit_code))
      console.out << *body << (body->ends_with('\n') ? "" : "\n");
  } else if (const auto value = parsed(answer, console, exit_code)) {
    console.out << view(*value);
  }
  return exit_code;
}

int AdminCommand::act_on(std::string id, const Act& act, const View& view, const Console& console) const {
  int exit_code = kDone;
  if (!yes_) {
    const auto shown = parsed(act.show(id), console, exit_code);
    if (!shown) return exit_code;
    const json::value& whole = member(*shown, "id");
    if (!whole.is_string()) {
      console.out << view(*shown);
      return kDone;
    }
    console.err << view(*shown) << "\n";
    if (!console.confirm(act.question)) {
      console.err << "nothing was changed\n";
      return kRefused;
    }
    id = whole.as_string().c_str();
  }
  if (as_json_) return print(act.act(id), view, console);
  if (body_of(act.act(id), console, exit_code)) console.out << act.done << "\n";
  return exit_code;
}

Result<std::string> read_small_file(const std::string& path) {
  auto content = read_file_if_there(path, kLargestBody);
  if (!content && content.fault().kind == FaultKind::invalid) return std::move(content).fault();
  if (!content || !*content) return invalid(fmt::format("cannot read {}", path));
  return **std::move(content);
}

} // namespace oncekey
