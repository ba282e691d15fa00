#include "audit/verify.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace oncekey {
namespace {

constexpr std::size_t kReadBytes = 1u << 20;
// So many bytes without a newline are no lines, not even torn ones.
constexpr std::size_t kNoLineBytes = 64u << 20;
// Beyond this the first ones say enough.
constexpr std::size_t kBrokenMax = 20;

// Walks over the lines of all files in order.
class Verifier {
 public:
  Verifier(const ChainHash& hash, const ChainHeads& heads, std::uint64_t from)
      : hash_(hash), heads_(heads), from_(from) {}

  void begin_file(const std::string& path) {
    // The end of the file before this one was the end of no line.
    if (torn_ > 0) torn_without_word();
    path_ = path;
    row_ = 0;
    torn_ = 0;
    foreign_row_ = 0;
  }

  void line(std::string_view line, bool terminated) {
    ++row_;
    const std::optional<ChainPlace> place = place_of(line);
    if (!place || !terminated) {
      // It may be torn: the next line says so then. A line that was torn has no newline before that.
      if (torn_ == 0) torn_row_ = row_;
      if (terminated && foreign_row_ == 0) foreign_row_ = row_;
      cut_off_ = !terminated;
      torn_ += line.size() + (terminated ? 1 : 0);
      return;
    }
    const bool begins_file = row_ == 1;
    const std::string event =
        begins_file || torn_ > 0 || needs_look(line) ? audit_member(line, "event") : std::string();
    if (verdict_.lines == 0) {
      begin_chain(*place, line, event);
    } else {
      if (begins_file && event != "opened" && event != "continued")
        broken(fmt::format("the beginning of the file is missing: it begins with line {} (\"{}\")", place->n, event));
      follow(*place);
    }
    if (torn_ > 0) {
      if (audit_member(line, "torn") != fmt::format("{}", torn_))
        torn_without_word();
      else
        notice(fmt::format("{} bytes were torn by a crash or a full disk", torn_), torn_row_);
      torn_ = 0;
      foreign_row_ = 0;
    }
    if (event == "lost") notice(fmt::format("{} lines could not be written", audit_member(line, "lines")), row_);
    if (event == "removed") note_removed(line);
    if (event == "opened" || event == "continued") begun(line, event);
    ++verdict_.lines;
    verdict_.last = {place->n, hash_.of(line)};
    last_line_ = line;
    note_head(verdict_.last);
  }

  AuditVerdict finish(const ChainHeads& heads) {
    if (foreign_row_ > 0) torn_without_word();
    if (torn_ > 0 && cut_off_)
      notice("the last line is not whole: it is being written, or a crash has cut it off", row_);
    verdict_.last_time = audit_member(last_line_, "time");
    judge_beginning();
    const auto kept = heads.of.find(verdict_.chain);
    if (verdict_.lines == 0) {
      // Nothing to compare.
    } else if (kept == heads.of.end()) {
      verdict_.broken.push_back(
          fmt::format("the store keeps no head of the chain \"{}\": it is another store, or what it kept was removed",
                      verdict_.chain));
    } else if (kept->second.head.n > verdict_.last.n) {
      verdict_.broken.push_back(
          fmt::format("{}:{}: lines {} to {} are missing at the end: the store has seen line {} at {}", path_, row_ + 1,
                      verdict_.last.n + 1, kept->second.head.n, kept->second.head.n, kept->second.time));
    } else if (!head_seen_ && kept->second.head.n >= verdict_.first.n) {
      verdict_.broken.push_back(
          fmt::format("line {} is not the one that the store has seen at {}", kept->second.head.n, kept->second.time));
    } else {
      verdict_.newer = verdict_.last.n - kept->second.head.n;
    }
    return std::move(verdict_);
  }

 private:
  // Most lines are only hashed: parsing each would take most of the time.
  static bool needs_look(std::string_view line) {
    return line.find("\"event\":\"opened\"") != std::string_view::npos ||
           line.find("\"event\":\"lost\"") != std::string_view::npos ||
           line.find("\"event\":\"removed\"") != std::string_view::npos ||
           line.find("\"event\":\"continued\"") != std::string_view::npos;
  }

  void broken(std::string_view what) {
    if (verdict_.broken.size() < kBrokenMax) verdict_.broken.push_back(fmt::format("{}:{}: {}", path_, row_, what));
  }
  void notice(std::string_view what, std::uint64_t row) {
    if (verdict_.notices.size() < kBrokenMax) verdict_.notices.push_back(fmt::format("{}:{}: {}", path_, row, what));
  }
  void torn_without_word() {
    verdict_.broken.push_back(
        fmt::format("{}:{}: is not a line of an audit log, and no line behind it says that it was torn", path_,
                    foreign_row_ > 0 ? foreign_row_ : torn_row_));
  }

  void begin_chain(const ChainPlace& place, std::string_view line, const std::string& event) {
    verdict_.first = {place.n, std::string(place.prev)};
    verdict_.chain = audit_member(line, "chain");
    if (event != "opened" && event != "continued") {
      broken(fmt::format("the beginning of the file is missing: it begins with line {} (\"{}\")", place.n, event));
    } else if (place.n > 1 && audit_member(line, "gap").empty()) {
      begins_at_ = fmt::format("{}:{}", path_, row_);
    } else if (place.n == 1 && place.prev != ChainHead{}.hash) {
      broken("line 1 names a line before it");
    }
  }

  // A gateway has deleted files with lines up to this one.
  void note_removed(std::string_view line) {
    const std::string last = audit_member(line, "last");
    std::uint64_t number = 0;
    if (std::from_chars(last.data(), last.data() + last.size(), number).ec != std::errc{} || number < removed_) return;
    removed_ = number;
    removed_text_ = fmt::format("the gateway deleted lines up to {} at {}, by {}", last, audit_member(line, "time"),
                                audit_member(line, "reason"));
  }

  // Of a log that does not begin with line 1.
  void judge_beginning() {
    if (begins_at_.empty()) return;
    const std::uint64_t first = verdict_.first.n;
    const std::string begins = fmt::format("{}: the log begins with line {}", begins_at_, first);
    if (first <= removed_ + 1) {
      verdict_.notices.push_back(fmt::format("{}: {}", begins, removed_text_));
    } else if (first <= from_) {
      verdict_.notices.push_back(fmt::format("{}: files with older lines are not here", begins));
    } else {
      verdict_.broken.push_back(fmt::format(
          "{}: files with older lines are not here, and no line says that the gateway deleted them{}. If you have "
          "archived them, say so with --from {}",
          begins, removed_ == 0 ? std::string() : fmt::format(" ({})", removed_text_), first));
    }
  }

  void follow(const ChainPlace& place) {
    if (place.n <= verdict_.last.n) {
      broken(fmt::format("line {} stands behind line {}: lines were moved or written twice", place.n, verdict_.last.n));
    } else if (place.n == verdict_.last.n + 2) {
      broken(fmt::format("line {} is missing", place.n - 1));
    } else if (place.n > verdict_.last.n + 1) {
      broken(fmt::format("lines {} to {} are missing", verdict_.last.n + 1, place.n - 1));
    } else if (place.prev != verdict_.last.hash) {
      broken(fmt::format("line {} does not follow from line {}: one of them was changed", place.n, verdict_.last.n));
    }
  }

  // A line with which a gateway began to write.
  void begun(std::string_view line, const std::string& event) {
    const std::string chain = audit_member(line, "chain");
    if (chain != verdict_.chain)
      broken(fmt::format("the line is of the chain \"{}\", the ones before of \"{}\"", chain, verdict_.chain));
    if (const std::string gap = audit_member(line, "gap"); !gap.empty())
      broken(fmt::format("the gateway found at its start, {}: {}", audit_member(line, "time"), gap));
    if (event == "opened" && audit_member(line, "after") == "crash")
      notice(fmt::format("the gateway started again after a crash, {}", audit_member(line, "time")), row_);
  }

  void note_head(const ChainHead& head) {
    const auto kept = heads_.of.find(verdict_.chain);
    if (kept != heads_.of.end() && kept->second.head == head) head_seen_ = true;
  }

  const ChainHash& hash_;
  const ChainHeads& heads_;
  const std::uint64_t from_;
  AuditVerdict verdict_;
  std::string begins_at_; // FILE:LINE of a log that begins with a later line than 1
  std::uint64_t removed_ = 0;
  std::string removed_text_;
  std::string path_;
  std::uint64_t row_ = 0;
  std::uint64_t torn_ = 0; // bytes since the last whole line
  std::uint64_t torn_row_ = 0;
  std::uint64_t foreign_row_ = 0; // the first of them that ends in a newline; 0 if none does
  bool cut_off_ = false;          // the last of them does not
  bool head_seen_ = false;
  std::string last_line_;
};

} // namespace

Result<AuditVerdict> verify_audit(const AuditFiles& files, const ChainHeads& heads, const AuditProgress& progress,
                                  std::uint64_t from) {
  const ChainHash hash(heads.key);
  Verifier verifier(hash, heads, from);
  std::uint64_t all = 0;
  for (const AuditFile& file : files.files) all += file.bytes;
  std::uint64_t done = 0;
  for (const AuditFile& file : files.files) {
    verifier.begin_file(file.path);
    std::string rest; // of the last piece: the beginning of a line
    std::uint64_t at = 0;
    for (;;) {
      const Result<std::string> piece = read_at(file.fd.get(), at, kReadBytes);
      if (!piece) return unavailable(fmt::format("{}: {}", file.path, piece.fault().message));
      if (piece->empty()) break;
      at += piece->size();
      rest += *piece;
      std::size_t begin = 0;
      for (std::size_t end = rest.find('\n'); end != std::string::npos; end = rest.find('\n', begin)) {
        verifier.line(std::string_view(rest).substr(begin, end - begin), true);
        begin = end + 1;
      }
      rest.erase(0, begin);
      if (rest.size() > kNoLineBytes) return invalid(fmt::format("{}: is not an audit log", file.path));
      done += piece->size();
      progress(std::min(done, all), all);
    }
    if (!rest.empty()) verifier.line(rest, false);
  }
  return verifier.finish(heads);
}

} // namespace oncekey
