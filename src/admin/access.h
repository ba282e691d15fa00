// Access: who may talk to the admin listener, and as what.
//
// A person or program proves itself with the operators' or the readers' token, with a client certificate, or with a
// session of the console that was made with one of these. Other users of the machine are not operators: loopback counts
// for nothing. Wrong tokens and wrong login codes are answered slowly (token_guesses.h) and logged.
//
// Browsers send cookies and certificates by themselves, also for pages of other sites. Therefore:
//   - The Host that a request names must be this listener's. An attacker's DNS may have pointed another name here.
//   - An Origin, or Sec-Fetch-Site, that says the page is another site's is refused.
//   - With a session, a request that is no GET must also repeat the session's CSRF token in X-Oncekey-CSRF.
//   - Requests that change something must be JSON, which no form of another site can send.
//
// Belongs to the loop of the operators.
#pragma once

#include "admin/audit_trail.h"
#include "admin/page_answer.h"
#include "admin/sessions.h"
#include "admin/token_guesses.h"
#include "gateway/shared.h"
#include "http/exchange.h"
#include "net/loop.h"

#include <boost/json/object.hpp>

namespace oncekey {

inline bool is_reading(const RequestHead& head) { return head.method == "GET" || head.method == "HEAD"; }

// Someone who has proved to be a reader or an operator.
struct Visitor {
  enum class Means { token, certificate, session };
  Login login;
  Means means = Means::token;
  // Of a session: its cookie's value, its name, what must be repeated, and when it ends at the latest.
  std::string secret{};
  std::string session{};
  std::string csrf{};
  std::chrono::milliseconds left{};

  bool may_act() const { return login.role == AdminRole::operate; }
  // For the audit trail: "token operator", "session 3f2a91c0 (certificate CN=alice)".
  std::string name() const;
};

class Access {
 public:
  Access(GatewayShared& shared, Loop& timers, AuditTrail& audit, std::string version);

  // The refusal of a request that names a foreign host.
  std::optional<PageAnswer> refuse_foreign_host(const Exchange& exchange) const;
  // The same, and of one that comes from a page of another site. The console's page itself may be linked to from there.
  std::optional<PageAnswer> refuse_foreigners(const Exchange& exchange) const;

  // One of the two is there.
  struct Entry {
    std::optional<Visitor> visitor{};
    PageAnswer refusal{};
  };
  // Waits before it refuses a wrong token.
  Task<Entry> let_in(Exchange& exchange);
  // No token, cookie or certificate came along.
  bool is_anonymous(const Exchange& exchange) const;

  // The refusal of a request that a page of another site may have forged.
  static std::optional<PageAnswer> refuse_forgeries(const Exchange& exchange, const Visitor& visitor);

  // {"token": ...}, {"code": ...}, or {} with a certificate: a new session.
  Task<PageAnswer> log_in(Exchange& exchange, const boost::json::object& given);
  PageAnswer log_out(const Exchange& exchange, const Visitor& visitor);
  // Who one is.
  PageAnswer show(const Visitor& visitor) const;
  // A code for one login in a browser, as what the visitor is or less.
  PageAnswer make_code(const Visitor& visitor, std::string_view role);
  void used(const Visitor& visitor) { sessions_.touch(visitor.secret, std::chrono::steady_clock::now()); }

 private:
  std::optional<Login> login_of_token(std::string_view token) const;
  std::optional<Login> login_of_certificate(const Exchange& exchange) const;
  // What it was proved with still counts: a reload may have changed the tokens and the names.
  bool still_valid(const Login& login) const;
  Visitor visitor_of(std::string_view secret, const OperatorSessions::Session& session) const;
  Task<PageAnswer> refuse_wrong(Exchange& exchange, std::string message);
  Task<void> wait(std::chrono::milliseconds delay);
  void note_wrong_token(std::string_view peer);
  void log_wrong_tokens();

  GatewayShared& shared_;
  Loop& loop_;
  AuditTrail& audit_;
  const std::string version_;
  OperatorSessions sessions_;
  LoginCodes codes_;
  TokenGuesses guesses_;
  // Wrong tokens since the last line about them, of which there is at most one a second.
  std::uint64_t wrong_tokens_ = 0;
  std::string wrong_from_;
  bool said_lately_ = false;
  Timer say_again_;
};

} // namespace oncekey
