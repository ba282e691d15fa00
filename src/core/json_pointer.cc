#include "core/json_pointer.h"

#include "core/json_scan.h"

#include <charconv>

namespace oncekey {
namespace {

class Finder {
 public:
  explicit Finder(std::string_view pointer) : pointer_(pointer) {}

  void object_begins() {
    arrive(JsonPlace::Kind::other, {});
    path_.enter_object();
  }
  void array_begins() {
    arrive(JsonPlace::Kind::other, {});
    path_.enter_array();
  }
  void object_ends() { path_.leave(); }
  void array_ends() { path_.leave(); }
  void name(std::string_view decoded) { path_.name(decoded); }
  void string(std::string_view text) { arrive(JsonPlace::Kind::string, text); }
  void number(std::string_view text) { arrive(JsonPlace::Kind::number, text); }
  void literal(std::string_view) { arrive(JsonPlace::Kind::other, {}); }

  JsonPlace take() {
    if (doubled_ && place_.kind != JsonPlace::Kind::absent) place_.kind = JsonPlace::Kind::ambiguous;
    return std::move(place_);
  }

 private:
  void arrive(JsonPlace::Kind kind, std::string_view text) {
    path_.value_begins();
    const std::string& here = path_.pointer();
    if (here == pointer_) {
      if (place_.kind == JsonPlace::Kind::absent) {
        place_.kind = kind;
        place_.text = text;
      } else {
        place_.kind = JsonPlace::Kind::ambiguous;
      }
    } else if (is_on_the_way(here)) {
      // A second container on the way hides or is hidden by the first, whichever of them holds the value.
      if (here.size() <= furthest_) doubled_ = true;
      furthest_ = here.size();
    }
  }

  bool is_on_the_way(const std::string& here) const {
    return !here.empty() && pointer_.size() > here.size() && pointer_.starts_with(here) && pointer_[here.size()] == '/';
  }

  std::string_view pointer_;
  JsonPath path_;
  JsonPlace place_;
  std::size_t furthest_ = 0; // length of the longest pointer met on the way
  bool doubled_ = false;
};

} // namespace

void JsonPath::value_begins() {
  if (frames_.empty() || frames_.back().next_index == kObject) return;
  char digits[20];
  const auto end = std::to_chars(digits, digits + sizeof digits, frames_.back().next_index++).ptr;
  name({digits, static_cast<std::size_t>(end - digits)});
}

void JsonPath::leave() {
  pointer_.resize(frames_.back().pointer_length);
  frames_.pop_back();
}

void JsonPath::name(std::string_view decoded) {
  pointer_.resize(frames_.back().pointer_length);
  pointer_.push_back('/');
  for (const char c : decoded) {
    if (c == '~') {
      pointer_ += "~0";
    } else if (c == '/') {
      pointer_ += "~1";
    } else {
      pointer_.push_back(c);
    }
  }
}

JsonPlace find_in_json(std::string_view json, std::string_view pointer) {
  Finder finder(pointer);
  if (!scan_json(json, finder)) return {JsonPlace::Kind::not_json, {}};
  return finder.take();
}

} // namespace oncekey
