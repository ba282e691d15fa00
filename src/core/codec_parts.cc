#include "core/codec_parts.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <bit>

namespace oncekey::codec {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian and written by plain copies");

constexpr std::size_t kChecksumBytes = 8;

} // namespace

void put_checksum(std::string& out, std::size_t begin) {
  field<std::uint64_t>(out, XXH3_64bits(out.data() + begin, out.size() - begin));
}

Result<Cursor> content_of(std::string_view bytes, std::string_view what, std::uint8_t newest_format) {
  if (bytes.size() < 1 + kChecksumBytes) return corrupt(fmt::format("a stored {} is damaged: it is cut short", what));
  const std::string_view content = bytes.substr(0, bytes.size() - kChecksumBytes);
  std::uint64_t checksum;
  std::memcpy(&checksum, bytes.data() + content.size(), kChecksumBytes);
  if (XXH3_64bits(content.data(), content.size()) != checksum) {
    return corrupt(fmt::format("a stored {} is damaged: its checksum does not match its bytes", what));
  }
  Cursor cursor(content);
  const std::uint8_t format = cursor.number<std::uint8_t>();
  if (format > newest_format) {
    return Fault{FaultKind::newer_format,
                 fmt::format("a stored {} has format version {}, and this version of oncekey reads up to {}: it was "
                             "written by a newer oncekey, run that one or a later one on this store",
                             what, format, newest_format)};
  }
  if (format != newest_format) {
    return corrupt(fmt::format("a stored {} has the unknown format version {}", what, format));
  }
  return cursor;
}

Fault misshapen(std::string_view what) {
  return corrupt(fmt::format("a stored {0} is damaged: its bytes do not have the shape of a {0}", what));
}

} // namespace oncekey::codec
