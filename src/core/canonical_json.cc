#include "core/canonical_json.h"

#include "core/form.h"
#include "core/json_pointer.h"
#include "core/json_scan.h"

#include <algorithm>
#include <charconv>
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

} // namespace oncekey
