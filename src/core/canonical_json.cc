#include "core/canonical_json.h"

#include "base/ascii.h"
#include "core/form.h"
#include "core/json_pointer.h"
#include "core/json_scan.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>
#include <vector>

namespace oncekey {
namespace {

void append_string(std::string& out, std::string_view text) {
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, text.size()).ptr;
  out.push_back('"');
  out.append(digits, end);
  out.push_back(':');
  out.append(text);
}

// Writes values to the output as they come. When an object ends its members stand there as they were sent; if that is
// not their order by name, the stretch is written again, sorted. A body that is sorted already is never copied.
class Canonicalizer {
 public:
  Canonicalizer(std::span<const std::string> ignore, std::string& out) : ignore_(ignore), out_(out) {}

  void object_begins() {
    begin_container('{', Kind::object);
    if (!ignore_.empty()) path_.enter_object();
  }

  void array_begins() {
    begin_container('[', Kind::array);
    if (!ignore_.empty()) path_.enter_array();
  }

  void object_ends() {
    sort_members(containers_.back().members_before);
    end_container('}');
  }

  void array_ends() { end_container(']'); }

  void name(std::string_view decoded) {
    if (!ignore_.empty()) path_.name(decoded);
    const std::size_t start = out_.size();
    append_string(out_, decoded);
    members_.push_back({start, out_.size() - decoded.size(), decoded.size(), 0});
  }

  void string(std::string_view text) {
    begin_value();
    append_string(out_, text);
    end_value();
  }

  void number(std::string_view text) {
    begin_value();
    out_.push_back('#');
    out_.append(text);
    out_.push_back(';');
    end_value();
  }

  void literal(std::string_view text) {
    begin_value();
    out_.push_back(text == "null" ? 'z' : text.front());
    end_value();
  }

 private:
  enum class Kind { object, array };
  struct Container {
    std::size_t start;          // of its own value in out_
    std::size_t members_before; // how many entries of members_ belong to containers around it
    bool ignored;
    Kind kind;
  };
  struct Member {
    std::size_t start; // of the name in out_, with what is around it
    std::size_t name_at;
    std::size_t name_length;
    std::size_t end; // behind the value
  };

  void begin_value() {
    value_start_ = out_.size();
    ignored_ = false;
    if (ignore_.empty()) return;
    path_.value_begins();
    ignored_ = std::find(ignore_.begin(), ignore_.end(), path_.pointer()) != ignore_.end();
  }

  void begin_container(char mark, Kind kind) {
    begin_value();
    out_.push_back(mark);
    containers_.push_back({value_start_, members_.size(), ignored_, kind});
  }

  void end_container(char mark) {
    out_.push_back(mark);
    value_start_ = containers_.back().start;
    ignored_ = containers_.back().ignored;
    if (!ignore_.empty()) path_.leave();
    containers_.pop_back();
    end_value();
  }

  void end_value() {
    const bool in_object = !containers_.empty() && containers_.back().kind == Kind::object;
    if (ignored_) {
      out_.resize(in_object ? members_.back().start : value_start_);
      if (in_object) members_.pop_back();
    } else if (in_object) {
      members_.back().end = out_.size();
    }
  }

  void sort_members(std::size_t first) {
    const auto begin = members_.begin() + static_cast<std::ptrdiff_t>(first);
    const auto by_name = [this](const Member& a, const Member& b) { return name_of(a) < name_of(b); };
    if (!std::is_sorted(begin, members_.end(), by_name)) {
      const std::size_t start = begin->start;
      std::stable_sort(begin, members_.end(), by_name);
      scratch_.clear();
      for (auto member = begin; member != members_.end(); ++member) {
        scratch_.append(out_, member->start, member->end - member->start);
      }
      out_.replace(start, scratch_.size(), scratch_);
    }
    members_.resize(first);
  }

  std::string_view name_of(const Member& member) const {
    return std::string_view(out_).substr(member.name_at, member.name_length);
  }

  std::span<const std::string> ignore_;
  std::string& out_;
  std::string scratch_;
  JsonPath path_; // followed only when something is to be ignored
  std::vector<Container> containers_;
  std::vector<Member> members_; // of all open objects, innermost last
  std::size_t value_start_ = 0;
  bool ignored_ = false;
};

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
  if (boundary->size() >= 2 && boundary->front() == '"' && boundary->back() == '"')
    boundary = boundary->substr(1, boundary->size() - 2);
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

bool canonical_json(std::string_view json, std::span<const std::string> ignore, std::string& out) {
  out.clear();
  out.reserve(json.size() + json.size() / 4);
  Canonicalizer canonicalizer(ignore, out);
  if (scan_json(json, canonicalizer)) return true;
  out.clear();
  return false;
}

bool canonical_form(std::string_view form, std::string& out) {
  out.clear();
  auto fields = parse_form(form);
  if (!fields) return false;
  // Where a name holds "[]", the order of fields decides which element they belong to: all of one list stay in order.
  const auto list_name = [](const FormField& field) {
    return std::string_view(field.name).substr(0, field.name.find("[]"));
  };
  std::stable_sort(fields->begin(), fields->end(),
                   [&](const FormField& a, const FormField& b) { return list_name(a) < list_name(b); });
  for (const FormField& field : *fields) {
    append_string(out, field.name);
    // Some frameworks read `a` as nothing and `a=` as the empty string.
    if (field.value) {
      append_string(out, *field.value);
    } else {
      out.push_back('z');
    }
  }
  return true;
}

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
