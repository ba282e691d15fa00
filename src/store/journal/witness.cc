#include "store/journal/witness.h"

#include "base/private_files.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <filesystem>
#include <sstream>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kWitnessFormat = "oncekey witness 1 ";
constexpr std::size_t kWitnessBytesMax = 1024;

} // namespace

// "oncekey witness 1 ID SEQUENCE CHECKSUM\n"
std::string encode_witness(const StoreAt& at) {
  const std::string content = fmt::format("{}{} {} ", kWitnessFormat, at.id, at.sequence);
  return fmt::format("{}{:016x}\n", content, XXH3_64bits(content.data(), content.size()));
}

std::optional<StoreAt> decode_witness(std::string_view bytes) {
  if (!bytes.starts_with(kWitnessFormat)) return std::nullopt;
  std::istringstream words{std::string(bytes.substr(kWitnessFormat.size()))};
  StoreAt at;
  words >> at.id >> at.sequence;
  if (!words || encode_witness(at) != bytes) return std::nullopt;
  return at;
}

std::optional<std::string> what_is_missing(const StoreAt& witness, const StoreAt& store) {
  if (witness.id != store.id) {
    return fmt::format("it is store {} and was store {}, as when the folder was emptied or exchanged", store.id,
                       witness.id);
  }
  if (store.sequence < witness.sequence) {
    return fmt::format("its newest write is number {} and was number {}, as when an older copy was put back",
                       store.sequence, witness.sequence);
  }
  return std::nullopt;
}

Witness::Witness(const std::string& folder) {
  std::error_code error;
  std::filesystem::path path = std::filesystem::absolute(folder, error).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  path_ = path.native() + ".witness";
}

Result<std::optional<StoreAt>> Witness::read() const {
  struct stat file {};
  const uid_t self = ::geteuid();
  if (::stat(path_.c_str(), &file) == 0 && file.st_uid != self && file.st_uid != 0 && self != 0) {
    return invalid(fmt::format("{} belongs to user {}, who is neither root nor user {} of this process", path_,
                               file.st_uid, self));
  }
  Result<std::optional<std::string>> bytes = read_file_if_there(path_, kWitnessBytesMax);
  if (!bytes) return std::move(bytes).fault();
  if (!*bytes) return std::optional<StoreAt>();
  std::optional<StoreAt> at = decode_witness(**bytes);
  if (!at) return corrupt(fmt::format("{} is not a whole witness, as after a power cut", path_));
  return at;
}

Status Witness::write(const StoreAt& at) const { return replace_private_file(path_, encode_witness(at), Sync::no); }

} // namespace oncekey
