// Headers: the fields of one HTTP message, in order, with their case.
//
// All fields live in one string, as the lines that go on the wire ("Name: value\r\n"), beside an index into it. Parsing
// a message, storing a response and replaying it therefore copy one block of bytes and allocate once or twice, whatever
// the number of fields. Names compare without regard to ASCII case.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

struct Field {
  std::string_view name;
  std::string_view value;
};

class Headers {
 public:
  // Appends a field. The caller vouches that name and value hold no line breaks: what came off the wire was checked by
  // the parser, what we make ourselves is made of literals and checked values.
  void add(std::string_view name, std::string_view value);

  // Rebuilds from lines() of an earlier object. Nothing if the text is not a sequence of "Name: value\r\n" lines.
  static std::optional<Headers> from_lines(std::string lines);

  std::size_t size() const { return spans_.size(); }
  bool empty() const { return spans_.empty(); }
  // The views stay valid until the next change to this object.
  Field operator[](std::size_t index) const {
    const Span& span = spans_[index];
    return {{bytes_.data() + span.name_at, span.name_length}, {bytes_.data() + span.value_at, span.value_length}};
  }

  // The value of the first field of that name.
  std::optional<std::string_view> get(std::string_view name) const;
  std::size_t count(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }

  // The wire form of all fields, without the empty line that ends a header section.
  const std::string& lines() const { return bytes_; }
  void clear();
  void reserve(std::size_t bytes, std::size_t fields);

 private:
  struct Span {
    std::uint32_t name_at, name_length, value_at, value_length;
  };
  std::string bytes_;
  std::vector<Span> spans_;
};

// ASCII comparison without regard to case: the only kind HTTP needs. Most names differ in length, which is seen here.
bool equal_length_ignoring_case(const char* a, const char* b, std::size_t length);
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && equal_length_ignoring_case(a.data(), b.data(), a.size());
}
bool starts_with_ignoring_case(std::string_view text, std::string_view prefix);

// Calls `visit(item)` for every comma-separated item of a list-valued field, trimmed, empty items left out.
template <class Visit>
void for_each_list_item(std::string_view list, Visit visit) {
  while (!list.empty()) {
    const std::size_t comma = list.find(',');
    std::string_view item = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view{} : list.substr(comma + 1);
    while (!item.empty() && (item.front() == ' ' || item.front() == '\t')) item.remove_prefix(1);
    while (!item.empty() && (item.back() == ' ' || item.back() == '\t')) item.remove_suffix(1);
    if (!item.empty()) visit(item);
  }
}

} // namespace oncekey
