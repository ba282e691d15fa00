#include "admin/sessions.h"

#include "base/crypto.h"

#include <algorithm>
#include <array>

namespace oncekey {
namespace {

template <std::size_t kBytes>
std::string random_hex() {
  std::array<std::uint8_t, kBytes> bytes{};
  fill_random(bytes);
  return hex_encode(bytes);
}

// Looking it up takes no time that tells how much of a guess is right.
std::string hash_of(std::string_view secret) { return sha256_hex({secret}); }

// Makes room for one more: drops what is over, and the first by `since` if that is not enough.
template <class Map, class Over, class Since>
void make_room(Map& map, std::size_t most, Over over, Since since) {
  if (map.size() < most) return;
  std::erase_if(map, [&](const auto& entry) { return over(entry.second); });
  if (map.size() < most) return;
  map.erase(std::min_element(map.begin(), map.end(),
                             [&](const auto& a, const auto& b) { return since(a.second) < since(b.second); }));
}

} // namespace

std::string_view to_string(AdminRole role) { return role == AdminRole::operate ? "operator" : "read"; }

std::string Login::name() const {
  if (proof == Proof::certificate) return "certificate " + basis;
  return std::string("token ").append(to_string(role));
}

std::string OperatorSessions::begin(Login login, Moment now) {
  make_room(
      sessions_, kMost, [&](const Session& each) { return over(each, now); },
      [](const Session& each) { return each.used; });
  std::string secret = random_hex<32>();
  sessions_[hash_of(secret)] = {random_hex<4>(), random_hex<32>(), std::move(login), now, now};
  return secret;
}

const OperatorSessions::Session* OperatorSessions::find(std::string_view secret, Moment now) {
  const auto found = sessions_.find(hash_of(secret));
  if (found == sessions_.end()) return nullptr;
  if (!over(found->second, now)) return &found->second;
  sessions_.erase(found);
  return nullptr;
}

void OperatorSessions::touch(std::string_view secret, Moment now) {
  const auto found = sessions_.find(hash_of(secret));
  if (found != sessions_.end()) found->second.used = now;
}

void OperatorSessions::end(std::string_view secret) { sessions_.erase(hash_of(secret)); }

std::string LoginCodes::make(Login login, Moment now) {
  make_room(
      codes_, kMost, [&](const Code& each) { return now - each.made >= kValid; },
      [](const Code& each) { return each.made; });
  std::string code = random_hex<16>();
  codes_[hash_of(code)] = {std::move(login), now};
  return code;
}

std::optional<Login> LoginCodes::take(std::string_view code, Moment now) {
  const auto found = codes_.find(hash_of(code));
  if (found == codes_.end()) return std::nullopt;
  const Code taken = std::move(found->second);
  codes_.erase(found);
  if (now - taken.made >= kValid) return std::nullopt;
  return taken.login;
}

} // namespace oncekey
