#include "admin/access.h"

#include "admin/record_json.h"
#include "base/ascii.h"
#include "base/certificate.h"
#include "base/crypto.h"
#include "http/door.h"
#include "net/socket_address.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

namespace json = boost::json;

constexpr std::chrono::seconds kWrongTokensSaidEvery{1};
constexpr std::string_view kCsrfHeader = "X-Oncekey-CSRF";
constexpr std::string_view kBearer = "Bearer ";

std::string_view host_of(const Headers& headers) { return headers.get("Host").value_or("localhost"); }

// Without the port and the brackets of an IPv6 address, in lower case.
std::string host_name(std::string_view host) {
  if (host.starts_with('[')) return lower_case(host.substr(1, host.find(']') - 1));
  return lower_case(host.substr(0, host.find(':')));
}

// Browsers send a cookie to every port of its host: the port in the name keeps the gateways of one machine apart.
std::string cookie_name(const Exchange& exchange) {
  const std::string_view host = host_of(exchange.request().headers);
  const std::size_t bracket = host.find(']');
  const std::size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  std::string name = exchange.secure() ? "__Host-oncekey_session" : "oncekey_session";
  const std::string_view port = colon == std::string_view::npos ? std::string_view{} : host.substr(colon + 1);
  if (!port.empty() && consists_of(port, "0123456789")) name.append("_").append(port);
  return name;
}

// Empty without the cookie, and if it came twice: another site may have set one of them.
std::string session_secret(const Exchange& exchange) {
  const std::string name = cookie_name(exchange);
  std::string found;
  const Headers& headers = exchange.request().headers;
  for (std::size_t i = 0; i < headers.size(); ++i) {
    if (!equal_ignoring_case(headers[i].name, "Cookie")) continue;
    std::string_view rest = headers[i].value;
    while (!rest.empty()) {
      const std::size_t end = rest.find(';');
      std::string_view pair = rest.substr(0, end);
      rest = end == std::string_view::npos ? std::string_view{} : rest.substr(end + 1);
      while (pair.starts_with(' ')) pair.remove_prefix(1);
      const std::size_t equals = pair.find('=');
      if (equals == std::string_view::npos || pair.substr(0, equals) != name) continue;
      if (!found.empty()) return {};
      found = pair.substr(equals + 1);
    }
  }
  return found;
}

std::string cookie_line(const Exchange& exchange, std::string_view secret) {
  return fmt::format("{}={}; Path=/; HttpOnly; SameSite=Strict{}{}", cookie_name(exchange), secret,
                     exchange.secure() ? "; Secure" : "", secret.empty() ? "; Max-Age=0" : "");
}

// The scheme is not compared: a port speaks one, and a proxy in front may speak TLS for this listener.
bool is_own_origin(std::string_view origin, std::string_view host) {
  for (const std::string_view scheme : {"https://", "http://"}) {
    if (origin.starts_with(scheme)) return equal_ignoring_case(origin.substr(scheme.size()), host);
  }
  return false;
}

} // namespace

std::string Visitor::name() const {
  return means == Means::session ? fmt::format("session {} ({})", session, login.name()) : login.name();
}

Access::Access(GatewayShared& shared, Loop& timers, AuditTrail& audit, std::string version)
    : shared_(shared), loop_(timers), audit_(audit), version_(std::move(version)), say_again_(timers, [this] {
        log_wrong_tokens();
      }) {}

std::optional<PageAnswer> Access::refuse_foreign_host(const Exchange& exchange) const {
  const Headers& headers = exchange.request().headers;
  const Config& config = shared_.config();
  const std::string name = host_name(host_of(headers));
  const auto& listed = config.admin_hosts;
  const bool is_listed = std::find(listed.begin(), listed.end(), name) != listed.end();
  if (!is_listed && !names_this_machine(headers)) {
    if (is_loopback(config.admin))
      return refused(
          403,
          "this listener answers to loopback host names only: use 127.0.0.1 or localhost, or add the name to "
          "admin_hosts",
          "foreign_host");
    // An address cannot be rebound by DNS.
    if (!listed.empty() && !parse_ip(name))
      return refused(403, "this host name is not among admin_hosts of the gateway's configuration", "foreign_host");
  }
  return std::nullopt;
}

std::optional<PageAnswer> Access::refuse_foreigners(const Exchange& exchange) const {
  if (auto refusal = refuse_foreign_host(exchange)) return refusal;
  const Headers& headers = exchange.request().headers;
  const std::string_view site = headers.get("Sec-Fetch-Site").value_or("none");
  const std::optional<std::string_view> origin = headers.get("Origin");
  const bool own = !origin || is_own_origin(*origin, host_of(headers));
  if (own && (site == "none" || site == "same-origin")) return std::nullopt;
  return refused(403, "the request comes from a page of another site: open the console on this listener itself",
                 "foreign_origin");
}

bool Access::is_anonymous(const Exchange& exchange) const {
  return !exchange.request().headers.has("Authorization") && session_secret(exchange).empty() &&
         exchange.certificate() == nullptr;
}

Task<Access::Entry> Access::let_in(Exchange& exchange) {
  const Headers& headers = exchange.request().headers;
  if (headers.count("Authorization") > 1) co_return Entry{{}, refused(400, kTwoCredentials)};
  if (const auto given = headers.get("Authorization")) {
    std::optional<Login> login;
    if (starts_with_ignoring_case(*given, kBearer)) login = login_of_token(given->substr(kBearer.size()));
    if (login) co_return Entry{Visitor{*std::move(login), Visitor::Means::token}};
    // Awaited apart: gcc 12 destroys what a braced list is made of twice.
    PageAnswer refusal = co_await refuse_wrong(exchange, token_wanted("admin"));
    co_return Entry{{}, std::move(refusal)};
  }
  const std::string secret = session_secret(exchange);
  if (!secret.empty()) {
    const OperatorSessions::Session* const session = sessions_.find(secret, std::chrono::steady_clock::now());
    if (session != nullptr && still_valid(session->login)) co_return Entry{visitor_of(secret, *session)};
    if (session != nullptr) sessions_.end(secret);
  }
  if (auto login = login_of_certificate(exchange))
    co_return Entry{Visitor{*std::move(login), Visitor::Means::certificate}};
  if (!secret.empty()) {
    PageAnswer over = refused(401, "the session is over: log in again", "wrong_credential");
    over.headers.add("Set-Cookie", cookie_line(exchange, ""));
    co_return Entry{{}, std::move(over)};
  }
  co_return Entry{{}, refused(401, token_wanted("admin"))};
}

std::optional<PageAnswer> Access::refuse_forgeries(const Exchange& exchange, const Visitor& visitor) {
  const RequestHead& head = exchange.request();
  if (is_reading(head) || visitor.means != Visitor::Means::session) return std::nullopt;
  // refuse_foreigners() has compared it.
  if (!head.headers.has("Origin"))
    return refused(403, "with a session, send the Origin of the console's page, as browsers do", "foreign_origin");
  if (equal_in_constant_time(head.headers.get(kCsrfHeader).value_or(""), visitor.csrf)) return std::nullopt;
  return refused(
      403, fmt::format("send {} with the csrf of GET /api/session, as the console does: reload the page", kCsrfHeader),
      "csrf");
}

Task<PageAnswer> Access::log_in(Exchange& exchange, const json::object& given) {
  const MonotonicTime now = std::chrono::steady_clock::now();
  const std::string_view token = text_member(given, "token");
  const std::string_view code = text_member(given, "code");
  std::optional<Login> login;
  if (!code.empty()) {
    login = codes_.take(code, now);
    if (login && !still_valid(*login)) login.reset();
    if (!login)
      co_return co_await refuse_wrong(
          exchange, "this login code was used already, or is older than a minute: run `oncekey console` again");
  } else if (!token.empty()) {
    login = login_of_token(token);
    if (!login) co_return co_await refuse_wrong(exchange, "this gateway does not know the token");
  } else {
    login = login_of_certificate(exchange);
    if (!login) co_return refused(401, "log in with a token, a client certificate, or the link of `oncekey console`");
  }
  const std::string secret = sessions_.begin(*std::move(login), now);
  const Visitor visitor = visitor_of(secret, *sessions_.find(secret, now));
  const std::string_view with = !code.empty() ? "code" : !token.empty() ? "token" : "certificate";
  audit_.note({wall_clock(), visitor.name(), "login", "",
               fmt::format("as {}, with a {}", to_string(visitor.login.role), with), "", std::string(exchange.peer())});
  PageAnswer answer = show(visitor);
  answer.headers.add("Set-Cookie", cookie_line(exchange, secret));
  co_return answer;
}

PageAnswer Access::log_out(const Exchange& exchange, const Visitor& visitor) {
  sessions_.end(visitor.secret);
  audit_.note({wall_clock(), visitor.name(), "logout", "", "done", "", std::string(exchange.peer())});
  PageAnswer answer = json_answer({{"result", "done"}});
  answer.headers.add("Set-Cookie", cookie_line(exchange, ""));
  return answer;
}

PageAnswer Access::show(const Visitor& visitor) const {
  const bool session = visitor.means == Visitor::Means::session;
  const bool certificate = visitor.login.proof == Login::Proof::certificate;
  return json_answer({
      {"role", json_text(to_string(visitor.login.role))},
      {"name", visitor.name()},
      {"by", session       ? "session"
             : certificate ? "certificate"
                           : "token"},
      {"certificate", certificate ? json::value(visitor.login.basis) : json::value()},
      {"csrf", session ? json::value(visitor.csrf) : json::value()},
      {"idle_seconds", std::chrono::seconds(OperatorSessions::kIdle).count()},
      {"expires_at", session ? json::value(iso_time(wall_clock() + visitor.left)) : json::value()},
      {"gateway", shared_.name},
      {"version", version_},
  });
}

PageAnswer Access::make_code(const Visitor& visitor, std::string_view role) {
  if (!role.empty() && role != "read" && role != "operator") return refused(400, "role is read or operator");
  if (role == "operator" && !visitor.may_act())
    return refused(403, "the read-only role cannot log an operator in: use the operators' token", "operators_only");
  Login login = visitor.login;
  if (role == "read") login.role = AdminRole::read;
  const std::string code = codes_.make(login, std::chrono::steady_clock::now());
  return json_answer(
      {{"code", code}, {"expires_in_seconds", LoginCodes::kValid.count()}, {"role", json_text(to_string(login.role))}});
}

std::optional<Login> Access::login_of_token(std::string_view token) const {
  const Config& config = shared_.config();
  const auto is = [&](const std::string& right) { return !right.empty() && equal_in_constant_time(token, right); };
  if (is(config.admin_token)) return Login{AdminRole::operate, Login::Proof::token, std::string(token)};
  if (is(config.admin_read_token)) return Login{AdminRole::read, Login::Proof::token, std::string(token)};
  return std::nullopt;
}

std::optional<Login> Access::login_of_certificate(const Exchange& exchange) const {
  const CertificateName* const certificate = exchange.certificate();
  if (certificate == nullptr) return std::nullopt;
  const std::string name = name_text(*certificate);
  const auto& operators = shared_.config().admin_operators;
  // A URI has a colon and a subject an equals sign: a name of one kind does not pass for one of another.
  const bool is_uri = name.find(':') != std::string::npos;
  const bool is_subject = !is_uri && name.find('=') != std::string::npos;
  const CertificateName::Kind kind = is_uri       ? CertificateName::Kind::uri
                                     : is_subject ? CertificateName::Kind::subject
                                                  : CertificateName::Kind::dns;
  const bool is_operator =
      kind == certificate->kind && std::find(operators.begin(), operators.end(), name) != operators.end();
  return Login{is_operator ? AdminRole::operate : AdminRole::read, Login::Proof::certificate, name};
}

bool Access::still_valid(const Login& login) const {
  const Config& config = shared_.config();
  if (login.proof == Login::Proof::token) {
    const std::optional<Login> now = login_of_token(login.basis);
    return now && now->role >= login.role;
  }
  const auto& operators = config.admin_operators;
  return login.role == AdminRole::read || std::find(operators.begin(), operators.end(), login.basis) != operators.end();
}

Visitor Access::visitor_of(std::string_view secret, const OperatorSessions::Session& session) const {
  const auto left = session.began + OperatorSessions::kLongest - std::chrono::steady_clock::now();
  return {session.login,       Visitor::Means::session,
          std::string(secret), session.name,
          session.csrf,        std::chrono::duration_cast<std::chrono::milliseconds>(left)};
}

Task<PageAnswer> Access::refuse_wrong(Exchange& exchange, std::string message) {
  note_wrong_token(exchange.peer());
  co_await wait(guesses_.wrong(exchange.peer(), std::chrono::steady_clock::now()));
  // A client that guesses tokens must not delay the end of the process, neither by its penalty nor by not reading.
  if (shared_.draining.load()) exchange.abort();
  co_return refused(401, message, "wrong_credential");
}

Task<void> Access::wait(std::chrono::milliseconds delay) {
  // Waits in short pieces, to notice when the process is shutting down.
  const MonotonicTime due = std::chrono::steady_clock::now() + delay;
  for (MonotonicTime now = std::chrono::steady_clock::now(); now < due && !shared_.draining.load();
       now = std::chrono::steady_clock::now()) {
    co_await sleep_until(loop_, std::min<MonotonicTime>(due, now + kTimerTick));
  }
}

void Access::note_wrong_token(std::string_view peer) {
  ++wrong_tokens_;
  wrong_from_ = peer;
  if (!said_lately_) log_wrong_tokens();
}

void Access::log_wrong_tokens() {
  said_lately_ = wrong_tokens_ > 0;
  if (!said_lately_) return;
  shared_.log.warning("admin_token_refused", {{"count", wrong_tokens_}, {"last_peer", wrong_from_}});
  wrong_tokens_ = 0;
  say_again_.after(kWrongTokensSaidEvery);
}

} // namespace oncekey
