#include "audit/audit_log.h"

#include "base/durations.h"
#include "base/json_text.h"
#include "base/private_files.h"
#include "base/timestamp.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

namespace oncekey {
namespace {

// What a client or an operator writes is cut to this: a line stays far below kAuditLineMax, also with every byte
// escaped.
constexpr std::size_t kTextMax = 300;
constexpr std::size_t kReasonMax = 1000;
// How often old files are looked for.
constexpr std::chrono::hours kOldFilesEvery{1};
// A file that is not full is rotated when it has lines of so large a part of the time that files are kept: its oldest
// lines would stay for as long as its newest.
constexpr int kFilesInKeeping = 10;

std::string reason_of(const std::string& path, int error) { return fmt::format("{}: {}", path, std::strerror(error)); }

std::string now_text() { return timestamp(std::chrono::system_clock::now()); }

void add_text(std::string& out, std::string_view name, std::string_view text, std::size_t most = kTextMax) {
  if (text.empty()) return;
  out.append(",\"").append(name).append("\":");
  append_json_string(out, text.substr(0, most));
}

void add_number(std::string& out, std::string_view name, std::uint64_t number) {
  if (number == 0) return;
  out.append(",\"").append(name).append("\":").append(fmt::format_int(number).c_str());
}

Status is_regular(int fd, const std::string& path) {
  struct stat entry {};
  if (::fstat(fd, &entry) != 0) return unavailable(reason_of(path, errno));
  if (!S_ISREG(entry.st_mode)) return invalid(fmt::format("{}: is not a regular file", path));
  return ok_status();
}

Fault no_audit_log(const std::string& path) {
  return invalid(fmt::format("{}: is not an audit log; move it away, or give another path", path));
}

Result<AuditFd> open_to_append(const std::string& path) {
  AuditFd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NONBLOCK, S_IRUSR | S_IWUSR));
  if (file.get() < 0) return unavailable(reason_of(path, errno));
  if (const Status regular = is_regular(file.get(), path); !regular) return regular.fault();
  if (const Status narrowed = make_private(path); !narrowed) return narrowed.fault();
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0)
    return invalid(fmt::format(
        "{}: another process writes it; give each gateway a file of its own (gateway_name or audit_log)", path));
  return file;
}

// Whether its first line is older than this. One that cannot be read is not.
bool began_before(const AuditFile& file, std::chrono::system_clock::time_point limit) {
  const Result<std::string> beginning = read_at(file.fd.get(), 0, kAuditLineMax + 1);
  if (!beginning) return false;
  const auto began = parse_timestamp(audit_member(beginning->substr(0, beginning->find('\n')), "time"));
  return began && *began < limit;
}

std::uint64_t size_of(int fd) {
  struct stat entry {};
  return ::fstat(fd, &entry) == 0 ? static_cast<std::uint64_t>(entry.st_size) : 0;
}

bool is_same_file(int fd, const std::string& path) {
  struct stat open {};
  struct stat there {};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &there) == 0 && open.st_ino == there.st_ino &&
         open.st_dev == there.st_dev;
}

std::vector<std::string_view> lines_of(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.push_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

// The end of the newest of the rotated files, for a log whose own file is empty.
std::optional<AuditTail> tail_of_rotated(const std::string& path, const ChainHash& hash) {
  const Result<AuditFiles> found = audit_files_of(path);
  if (!found || found->files.empty()) return std::nullopt;
  return tail_of(found->files.back().fd.get(), hash);
}

} // namespace

Status AuditLog::check(const std::string& path) {
  const AuditFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  if (file.get() < 0) return errno == ENOENT ? ok_status() : Status(unavailable(reason_of(path, errno)));
  if (const Status regular = is_regular(file.get(), path); !regular) return regular;
  // The key matters to what follows only: any will do to find the last line.
  if (size_of(file.get()) > 0 && !tail_of(file.get(), ChainHash("any"))) return no_audit_log(path);
  return ok_status();
}

Result<std::unique_ptr<AuditLog>> AuditLog::open(Options options) {
  const std::filesystem::path folder = std::filesystem::path(options.path).parent_path();
  if (!folder.empty()) {
    if (const Status made = make_private_folder(folder.native()); !made) return made.fault();
  }
  Result<AuditFd> file = open_to_append(options.path);
  if (!file) return std::move(file).fault();
  const ChainHash hash(options.key);
  const bool empty = size_of(file->get()) == 0;
  std::optional<AuditTail> found = empty ? tail_of_rotated(options.path, hash) : tail_of(file->get(), hash);
  if (!found && !empty) return no_audit_log(options.path);
  const bool continues = found.has_value();
  AuditTail tail = found.value_or(AuditTail{});
  if (empty) {
    // A new file: what is known is the end of another one.
    tail.torn = 0;
    tail.foreign = false;
    tail.open_ended = false;
    tail.bytes = 0;
    tail.first = 0;
  }
  std::unique_ptr<AuditLog> log(new AuditLog(std::move(options), std::move(file).value(), tail));
  log->open_line(tail, continues);
  return log;
}

AuditLog::AuditLog(Options options, AuditFd file, const AuditTail& tail)
    : options_(std::move(options)),
      hash_(options_.key),
      file_(std::move(file)),
      head_(tail.last),
      file_bytes_(tail.bytes),
      file_first_(tail.first),
      torn_(tail.torn),
      open_ended_(tail.open_ended),
      kept_n_(options_.known.value_or(ChainHead{}).n),
      to_keep_(options_.known.value_or(ChainHead{})) {}

void AuditLog::open_line(const AuditTail& found, bool continues) {
  const ChainHead known = options_.known.value_or(ChainHead{});
  std::string gap;
  if (known.n > head_.n) {
    gap = fmt::format("the store has seen line {} and the log ends with line {}", known.n, head_.n);
  } else if (known.n == head_.n && known.hash != head_.hash) {
    gap = fmt::format("line {} is not the one that the store has seen", known.n);
  } else if (!options_.known && continues && options_.keep) {
    gap = "the store knows no chain of this name";
  } else if (!found.links) {
    gap = fmt::format("line {} does not follow from the one before it", head_.n);
  } else if (found.foreign) {
    gap = fmt::format("behind line {} stands one that is not a line of an audit log", head_.n);
  }
  if (!gap.empty()) {
    options_.log.error("audit_chain_broken",
                       {{"file", options_.path},
                        {"reason", gap},
                        {"next", "oncekey audit verify says where; lines were removed, changed, or are elsewhere"}});
    // From the newer of both: what is missing stays missing.
    if (known.n >= head_.n) head_ = known;
  }
  std::vector<LogField> more{{"found", known.n}};
  if (continues) more.emplace_back("after", audit_member(found.line, "event") == "closed" ? "stop" : "crash");
  if (!gap.empty()) more.emplace_back("gap", gap);
  const std::string opened = own_members("opened", more);
  lost_count_ += put({opened});
  remove_old_files();
  offer_head(Due::now);
  writer_ = std::make_unique<LineWriter>(
      [this](std::string_view lines, std::uint64_t left_out) { write_lines(lines, left_out); });
  keeper_ = std::thread([this] { keep_heads(); });
}

AuditLog::~AuditLog() {
  {
    const std::lock_guard lock(keeper_mutex_);
    ending_ = true;
  }
  keeper_wake_.notify_one();
  keeper_.join(); // it writes what is pending in the store: before the last line
  closing_ = true;
  writer_->append(own_members("closed", {}) + "\n");
  writer_->stop();
  offer_head(Due::now);
  keep_offered_head();
}

std::string AuditLog::own_members(std::string_view event, const std::vector<LogField>& more) const {
  std::string out = fmt::format("\"time\":\"{}\",{},\"gateway\":\"{}\",\"chain\":\"{}\"", now_text(),
                                log_line(LogFormat::json, event, {}), options_.gateway, options_.chain);
  for (const LogField& field : more) {
    out.append(",\"").append(field.name).append("\":");
    if (field.is_number) {
      out += field.value;
    } else {
      append_json_string(out, field.value);
    }
  }
  return out;
}

void AuditLog::write(const AuditEvent& event) {
  std::string line;
  line.reserve(512);
  line.append("\"time\":\"").append(now_text()).append("\"");
  add_text(line, "event", event.event);
  add_text(line, "gateway", options_.gateway);
  add_text(line, "record", event.record);
  add_text(line, "key", event.key);
  add_text(line, "route", event.route);
  add_text(line, "decision", event.decision);
  add_number(line, "status", static_cast<std::uint64_t>(event.status));
  add_number(line, "fence", event.fence);
  add_text(line, "trace", event.trace);
  add_text(line, "first_trace", event.first_trace);
  add_text(line, "who", event.who);
  add_text(line, "peer", event.peer);
  add_text(line, "action", event.action);
  add_text(line, "result", event.result);
  add_text(line, "reason", event.reason, kReasonMax);
  line.push_back('\n');
  writer_->append(line);
}

void AuditLog::write_lines(std::string_view lines, std::uint64_t left_out) {
  lost_ += left_out;
  lost_count_ += left_out;
  std::vector<std::string_view> each = lines_of(lines);
  std::string about_lost;
  // Only together with others: a disk that is full must not be tried every second.
  if (lost_ > 0 && !each.empty()) {
    about_lost = own_members("lost", {{"lines", lost_}});
    each.insert(each.begin(), about_lost);
  }
  if (!each.empty()) {
    const std::uint64_t failed = put(each);
    if (!about_lost.empty() && failed < each.size()) lost_ = 0;
    const std::uint64_t lost_now = failed - (failed == each.size() && !about_lost.empty() ? 1 : 0);
    lost_ += lost_now;
    lost_count_ += lost_now;
    // "closed" stays the last line: without it the next start takes this for a crash.
    if (options_.rotate_bytes > 0 && file_bytes_ >= options_.rotate_bytes && !closing_) rotate();
  }
  if (!closing_) remove_old_files();
  if (left_out > 0) {
    options_.log.seldom(LogLevel::error, "audit_lost", {},
                        {{"lines", left_out}, {"reason", "the disk does not keep up"}});
  }
  offer_head(Due::by_time);
}

std::uint64_t AuditLog::put(const std::vector<std::string_view>& lines) {
  struct Written {
    std::size_t end; // in the text
    ChainHead head;
  };
  std::string text;
  std::vector<Written> each;
  ChainHead head = head_;
  if (open_ended_) text.push_back('\n');
  for (std::size_t i = 0; i < lines.size(); ++i) {
    std::string members(lines[i]);
    // A torn line that is terminated now counts with its newline.
    if (i == 0 && torn_ > 0) add_number(members, "torn", torn_ + (open_ended_ ? 1 : 0));
    const std::string line = chained_line(head, members);
    head = {head.n + 1, hash_.of(line)};
    text.append(line).push_back('\n');
    each.push_back({text.size(), head});
  }
  std::size_t done = 0;
  int error = 0;
  while (done < text.size() && error == 0) {
    const ssize_t written = ::write(file_.get(), text.data() + done, text.size() - done);
    if (written >= 0) {
      done += static_cast<std::size_t>(written);
    } else if (errno != EINTR) {
      error = errno;
    }
  }
  std::size_t whole = 0;
  while (whole < each.size() && each[whole].end <= done) ++whole;
  const std::size_t whole_end = whole == 0 ? 0 : each[whole - 1].end;
  if (done > whole_end) {
    // What is torn must not look like a line. It may neither end in a newline, which a second torn piece would put
    // behind the first, nor be whole but for its newline.
    const bool second = open_ended_ && whole == 0;
    const bool lacks_newline = whole < each.size() && done + 1 == each[whole].end;
    const std::size_t back = second ? done : lacks_newline ? 1 : 0;
    if (back > 0 && ::ftruncate(file_.get(), static_cast<off_t>(size_of(file_.get()) - back)) == 0) done -= back;
  }
  if (whole > 0) {
    if (file_first_ == 0) file_first_ = head_.n + 1;
    head_ = each[whole - 1].head;
    torn_ = 0;
    open_ended_ = false;
  }
  if (done > whole_end) {
    torn_ += done - whole_end;
    open_ended_ = text[done - 1] != '\n';
  }
  file_bytes_ += done;
  head_n_ = head_.n;
  written_count_ += whole;
  if (error != 0) {
    options_.log.seldom(LogLevel::error, "audit_lost", {},
                        {{"lines", each.size() - whole}, {"reason", reason_of(options_.path, error)}});
  }
  return each.size() - whole;
}

void AuditLog::rotate() {
  const std::string moved = rotated_name(options_.path, file_first_);
  if (is_same_file(file_.get(), options_.path)) {
    // A link fails where a rename would replace a file that has this name already.
    if (::link(options_.path.c_str(), moved.c_str()) != 0 || ::unlink(options_.path.c_str()) != 0) {
      options_.log.seldom(LogLevel::warning, "audit_log_not_rotated", {}, {{"reason", reason_of(moved, errno)}});
      return;
    }
  }
  continue_in_new_file(moved);
}

// Whole files from the beginning of the chain, as long as their names are ours. The line that says so is on disk before
// they go: `oncekey audit verify` takes older lines that are missing without one for removed by an attacker.
void AuditLog::remove_old_files() {
  const auto now = std::chrono::steady_clock::now();
  // Not by the time alone: a machine that was just booted has a clock that is younger than an hour.
  const bool looked_lately = looked_for_old_at_ && now < *looked_for_old_at_ + kOldFilesEvery;
  if (options_.keep_files.count() == 0 || looked_lately) return;
  looked_for_old_at_ = now;
  const auto wall = std::chrono::system_clock::now();
  const Result<AuditFiles> found = audit_files_of(options_.path);
  if (!found || found->files.empty()) return;
  const std::vector<AuditFile>& files = found->files;
  if (began_before(files.back(), wall - options_.keep_files / kFilesInKeeping)) rotate();
  std::size_t old = 0;
  // A file is as old as the beginning of the next one.
  while (old + 1 < files.size() && files[old].path == rotated_name(options_.path, files[old].first) &&
         began_before(files[old + 1], wall - options_.keep_files))
    ++old;
  if (old == 0) return;
  const std::uint64_t last = files[old].first - 1;
  const std::string removed = own_members(
      "removed", {{"files", old},
                  {"first", files.front().first},
                  {"last", last},
                  {"reason", fmt::format("audit_log_keep = \"{}\"", format_duration(options_.keep_files))}});
  const std::uint64_t lost = put({removed});
  lost_count_ += lost;
  if (lost > 0 || ::fdatasync(file_.get()) != 0) return;
  for (std::size_t at = 0; at < old; ++at) {
    if (::unlink(files[at].path.c_str()) != 0)
      options_.log.warning("audit_file_not_removed", {{"reason", reason_of(files[at].path, errno)}});
  }
  sync_folder_of(options_.path);
  options_.log.info("audit_files_removed", {{"files", old}, {"last_line", last}});
}

void AuditLog::reopen() {
  writer_->between_writes([this] {
    if (!is_same_file(file_.get(), options_.path)) continue_in_new_file({});
  });
}

void AuditLog::continue_in_new_file(const std::string& before) {
  Result<AuditFd> next = open_to_append(options_.path);
  if (next && size_of(next->get()) > 0) next = invalid(fmt::format("{}: is not empty", options_.path));
  if (!next) {
    options_.log.error("audit_log_not_reopened", {{"reason", next.fault().message},
                                                  {"next", "lines go on into the old file; send SIGUSR1 again"}});
    return;
  }
  // What the next head covers must be on disk, in both files.
  ::fdatasync(file_.get());
  file_ = std::move(next).value();
  file_bytes_ = 0;
  file_first_ = 0;
  torn_ = 0;
  open_ended_ = false;
  std::vector<LogField> more;
  if (!before.empty()) more.emplace_back("before", std::filesystem::path(before).filename().native());
  const std::string continued = own_members("continued", more);
  lost_count_ += put({continued});
  sync_folder_of(options_.path);
}

void AuditLog::offer_head(Due due) {
  if (!options_.keep || head_.n == synced_n_) return;
  const auto now = std::chrono::steady_clock::now();
  if (due == Due::by_time && now - synced_at_ < options_.keep_every) return;
  if (::fdatasync(file_.get()) != 0) {
    options_.log.seldom(LogLevel::error, "audit_head_not_kept", {}, {{"reason", reason_of(options_.path, errno)}});
    return;
  }
  synced_at_ = now;
  synced_n_ = head_.n;
  {
    const std::lock_guard lock(keeper_mutex_);
    to_keep_ = head_;
  }
  keeper_wake_.notify_one();
}

bool AuditLog::keep_offered_head() {
  std::unique_lock lock(keeper_mutex_);
  if (to_keep_.n <= kept_n_) return true;
  const ChainHead head = to_keep_;
  lock.unlock();
  const Status kept = options_.keep(head);
  if (kept) {
    kept_n_ = head.n;
  } else {
    options_.log.seldom(LogLevel::warning, "audit_head_not_kept", {}, {{"reason", kept.fault().message}},
                        std::chrono::seconds(60));
  }
  return kept.ok();
}

void AuditLog::keep_heads() {
  auto look_at = std::chrono::steady_clock::now();
  for (;;) {
    if (std::chrono::steady_clock::now() >= look_at) {
      take_pending();
      look_at = std::chrono::steady_clock::now() + options_.look_every;
    }
    const bool kept = keep_offered_head();
    std::unique_lock lock(keeper_mutex_);
    if (ending_) return;
    const auto due = kept ? look_at : std::min(look_at, std::chrono::steady_clock::now() + options_.keep_every);
    keeper_wake_.wait_until(lock, due, [&] { return ending_ || (kept && to_keep_.n > kept_n_); });
    if (ending_) return;
  }
}

void AuditLog::take_pending() {
  if (!options_.take_pending) return;
  const Status taken = options_.take_pending([this](const AuditEvent& event) -> Status {
    const std::uint64_t lost = lost_count_;
    write(event);
    bool synced = false;
    writer_->between_writes([&] { synced = ::fdatasync(file_.get()) == 0; });
    if (synced && lost_count_ == lost) return ok_status();
    return unavailable(fmt::format("{} cannot be written", options_.path));
  });
  if (!taken)
    options_.log.seldom(LogLevel::warning, "audit_pending_not_read", {}, {{"reason", taken.fault().message}},
                        std::chrono::seconds(60));
}

AuditLog::Counts AuditLog::counts() const {
  const std::uint64_t kept = kept_n_;
  const std::uint64_t head = head_n_;
  return {written_count_, lost_count_, options_.keep && head > kept ? head - kept : 0};
}

} // namespace oncekey
