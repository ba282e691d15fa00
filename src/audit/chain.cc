#include "audit/chain.h"

#include "base/ascii.h"
#include "base/faults.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <vector>

namespace oncekey {
namespace {

constexpr std::string_view kNumber = "{\"n\":";
constexpr std::string_view kPrev = ",\"prev\":\"";
constexpr std::size_t kHashDigits = 64;
constexpr std::string_view kHeadsBegin = "oncekey audit ";
constexpr std::uint64_t kHeadsFormat = 1;

bool is_hash(std::string_view text) { return text.size() == kHashDigits && consists_of(text, "0123456789abcdef"); }

std::optional<std::uint64_t> number_at(std::string_view text, std::size_t& length) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{}) return std::nullopt;
  length = static_cast<std::size_t>(end - text.data());
  if (text.front() == '0' && length > 1) return std::nullopt;
  return number;
}

std::vector<std::string_view> split(std::string_view text, char at) {
  std::vector<std::string_view> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(at), text.size());
    parts.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

} // namespace

std::string chained_line(const ChainHead& before, std::string_view members) {
  return fmt::format("{}{}{}{}\",{}}}", kNumber, before.n + 1, kPrev, before.hash, members);
}

std::optional<ChainPlace> place_of(std::string_view line) {
  if (line.size() > kAuditLineMax || !line.starts_with(kNumber) || !line.ends_with('}')) return std::nullopt;
  line.remove_prefix(kNumber.size());
  std::size_t length = 0;
  const std::optional<std::uint64_t> n = number_at(line, length);
  if (!n) return std::nullopt;
  line.remove_prefix(length);
  if (!line.starts_with(kPrev) || !is_hash(line.substr(kPrev.size(), kHashDigits))) return std::nullopt;
  return ChainPlace{*n, line.substr(kPrev.size(), kHashDigits)};
}

std::string ChainHash::of(std::string_view line) const {
  const std::array<std::string_view, 1> pieces{line};
  return hex_encode(std::string_view(hmac_.of(pieces)));
}

void ChainHeads::keep(const std::string& chain, ChainHead head, std::string time) {
  of[chain] = {std::move(head), std::move(time)};
  if (of.size() <= kChainsMax) return;
  of.erase(std::min_element(of.begin(), of.end(),
                            [](const auto& a, const auto& b) { return a.second.time < b.second.time; }));
}

ChainHeads new_chain_heads() {
  Secret key{};
  fill_random(key);
  return {std::string(reinterpret_cast<const char*>(key.data()), key.size()), {}};
}

std::string encode(const ChainHeads& heads) {
  std::string text = fmt::format("{}{}\nkey {}\n", kHeadsBegin, kHeadsFormat, hex_encode(std::string_view(heads.key)));
  for (const auto& [chain, kept] : heads.of)
    text += fmt::format("head {} {} {} {}\n", chain, kept.head.n, kept.head.hash, kept.time);
  return text;
}

Result<ChainHeads> decode_chain_heads(std::string_view text) {
  const Fault bad = corrupt(
      "what the store keeps for the audit log is damaged: restore a backup of the store, or set audit_log = \"off\" to "
      "start without an audit log");
  const std::optional<std::uint64_t> format = format_number_in(text, kHeadsBegin);
  if (format && *format > kHeadsFormat)
    return newer_format("what the store keeps for the audit log", *format, kHeadsFormat);
  const std::vector<std::string_view> rows = split(text, '\n');
  if (format != kHeadsFormat || rows.size() < 2 || !rows[1].starts_with("key ")) return bad;
  ChainHeads heads;
  std::optional<std::string> key = hex_decode(rows[1].substr(4));
  if (!key || key->size() != sizeof(Secret)) return bad;
  heads.key = *std::move(key);
  for (std::size_t i = 2; i < rows.size(); ++i) {
    const std::vector<std::string_view> words = split(rows[i], ' ');
    std::size_t length = 0;
    if (words.size() != 5 || words[0] != "head" || words[2].empty() || !is_hash(words[3])) return bad;
    const std::optional<std::uint64_t> n = number_at(words[2], length);
    if (!n || length != words[2].size()) return bad;
    heads.of[std::string(words[1])] = {{*n, std::string(words[3])}, std::string(words[4])};
  }
  return heads;
}

} // namespace oncekey
