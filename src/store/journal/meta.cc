#include "store/journal/meta.h"

#include "base/faults.h"
#include "base/private_files.h"
#include "core/codec_parts.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kMagic = "ONCEKEY";

Result<StoreMeta> decode_meta(std::string_view bytes, std::string_view where) {
  StoreMeta meta;
  if (bytes.size() < kMagic.size() + sizeof meta.format + sizeof(std::uint64_t) || !bytes.starts_with(kMagic)) {
    return corrupt(fmt::format("the store at {} is damaged: its meta data is not oncekey's", where));
  }
  const std::optional<std::string_view> content = checked_content(bytes);
  if (!content) return corrupt(fmt::format("the store at {} is damaged: its meta data fails its checksum", where));
  codec::Cursor cursor(content->substr(kMagic.size()));
  meta.format = cursor.number<std::uint32_t>();
  if (meta.format > kStoreFormat) {
    return newer_format(fmt::format("the store at {}", where), meta.format, kStoreFormat);
  }
  codec::each(cursor, meta.id, meta.secret_check);
  if (meta.format != kStoreFormat || !cursor.ok() || !cursor.at_end()) {
    return corrupt(fmt::format("the store at {} is damaged: its meta data has the wrong shape", where));
  }
  return meta;
}

constexpr std::size_t kMetaFileBytesMax = 1024;

std::string meta_path(const std::string& folder) { return fmt::format("{}/{}", folder, kMetaFile); }
std::string secret_path(const std::string& folder) { return fmt::format("{}/{}", folder, kSecretFile); }

Result<Secret> load_secret(const std::string& folder, const HashBytes& check, const Sealer* sealer) {
  const std::string path = secret_path(folder);
  const Result<std::optional<Secret>> secret = read_secret(folder, sealer);
  if (!secret) return secret.fault();
  if (!*secret) {
    return corrupt(
        fmt::format("{} is missing. All keys of this store are hashed with the secret in it: put the file back from a "
                    "backup of the folder. If it is gone for good, so are all keys: move the folder away to start "
                    "with an empty store, in which every retry is executed again",
                    path));
  }
  if (secret_check(**secret) != check) {
    return corrupt(
        fmt::format("{} is the secret of another store: with it no key of this one would be found, and every retry "
                    "would be executed again. Put the store's own file back from a backup of the folder",
                    path));
  }
  return **secret;
}

Result<StoreMeta> make_meta(const std::string& folder, const Sealer* sealer) {
  StoreMeta meta;
  meta.made_now = true;
  fill_random(meta.id);
  // The secret is durable before anything names it. A crash in between leaves a secret without a store: it is used.
  fill_random(meta.secret);
  const std::string path = secret_path(folder);
  const Result<std::string> text = make_private_file_once(path, secret_line(meta.secret, sealer));
  if (!text) return text.fault();
  const Result<Secret> secret = parse_secret_line(*text, path, sealer);
  if (!secret) return secret.fault();
  meta.secret = *secret;
  meta.secret_check = secret_check(meta.secret);
  const std::string bytes = encode_meta(meta.format, meta.id, meta.secret_check);
  if (const Status written = replace_private_file(meta_path(folder), bytes, Sync::yes); !written)
    return written.fault();
  return meta;
}

} // namespace

std::string encode_meta(std::uint32_t format, const StoreId& id, const HashBytes& secret_check) {
  std::string bytes(kMagic);
  codec::each(bytes, format, id, secret_check);
  codec::put_checksum(bytes, 0);
  return bytes;
}

Result<StoreMeta> load_or_make_meta(StoreAge age, const std::string& folder, const Sealer* sealer) {
  const Result<std::optional<std::string>> bytes = read_file_if_there(meta_path(folder), kMetaFileBytesMax);
  if (!bytes) return bytes.fault();
  if (!*bytes) {
    if (age == StoreAge::is_new) return make_meta(folder, sealer);
    return corrupt(fmt::format("the store at {} is damaged: it has records but no meta data", folder));
  }
  Result<StoreMeta> meta = decode_meta(**bytes, folder);
  if (!meta) return meta;
  const Result<Secret> secret = load_secret(folder, meta->secret_check, sealer);
  if (!secret) return secret.fault();
  meta->secret = *secret;
  return meta;
}

Result<StoreMeta> read_meta(const std::string& folder) {
  const Result<std::optional<std::string>> bytes = read_file_if_there(meta_path(folder), kMetaFileBytesMax);
  if (!bytes) return bytes.fault();
  if (!*bytes) return corrupt(fmt::format("the store at {} is damaged: it has no meta data", folder));
  return decode_meta(**bytes, folder);
}

Status check_journal_format(const std::string& folder) {
  const Result<std::optional<std::string>> bytes = read_file_if_there(meta_path(folder), kMetaFileBytesMax);
  if (!bytes) return bytes.fault();
  if (!*bytes) return ok_status();
  const Result<StoreMeta> meta = decode_meta(**bytes, folder);
  return meta ? ok_status() : Status(meta.fault());
}

Result<std::optional<Secret>> read_secret(const std::string& folder, const Sealer* sealer) {
  const std::string path = secret_path(folder);
  const Result<std::optional<std::string>> text = read_file_if_there(path, kSecretFileBytesMax);
  if (!text) return text.fault();
  if (!*text) return std::optional<Secret>();
  Result<Secret> secret = parse_secret_line(**text, path, sealer);
  if (!secret) return std::move(secret).fault();
  return std::optional<Secret>(*secret);
}

} // namespace oncekey
