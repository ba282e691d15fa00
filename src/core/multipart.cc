// multipart/form-data bodies (RFC 7578), in a form that does not depend on the boundary.
#include "base/ascii.h"
#include "core/canonical_json.h"

#include <algorithm>
#include <cstdint>
#include <optional>

namespace oncekey {
namespace {

constexpr std::string_view kLineEnd = "\r\n";
// RFC 2046, 5.1.1.
constexpr std::size_t kBoundaryMax = 70;
constexpr std::string_view kBoundaryMarks = "'()+_,-./:=?";

// The value of the one parameter `boundary`. A quoted string may hold semicolons, which other readers split at: nothing
// then, as for whatever else has two meanings.
std::optional<std::string_view> boundary_of(const Headers& headers) {
  if (headers.count("Content-Type") != 1) return std::nullopt;
  std::string_view rest = *headers.get("Content-Type");
  std::optional<std::string_view> boundary;
  for (std::size_t semicolon = rest.find(';'); semicolon != std::string_view::npos; semicolon = rest.find(';')) {
    rest.remove_prefix(semicolon + 1);
    const std::string_view parameter = trimmed(rest.substr(0, rest.find(';')));
    const std::size_t equals = parameter.find('=');
    const std::string_view name = trimmed(parameter.substr(0, equals));
    if (!starts_with_ignoring_case(name, "boundary")) continue;
    // boundary*=, boundary*0= and a second one: RFC 2231 and lenient readers disagree on which counts.
    if (boundary || equals == std::string_view::npos || name.size() != std::string_view("boundary").size())
      return std::nullopt;
    boundary = parameter.substr(equals + 1);
  }
  if (!boundary) return std::nullopt;
  if (boundary->size() >= 2 && boundary->front() == '"' && boundary->back() == '"') {
    boundary = boundary->substr(1, boundary->size() - 2);
  }
  const bool good =
      !boundary->empty() && boundary->size() <= kBoundaryMax &&
      std::all_of(boundary->begin(), boundary->end(), [](char c) {
        return kAlphanumeric.find(c) != std::string_view::npos || kBoundaryMarks.find(c) != std::string_view::npos;
      });
  return good ? boundary : std::nullopt;
}

// Lines that end in CRLF and hold neither a CR nor an LF nor a NUL of their own.
bool is_head(std::string_view head) {
  while (!head.empty()) {
    const std::size_t end = head.find(kLineEnd);
    const std::string_view line = head.substr(0, end);
    if (line.find_first_of(std::string_view("\r\n\0", 3)) != std::string_view::npos) return false;
    head = end == std::string_view::npos ? std::string_view{} : head.substr(end + kLineEnd.size());
  }
  return true;
}

void append_counted(std::string& out, std::string_view bytes) {
  for (std::uint64_t size = bytes.size(), i = 0; i < 8; ++i, size >>= 8) out.push_back(static_cast<char>(size & 0xff));
  out.append(bytes);
}

bool append_part(std::string& out, std::string_view part) {
  static constexpr std::string_view kHeadEnd = "\r\n\r\n";
  const std::size_t end = part.find(kHeadEnd);
  if (end == std::string_view::npos || end == 0) return false;
  const std::string_view head = part.substr(0, end);
  if (!is_head(head) || !starts_with_ignoring_case(head, "Content-")) return false;
  append_counted(out, head);
  append_counted(out, part.substr(end + kHeadEnd.size()));
  return true;
}

} // namespace

bool canonical_multipart(const Headers& headers, std::string_view body, std::string& out) {
  const std::optional<std::string_view> boundary = boundary_of(headers);
  if (!boundary) return false;
  const std::string dashes = std::string("--").append(*boundary);
  if (!body.starts_with(dashes)) return false;
  out.reserve(body.size());
  std::string_view rest = body.substr(dashes.size());
  for (bool first = true;; first = false) {
    // `rest` begins behind a delimiter.
    if (rest.starts_with("--")) return !first && (rest.size() == 2 || rest.substr(2) == kLineEnd);
    if (!rest.starts_with(kLineEnd)) return false;
    rest.remove_prefix(kLineEnd.size());
    const std::size_t next = rest.find(dashes);
    if (next == std::string_view::npos || next < kLineEnd.size()) return false;
    std::string_view part = rest.substr(0, next);
    if (!part.ends_with(kLineEnd)) return false;
    part.remove_suffix(kLineEnd.size());
    if (!append_part(out, part)) return false;
    rest.remove_prefix(next + dashes.size());
  }
}

} // namespace oncekey
