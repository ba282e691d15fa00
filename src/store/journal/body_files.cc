#include "store/journal/body_files.h"

#include "base/crypto.h"
#include "base/private_files.h"
#include "core/codec_parts.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <pthread.h>

#include <charconv>
#include <system_error>
#include <utility>

namespace oncekey {
namespace {

constexpr std::size_t kQueuedBytesMax = std::size_t{256} << 20;
constexpr char kReferenceMark = '\xff';

} // namespace

void encode_body_reference(const BodyReference& reference, std::string& out) {
  out.push_back(kReferenceMark);
  codec::each(out, reference.number, reference.bytes, reference.checksum);
}

std::optional<BodyReference> take_body_reference(std::string_view& value) {
  if (value.size() < kBodyReferenceBytes || value.front() != kReferenceMark) return std::nullopt;
  codec::Cursor cursor(value.substr(1));
  BodyReference reference;
  codec::each(cursor, reference.number, reference.bytes, reference.checksum);
  value.remove_prefix(kBodyReferenceBytes);
  return reference;
}

BodyFiles::BodyFiles(std::string folder) : folder_(std::move(folder)), thread_([this] { run(); }) {}

BodyFiles::~BodyFiles() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  asked_for_.notify_one();
  thread_.join();
}

Result<std::unique_ptr<BodyFiles>> BodyFiles::open(std::string folder) {
  if (const Status made = make_private_folder(folder); !made) return made.fault();
  std::unique_ptr<BodyFiles> files(new BodyFiles(std::move(folder)));
  std::error_code error;
  for (std::filesystem::directory_iterator at(files->folder_, error), end; !error && at != end; at.increment(error)) {
    if (at->path().extension() == ".new") {
      std::filesystem::remove(at->path(), error); // a crash has left it
    } else {
      files->bytes_ += at->file_size(error);
    }
  }
  if (error) return unavailable(fmt::format("{} cannot be read: {}", files->folder_, error.message()));
  return files;
}

std::string BodyFiles::path_of(BodyFileKind kind, const RecordId& id, std::uint64_t number) const {
  return fmt::format("{}/{}-{}-{:016x}", folder_, static_cast<char>(kind), to_hex(id), number);
}

void BodyFiles::write(BodyFileKind kind, const RecordId& id, std::string bytes, Written done) {
  bool has_room = false;
  {
    const std::lock_guard lock(mutex_);
    has_room = queued_bytes_ <= kQueuedBytesMax;
    if (has_room) {
      queued_bytes_ += bytes.size();
      queue_.push_back({kind, id, std::move(bytes), std::move(done)});
    }
  }
  if (!has_room) return done(unavailable("the store is overloaded: too many large bodies wait for its disk"));
  asked_for_.notify_one();
}

void BodyFiles::run() {
  pthread_setname_np(pthread_self(), "bodies");
  std::unique_lock lock(mutex_);
  for (;;) {
    asked_for_.wait(lock, [this] { return !queue_.empty() || stopping_; });
    if (queue_.empty()) return;
    Asked next = std::move(queue_.front());
    queue_.pop_front();
    queued_bytes_ -= next.bytes.size();
    const std::uint64_t number = random_u64();
    under_way_ = number;
    lock.unlock();
    next.done(write(next, number));
    next = {};
    lock.lock();
    under_way_.reset();
  }
}

Result<BodyReference> BodyFiles::write(const Asked& asked, std::uint64_t number) {
  const Status made = replace_private_file(path_of(asked.kind, asked.id, number), asked.bytes, Sync::yes);
  if (!made) return made.fault();
  bytes_ += asked.bytes.size();
  return BodyReference{number, asked.bytes.size(), XXH3_64bits(asked.bytes.data(), asked.bytes.size())};
}

Result<std::string> BodyFiles::read(BodyFileKind kind, const RecordId& id, const BodyReference& reference) const {
  const std::string path = path_of(kind, id, reference.number);
  Result<std::optional<std::string>> content = read_file_if_there(path, reference.bytes);
  if (!content) return std::move(content).fault();
  if (!*content) return corrupt(fmt::format("{} is missing", path));
  std::string& bytes = **content;
  if (bytes.size() != reference.bytes || XXH3_64bits(bytes.data(), bytes.size()) != reference.checksum)
    return corrupt(fmt::format("{} is damaged: its checksum does not match its bytes", path));
  return std::move(bytes);
}

void BodyFiles::sweep(std::size_t at_most, const IsReferredTo& is_referred_to) {
  namespace fs = std::filesystem;
  std::error_code error;
  if (swept_ == fs::directory_iterator()) swept_ = fs::directory_iterator(folder_, error);
  for (; at_most > 0 && !error && swept_ != fs::directory_iterator(); --at_most, swept_.increment(error)) {
    const std::string name = swept_->path().filename().native();
    constexpr std::size_t kIdAt = 2;
    constexpr std::size_t kNumberAt = kIdAt + 64 + 1;
    if (name.size() != kNumberAt + 16 || (name[0] != 'r' && name[0] != 'm')) continue;
    const std::optional<RecordId> id = record_id_from_hex(name.substr(kIdAt, 64));
    std::uint64_t number = 0;
    const char* const end = name.data() + name.size();
    const auto read = std::from_chars(name.data() + kNumberAt, end, number, 16);
    if (!id || read.ptr != end) continue;
    {
      const std::lock_guard lock(mutex_);
      if (under_way_ == number) continue;
    }
    if (is_referred_to(static_cast<BodyFileKind>(name[0]), *id, number)) continue;
    const std::uint64_t bytes = swept_->file_size(error);
    if (fs::remove(swept_->path(), error)) bytes_ -= bytes;
  }
  if (error) swept_ = {};
}

} // namespace oncekey
