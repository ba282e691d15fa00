// sessions: who is logged in at the console, and the login codes of `oncekey console`.
//
// Both are kept in memory alone: a restart ends every session and every code. A browser holds a session's secret in a
// cookie that no script can read; here only its hash is kept. A login remembers what it was proved with, so that it
// ends when that is no longer valid: after a reload with another token, say.
//
// Not safe to use from several threads: they belong to the loop of the operators.
#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

namespace oncekey {

// What a person may do on the admin listener.
enum class AdminRole {
  read,    // see everything but bodies
  operate, // act, and see bodies
};
// As the API spells it: "read" or "operator".
std::string_view to_string(AdminRole role);

// What a person has proved.
struct Login {
  enum class Proof { token, certificate };
  AdminRole role = AdminRole::read;
  Proof proof = Proof::token;
  std::string basis; // the token, or the name in the certificate
  // "token operator", or "certificate CN=alice"
  std::string name() const;
};

class OperatorSessions {
 public:
  using Moment = std::chrono::steady_clock::time_point;
  // Of the sessions beyond this, the one that was not used for longest ends.
  static constexpr std::size_t kMost = 64;
  // A person who was away for this long logs in again; and everybody once a working day.
  static constexpr std::chrono::minutes kIdle{30};
  static constexpr std::chrono::hours kLongest{12};

  struct Session {
    std::string name; // eight hex digits, for the audit trail
    std::string csrf; // what every request that changes something must repeat in a header
    Login login;
    Moment began{};
    Moment used{};
  };

  // The secret for the cookie: 64 hex digits.
  std::string begin(Login login, Moment now);
  // Nothing if there is none, or it is over. The pointer is good until the next call.
  const Session* find(std::string_view secret, Moment now);
  // It was used at this moment: it stays idle from then on.
  void touch(std::string_view secret, Moment now);
  void end(std::string_view secret);
  std::size_t size() const { return sessions_.size(); }

 private:
  static bool over(const Session& session, Moment now) {
    return now - session.used >= kIdle || now - session.began >= kLongest;
  }
  std::unordered_map<std::string, Session> sessions_; // by the hash of the secret
};

class LoginCodes {
 public:
  using Moment = OperatorSessions::Moment;
  // Long enough to copy a link into a browser.
  static constexpr std::chrono::seconds kValid{60};
  // Of the codes beyond this, the oldest is forgotten.
  static constexpr std::size_t kMost = 16;

  // A new code, 32 hex digits, for one login as this one.
  std::string make(Login login, Moment now);
  // The login of a code that was made less than kValid ago and never used.
  std::optional<Login> take(std::string_view code, Moment now);
  std::size_t size() const { return codes_.size(); }

 private:
  struct Code {
    Login login;
    Moment made{};
  };
  std::unordered_map<std::string, Code> codes_; // by the hash of the code
};

} // namespace oncekey
