// Headers: the fields of one HTTP message, in the order they were added, with the case they were written in.
//
// All fields live in one string, as the lines that go on the wire ("Name: value\r\n"), beside an index into it. Parsing
// a message, storing an answer and replaying it therefore copy one block of bytes and allocate once or twice, whatever
// the number of fields.
//
// Names compare without regard to ASCII case. A name may occur several times (Set-Cookie does): get() finds the first,
// count() tells how many there are. Nothing is joined, folded or sorted: a replay carries the fields as they came.
//
//     oncekey::Headers headers;
//     headers.add("Content-Type", "application/json");
//     headers.add("Set-Cookie", "a=1");
//     headers.add("set-cookie", "b=2");
//     headers.get("SET-COOKIE");  // "a=1"
//     for (std::size_t i = 0; i < headers.size(); ++i) std::cout << headers[i].name << "\n";
//
// A value: it is copied and moved, and owns all its bytes. It has no lock; threads that share one must not change it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace oncekey {

// One field of a Headers object. The views point into it and stay valid until it is changed or destroyed.
struct Field {
  std::string_view name;
  std::string_view value;
};

class Headers {
 public:
  // Appends a field. Name and value must hold no line breaks, and this is not checked here: a line break in a value
  // would be a header of its own on the wire. What came off the wire was checked by the parser. A program that adds
  // text from elsewhere checks it first; Phase::respond and Client::send check what they are given. All fields together
  // must have fewer than 4 GiB.
  void add(std::string_view name, std::string_view value);
  // Appends field number `index` of another object.
  void add(const Headers& from, std::size_t index);
  // Appends a field by its line on the wire, "Name: value\r\n", whose name has so many bytes. The same goes for what it
  // holds: nothing is checked here.
  void add_line(std::string_view line, std::size_t name_length);

  // Rebuilds the object from the lines() of an earlier one, without copying them. Nothing if the text is not a sequence
  // of "Name: value\r\n" lines with a name each.
  static std::optional<Headers> from_lines(std::string lines);

  // The number of fields, each occurrence of a name counted.
  std::size_t size() const { return spans_.size(); }
  bool empty() const { return spans_.empty(); }
  // By place, from 0 to size() - 1, which is not checked.
  Field operator[](std::size_t index) const {
    const Span& span = spans_[index];
    return {{bytes_.data() + span.name_at, span.name_length}, {bytes_.data() + span.value_at, span.value_length}};
  }

  // The value of the first field of that name, or nothing. The view stays valid until the next change to this object.
  // Takes time in proportion to the number of fields.
  std::optional<std::string_view> get(std::string_view name) const {
    if ((marks_ & mark_of(name)) == 0) return std::nullopt;
    return find(name);
  }
  std::size_t count(std::string_view name) const;
  bool has(std::string_view name) const { return get(name).has_value(); }

  // The wire form of all fields, without the empty line that ends a header section. What from_lines() reads.
  const std::string& lines() const { return bytes_; }
  // Takes out all fields and keeps the memory for the next ones.
  void clear();
  // Takes out the fields that `keep(field)` is false for. The others stay in order; no memory is allocated.
  template <class Keep>
  void keep_if(Keep keep);
  // Makes room, so that adding so many fields of so many bytes in all (names, values, and four more each) allocates no
  // further memory.
  void reserve(std::size_t bytes, std::size_t fields);

 private:
  // One of 64 bits, by a name's length and first letter. Most names that are asked for are not there, and most of these
  // are known by their bit alone.
  static std::uint64_t mark_of(std::string_view name) {
    const auto first = static_cast<unsigned char>(name.empty() ? ' ' : name.front());
    return std::uint64_t{1} << ((8 * name.size() + (first | 0x20u)) % 64);
  }
  std::optional<std::string_view> find(std::string_view name) const;

  struct Span {
    std::uint32_t name_at, name_length, value_at, value_length;
    std::uint32_t line_length() const { return name_length + value_length + 4; }
  };
  std::string bytes_;
  std::vector<Span> spans_;
  std::uint64_t marks_ = 0; // of the names there are, and perhaps of some that were taken out
};

template <class Keep>
void Headers::keep_if(Keep keep) {
  std::size_t kept = 0;
  std::uint32_t end = 0;
  for (std::size_t i = 0; i < spans_.size(); ++i) {
    Span span = spans_[i];
    if (!keep((*this)[i])) continue;
    const std::uint32_t gap = span.name_at - end;
    if (gap > 0) std::char_traits<char>::move(bytes_.data() + end, bytes_.data() + span.name_at, span.line_length());
    span.name_at -= gap;
    span.value_at -= gap;
    spans_[kept++] = span;
    end += span.line_length();
  }
  spans_.resize(kept);
  bytes_.resize(end);
}

// ASCII comparison without regard to case, the only kind HTTP needs: bytes above 127 are compared as they are. The
// lengths are compared inline, because most names differ in length already.
bool equal_length_ignoring_case(const char* a, const char* b, std::size_t length);
inline bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return a.size() == b.size() && equal_length_ignoring_case(a.data(), b.data(), a.size());
}
bool starts_with_ignoring_case(std::string_view text, std::string_view prefix);

// Calls `visit(item)` for every comma-separated item of a list-valued field (Connection, Vary), without the spaces and
// tabs around it: "close, TE" is visited as "close" and "TE". Empty items are left out. Commas inside quoted strings
// are taken for separators: not for fields whose items may be quoted.
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
