#include "audit/read_audit.h"

#include "base/json_text.h"
#include "base/timestamp.h"

#include <fmt/format.h>

#include <algorithm>

namespace oncekey {
namespace {

constexpr std::size_t kBlockBytes = 128u << 10;
// The wall clock may have been set: a search begins with lines this much newer than `until`, and ends with lines this
// much older than `since`.
constexpr std::chrono::hours kClockSteps{1};

class LineFilter {
 public:
  explicit LineFilter(const AuditQuery& query) : query_(query) {
    for (const std::string& key : query.keys) {
      std::string member = "\"key\":";
      append_json_string(member, key);
      members_.push_back(std::move(member));
    }
    if (!query.event.empty()) event_ = fmt::format("\"event\":\"{}\"", query.event);
    if (const auto since = parse_timestamp(query.since)) ends_before_ = timestamp(*since - kClockSteps);
    if (const auto until = parse_timestamp(query.until)) begins_before_ = timestamp(*until + kClockSteps);
  }

  bool fits(std::string_view line) const {
    const std::string_view time = time_of(line);
    if (!query_.since.empty() && time < query_.since) return false;
    if (!query_.until.empty() && time >= query_.until) return false;
    if (!event_.empty() && line.find(event_) == std::string_view::npos) return false;
    if (members_.empty() && query_.records.empty()) return true;
    const std::string_view record = text_of(line, "\"record\":\"");
    return (!record.empty() && std::any_of(query_.records.begin(), query_.records.end(),
                                           [&](const std::string& begin) { return record.starts_with(begin); })) ||
           std::any_of(members_.begin(), members_.end(),
                       [&](const std::string& member) { return line.find(member) != std::string_view::npos; });
  }

  // Nothing that stands before this line can fit.
  bool is_too_old(std::string_view line) const { return !ends_before_.empty() && time_of(line) < ends_before_; }
  // Neither this line nor one behind it can fit.
  bool is_too_new(std::string_view line, const ChainPlace& place) const {
    return (query_.before != 0 && place.n >= query_.before) ||
           (!begins_before_.empty() && time_of(line) >= begins_before_);
  }

  static std::string_view time_of(std::string_view line) { return text_of(line, "\"time\":\""); }

 private:
  // Of a member whose text needs no escaping. A quote inside of another member's text has a backslash before it.
  static std::string_view text_of(std::string_view line, std::string_view begin) {
    const std::size_t at = line.find(begin);
    if (at == std::string_view::npos) return {};
    line.remove_prefix(at + begin.size());
    return line.substr(0, line.find('"'));
  }

  const AuditQuery& query_;
  std::vector<std::string> members_; // of the keys: one of them stands in a line that fits
  std::string event_;
  std::string ends_before_;
  std::string begins_before_;
};

struct FoundLine {
  std::uint64_t offset;
  bool too_new;
};

// The first line that begins behind this offset.
Result<std::optional<FoundLine>> first_line_behind(const AuditFile& file, std::uint64_t offset,
                                                   const LineFilter& filter) {
  const Result<std::string> block = read_at(file.fd.get(), offset, kBlockBytes);
  if (!block) return block.fault();
  std::size_t newline = block->find('\n');
  while (newline != std::string::npos) {
    const std::size_t begin = newline + 1;
    newline = block->find('\n', begin);
    const std::string_view line = std::string_view(*block).substr(begin, newline - begin);
    const auto place = place_of(line);
    if (newline != std::string::npos && place)
      return std::optional(FoundLine{offset + begin, filter.is_too_new(line, *place)});
  }
  return std::optional<FoundLine>();
}

// Where the first line begins that is too new, or the file ends. Found by halving the file.
Result<std::uint64_t> end_of_search(const AuditFile& file, const LineFilter& filter) {
  std::uint64_t low = 0; // the beginning of a line; none before it is too new
  std::uint64_t high = file.bytes;
  while (high - low > kBlockBytes) {
    const std::uint64_t middle = low + (high - low) / 2;
    const auto line = first_line_behind(file, middle, filter);
    if (!line) return line.fault();
    if (*line && !(*line)->too_new) {
      low = (*line)->offset;
    } else {
      high = middle;
    }
  }
  for (std::uint64_t at = low; at < file.bytes;) {
    const Result<std::string> block = read_at(file.fd.get(), at, kBlockBytes);
    if (!block) return block.fault();
    std::size_t begin = 0;
    for (std::size_t end = block->find('\n'); end != std::string::npos; end = block->find('\n', begin)) {
      const std::string_view line = std::string_view(*block).substr(begin, end - begin);
      const auto place = place_of(line);
      if (place && filter.is_too_new(line, *place)) return at + begin;
      begin = end + 1;
    }
    if (begin == 0) break;
    at += begin;
  }
  return file.bytes;
}

// Whether the file begins with a line that is too new: then all of it is.
Result<bool> is_too_new(const AuditFile& file, const LineFilter& filter) {
  const Result<std::string> beginning = read_at(file.fd.get(), 0, kAuditLineMax + 1);
  if (!beginning) return beginning.fault();
  const std::string_view line = std::string_view(*beginning).substr(0, beginning->find('\n'));
  const auto place = place_of(line);
  return place && filter.is_too_new(line, *place);
}

} // namespace

Result<AuditPage> read_audit(const AuditFiles& files, const AuditQuery& query) {
  const LineFilter filter(query);
  AuditPage page;
  std::uint64_t looked = 0;
  for (auto file = files.files.rbegin(); file != files.files.rend(); ++file) {
    std::uint64_t end = file->bytes;
    if (query.before != 0 || !query.until.empty()) {
      const Result<bool> too_new = is_too_new(*file, filter);
      if (!too_new) return too_new.fault();
      if (*too_new) continue;
      const Result<std::uint64_t> found = end_of_search(*file, filter);
      if (!found) return found.fault();
      end = *found;
    }
    std::string rest;                         // the end of a line whose beginning is in the block before
    bool whole_from_here = end < file->bytes; // what stands behind the last newline of a file is no line yet
    while (end > 0) {
      const std::uint64_t begin = end > kBlockBytes ? end - kBlockBytes : 0;
      Result<std::string> block = read_at(file->fd.get(), begin, static_cast<std::size_t>(end - begin));
      if (!block) return std::move(block).fault();
      looked += block->size();
      *block += rest;
      std::string_view text = *block;
      if (!whole_from_here) {
        const std::size_t lines_end = text.rfind('\n') + 1; // 0 if there is none
        if (lines_end < text.size() && (page.cut_off.empty() || page.cut_off.back() != file->path))
          page.cut_off.push_back(file->path);
        text = text.substr(0, lines_end);
        whole_from_here = lines_end > 0;
      }
      // Lines that are whole in this block, from its end; the first one may have begun before it.
      while (!text.empty()) {
        const std::string_view terminated = text.ends_with('\n') ? text.substr(0, text.size() - 1) : text;
        const std::size_t newline = terminated.rfind('\n');
        if (newline == std::string_view::npos && begin > 0) break;
        const std::size_t line_begin = newline == std::string_view::npos ? 0 : newline + 1;
        const std::string_view line = terminated.substr(line_begin);
        const std::optional<ChainPlace> place = place_of(line);
        if (place && filter.is_too_old(line)) return page;
        if (place) {
          ++page.looked;
          page.back_to = LineFilter::time_of(line);
        }
        if (place && filter.fits(line)) {
          page.lines.emplace_back(line);
          if (page.lines.size() == query.limit) {
            page.next = place->n > 1 ? place->n : 0;
            return page;
          }
        }
        if (place && looked >= query.look_bytes) {
          page.next = place->n > 1 ? place->n : 0;
          return page;
        }
        text = text.substr(0, line_begin);
      }
      rest = std::string(text);
      if (rest.size() > 2 * kAuditLineMax) rest.clear(); // no line of ours
      end = begin;
    }
  }
  return page;
}

} // namespace oncekey
