#include "core/json_members.h"

#include "core/json_scan.h"

#include <unordered_set>

namespace oncekey {
namespace {

class MemberCollector {
 public:
  void object_begins() {
    value(JsonMember::Kind::other, {});
    frames_.push_back({true, {}});
  }
  void array_begins() {
    value(JsonMember::Kind::list, {});
    frames_.push_back({false, {}});
  }
  void object_ends() { frames_.pop_back(); }
  void array_ends() { frames_.pop_back(); }
  void name(std::string_view decoded) {
    if (!frames_.back().names.emplace(decoded).second) repeated_ = true;
    if (frames_.size() == 1) current_ = &members_[std::string(decoded)];
  }
  void string(std::string_view text) { value(JsonMember::Kind::string, text); }
  void number(std::string_view text) { value(JsonMember::Kind::number, text); }
  void literal(std::string_view) { value(JsonMember::Kind::other, {}); }

  bool repeated() const { return repeated_; }
  JsonMembers take() { return std::move(members_); }

 private:
  struct Frame {
    bool object;
    std::unordered_set<std::string> names;
  };

  void value(JsonMember::Kind kind, std::string_view text) {
    if (frames_.empty()) return;
    if (frames_.size() == 1) {
      current_->kind = kind;
      current_->text = text;
    } else if (frames_.size() == 2 && !frames_.back().object && current_->kind == JsonMember::Kind::list) {
      // One item of another kind, and it is no list of strings.
      if (kind == JsonMember::Kind::string) {
        current_->texts.emplace_back(text);
      } else {
        current_->kind = JsonMember::Kind::other;
      }
    }
  }

  JsonMembers members_;
  JsonMember* current_ = nullptr;
  std::vector<Frame> frames_;
  bool repeated_ = false;
};

} // namespace

std::optional<JsonMembers> read_members(std::string_view json) {
  const std::size_t begin = json.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || json[begin] != '{') return std::nullopt;
  MemberCollector collector;
  if (!scan_json(json, collector) || collector.repeated()) return std::nullopt;
  return collector.take();
}

} // namespace oncekey
