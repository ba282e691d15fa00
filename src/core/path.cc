#include "core/path.h"

#include "base/ascii.h"
#include "base/url.h"

#include <algorithm>
#include <array>
#include <bit>
#include <optional>
#include <utility>

namespace oncekey {
namespace {

// Longer paths in doubt are not read in every way: no API has them, and each reading costs their length.
constexpr std::size_t kDoubtfulPathMax = 4096;
// With more kinds of doubt at once than this, a path is an attack and not a mistake.
constexpr int kDoubtsReadMax = 2;

// RFC 3986 pchar without `;`, which begins parameters.
constexpr std::array<bool, 256> kSegmentCharacters = [] {
  std::array<bool, 256> plain{};
  for (const std::string_view some : {kAlphanumeric, std::string_view("-._~!$&'()*+,=:@")})
    for (const char c : some) plain[static_cast<unsigned char>(c)] = true;
  return plain;
}();

bool stands_in_a_segment(unsigned char c) { return kSegmentCharacters[c]; }

// Normal as it is: the case of nearly every request, told without a copy.
bool is_normal_path(std::string_view path) {
  char before = '\0';
  for (const char c : path) {
    if (c == '/') {
      if (before == '/') return false;
    } else if (!stands_in_a_segment(static_cast<unsigned char>(c)) || (c == '.' && before == '/')) {
      return false;
    }
    before = c;
  }
  return before != '/' || path.size() == 1;
}

// The byte that two hexadecimal digits at `at` stand for.
std::optional<unsigned char> byte_at(std::string_view text, std::size_t at) {
  if (at + 2 > text.size()) return std::nullopt;
  const int high = hex_value(text[at]);
  const int low = hex_value(text[at + 1]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<unsigned char>(high * 16 + low);
}

void append_encoded(std::string& out, unsigned char byte) {
  static constexpr char kDigits[] = "0123456789ABCDEF";
  out.push_back('%');
  out.push_back(kDigits[byte >> 4]);
  out.push_back(kDigits[byte & 15]);
}

std::string_view without_port(std::string_view authority) {
  if (authority.starts_with('[')) return authority.substr(0, std::min(authority.find(']'), authority.size() - 1) + 1);
  return authority.substr(0, authority.find(':'));
}

void respell(std::string_view name, std::string& out) {
  out.clear();
  for (std::size_t at = 0; at < name.size(); ++at) {
    const auto byte = name[at] == '%' ? byte_at(name, at + 1) : std::nullopt;
    const char c = byte ? static_cast<char>(*byte) : name[at];
    const bool decoded =
        byte && (kAlphanumeric.find(c) != std::string_view::npos || c == '-' || c == '.' || c == '_' || c == '~');
    out.push_back(lower_letter(decoded ? c : name[at]));
    if (decoded) at += 2;
  }
}

// What a server may do besides what the normal form does: each is one bit of a reading. The last two are doubts without
// a reading of their own.
enum Choice : unsigned {
  kSlashes = 1,           // %2F is a slash
  kBackslashes = 2,       // so are \ and %5C
  kDecodesTwice = 4,      // %252F is %2F, and %u002F is an encoding
  kEncodedParameters = 8, // %3B begins parameters
  kControlsEnd = 16,      // %00 ends the path, other control characters are dropped
  kMergesLate = 32,       // slashes are merged after dot segments are removed: /a//../b is /a/b
  kDotParameters = 64,    // `..;` is a name
  kKeepsDots = 128,       // dot segments are names
  kRawBytes = 256,
  kAboveRoot = 512,
};
constexpr unsigned kAsNormal = 0;
// These change what a segment is; every one of them may make new dot segments and empty segments.
constexpr unsigned kOfContent = kSlashes | kBackslashes | kDecodesTwice | kEncodedParameters | kControlsEnd;

struct Seen {
  unsigned doubts = 0;
  bool dots = false;     // some dot segment
  std::string_view what; // the first of the doubts

  void doubt(unsigned choice, std::string_view name) {
    doubts |= choice;
    if (what.empty()) what = name;
  }
};

// One pass over a path: `out` is what a server with these habits takes it for.
class PathReading {
 public:
  PathReading(unsigned choices, Seen& seen) : choices_(choices), seen_(seen) {}

  std::string of(std::string_view path) {
    out_.reserve(path.size() + 16);
    for (std::size_t at = 0; at < path.size() && !ended_;) at = take(path, at);
    end_segment();
    if (has(kMergesLate)) merge();
    if (out_.empty()) out_ = "/";
    return std::move(out_);
  }

 private:
  bool has(unsigned choice) const { return (choices_ & choice) != 0; }

  std::size_t take(std::string_view path, std::size_t at) {
    const char c = path[at];
    if (c != '%') {
      raw(c);
      return at + 1;
    }
    std::size_t digits = at + 1;
    while (path.substr(digits, 2) == "25" && byte_at(path, digits + 2)) {
      seen_.doubt(kDecodesTwice, "a character that is percent-encoded twice");
      if (!has(kDecodesTwice)) break;
      digits += 2;
    }
    if (const auto byte = byte_at(path, digits)) {
      encoded(*byte);
      return digits + 2;
    }
    seen_.doubt(kDecodesTwice, "a % without two hexadecimal digits behind it");
    if (has(kDecodesTwice) && at + 6 <= path.size() && (path[at + 1] | 0x20) == 'u' && byte_at(path, at + 2) == 0) {
      if (const auto wide = byte_at(path, at + 4)) {
        encoded(*wide);
        return at + 6;
      }
    }
    character('%');
    return at + 1;
  }

  void raw(char c) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/') {
      end_segment();
      begun_ = true;
    } else if (c == ';') {
      begin_parameters();
    } else if (c == '\\') {
      backslash();
    } else {
      if (byte > 0x7f) seen_.doubt(kRawBytes, "a byte outside ASCII that is not percent-encoded");
      character(byte);
    }
  }

  void encoded(unsigned char byte) {
    if (byte == '/') {
      seen_.doubt(kSlashes, "an encoded slash (%2F)");
      if (has(kSlashes)) return raw('/');
    } else if (byte == '\\') {
      return backslash();
    } else if (byte == ';') {
      seen_.doubt(kEncodedParameters, "an encoded semicolon (%3B)");
      if (has(kEncodedParameters)) return begin_parameters();
    }
    character(byte);
  }

  void backslash() {
    seen_.doubt(kBackslashes, "a backslash");
    if (has(kBackslashes)) return raw('/');
    character('\\');
  }

  void character(unsigned char byte) {
    if (byte < 0x20 || byte == 0x7f) {
      seen_.doubt(kControlsEnd, "a control character");
      if (has(kControlsEnd)) {
        ended_ = byte == 0;
        return;
      }
    }
    if (in_parameters_) return;
    begin_segment();
    if (stands_in_a_segment(byte)) {
      out_.push_back(static_cast<char>(byte));
    } else {
      append_encoded(out_, byte);
    }
  }

  void begin_parameters() {
    begin_segment();
    const std::string_view name = std::string_view(out_).substr(*segment_ + 1);
    if (!in_parameters_ && (name == "." || name == "..")) {
      seen_.doubt(kDotParameters, "a dot segment with parameters");
      if (has(kDotParameters)) return character(';');
    }
    in_parameters_ = true;
  }

  void begin_segment() {
    if (segment_) return;
    segment_ = out_.size();
    out_.push_back('/');
  }

  void end_segment() {
    in_parameters_ = false;
    if (!begun_) return;
    const bool was_empty = std::exchange(empty_, false);
    if (!segment_) {
      empty_ = true;
      if (has(kMergesLate)) out_.push_back('/');
      return;
    }
    const std::size_t at = *std::exchange(segment_, std::nullopt);
    const std::string_view name = std::string_view(out_).substr(at + 1);
    if (name.empty()) { // nothing but parameters
      empty_ = true;
      if (!has(kMergesLate)) out_.resize(at);
      return;
    }
    if (name != "." && name != "..") return;
    seen_.dots = true;
    if (was_empty && name == "..") seen_.doubt(kMergesLate, "a dot segment behind two slashes");
    if (has(kKeepsDots)) return;
    const bool up = name == "..";
    out_.resize(at);
    if (!up) return;
    const std::size_t parent = out_.rfind('/');
    if (parent == std::string::npos) {
      seen_.doubt(kAboveRoot, "a dot segment that leads above the root");
    } else {
      out_.resize(parent);
    }
  }

  void merge() {
    const auto both_slashes = [](char a, char b) { return a == '/' && b == '/'; };
    out_.erase(std::unique(out_.begin(), out_.end(), both_slashes), out_.end());
    if (out_.size() > 1 && out_.ends_with('/')) out_.pop_back();
  }

  const unsigned choices_;
  Seen& seen_;
  std::string out_;
  std::optional<std::size_t> segment_; // where the slash of the segment under way stands
  bool begun_ = false;                 // a slash was seen
  bool empty_ = false;                 // the segment before was empty
  bool in_parameters_ = false;
  bool ended_ = false;
};

std::string read_path(std::string_view path, unsigned choices) {
  Seen ignored;
  return PathReading(choices, ignored).of(path);
}

} // namespace

NormalPath::NormalPath(std::string_view path) : sent_(path) {
  if (path.starts_with('/') && !is_normal_path(path)) normalise();
}

void NormalPath::normalise() {
  Seen seen;
  text_ = PathReading(kAsNormal, seen).of(sent_);
  copied_ = true;
  doubt_ = seen.what;
  only_slashes_ = seen.doubts == kSlashes;
  if (seen.doubts == 0 && !seen.dots) return;
  unsigned choices = seen.doubts & ~(kRawBytes | kAboveRoot);
  if (seen.doubts != 0 && (std::popcount(choices & kOfContent) > kDoubtsReadMax || sent_.size() > kDoubtfulPathMax)) {
    beyond_telling_ = true;
    return;
  }
  if ((choices & kSlashes) != 0) slashed_ = read_path(sent_, kSlashes);
  if (seen.dots) choices |= kKeepsDots;
  if ((choices & kOfContent) != 0) choices |= kMergesLate | kKeepsDots;
  // Every set of the choices but the empty one.
  for (unsigned some = choices; some != 0; some = (some - 1) & choices) {
    other_readings_.push_back(read_path(sent_, some));
  }
}

std::string NormalPath::why_ambiguous() const {
  std::string why = "The path holds ";
  why += doubt_.empty() ? std::string_view("a dot segment") : doubt_;
  return why + ", which servers read in different ways. Send the path in its plain spelling.";
}

std::string normal_glob(std::string_view glob) {
  const bool star_first = glob.starts_with('*');
  const std::string whole = star_first ? "/" + std::string(glob) : std::string(glob);
  Seen seen;
  std::string text = PathReading(kAsNormal, seen).of(whole);
  // A configuration is UTF-8, so that raw bytes outside ASCII have one meaning there.
  if ((seen.doubts & ~kRawBytes) != 0 || seen.dots || whole.find(';') != std::string::npos) return {};
  return star_first ? text.substr(1) : text;
}

std::string printable_target(std::string_view target) {
  std::string out;
  out.reserve(target.size());
  for (const char c : target) {
    if (c > ' ' && c < 0x7f) {
      out.push_back(c);
    } else {
      append_encoded(out, static_cast<unsigned char>(c));
    }
  }
  return out;
}

std::string_view host_name(const Headers& headers, std::string& storage) {
  std::string_view name = without_port(headers.get("Host").value_or(std::string_view{}));
  if (std::any_of(name.begin(), name.end(), [](char c) { return (c >= 'A' && c <= 'Z') || c == '%'; })) {
    respell(name, storage);
    name = storage;
  }
  if (name.ends_with('.')) name.remove_suffix(1);
  return name;
}

} // namespace oncekey
