// json_pointer: where in a JSON text we are, and what stands at a place (RFC 6901).
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// Follows the events of scan_json and spells the pointer of the value at hand. A place has exactly one spelling, so
// comparing pointers is comparing text.
class JsonPath {
 public:
  void value_begins(); // before every value, containers included
  void enter_object() { enter(kObject); }
  void enter_array() { enter(0); }
  void leave();                        // the pointer is the container's own again
  void name(std::string_view decoded); // of the member whose value comes next
  const std::string& pointer() const { return pointer_; }

 private:
  static constexpr std::size_t kObject = static_cast<std::size_t>(-1);
  struct Frame {
    std::size_t pointer_length; // of the container's own pointer
    std::size_t next_index;     // kObject for objects
  };
  void enter(std::size_t first_index) { frames_.push_back({pointer_.size(), first_index}); }

  std::string pointer_;
  std::vector<Frame> frames_;
};

struct JsonPlace {
  enum class Kind {
    not_json,  // the text is not JSON, or beyond the limits of json_scan.h
    absent,    // there is nothing at the pointer
    string,    // `text` is the decoded string
    number,    // `text` is the number as it was written
    other,     // an object, an array, true, false or null
    ambiguous, // a member name on the way occurs twice: readers would disagree on which one counts
  };
  Kind kind = Kind::absent;
  std::string text;
};
JsonPlace find_in_json(std::string_view json, std::string_view pointer);

} // namespace oncekey
