#include "config/load.h"

#include "config/reader.h"
#include "config/settings.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>

namespace oncekey {
namespace {

// Large enough for a thousand routes. The bound keeps a disk or a log that is named by mistake out of memory.
constexpr std::size_t kLargestFile = 1u << 20;

void place(toml::table& table, const Override& flag) {
  if (const auto* text = std::get_if<std::string>(&flag.value)) {
    table.insert_or_assign(flag.setting, *text);
  } else if (const auto* number = std::get_if<std::int64_t>(&flag.value)) {
    table.insert_or_assign(flag.setting, *number);
  } else if (const auto* texts = std::get_if<std::vector<std::string>>(&flag.value)) {
    toml::array list;
    for (const std::string& item : *texts) list.push_back(item);
    table.insert_or_assign(flag.setting, std::move(list));
  }
}

std::variant<toml::table, Finding> parse_toml(std::string_view text, std::string_view file_name) {
  try {
    return toml::table(toml::parse(text, file_name));
  } catch (const toml::parse_error& error) {
    return Finding{error.source().begin.line,
                   {},
                   fmt::format("not valid TOML: {} (text needs quotes on both sides)", error.description())};
  }
}

} // namespace

ReadConfig read_config_text(std::string_view text, std::string_view file_name, const std::vector<Override>& overrides,
                            NamedFiles files) {
  auto parsed = parse_toml(text, file_name);
  if (auto* const finding = std::get_if<Finding>(&parsed))
    return {std::string(file_name), {}, {std::move(*finding)}, {}};
  toml::table& table = std::get<toml::table>(parsed);
  for (const Override& flag : overrides) place(table, flag);
  return Reader(file_name, files).read(table);
}

namespace {

Result<std::string> text_of_file(const std::string& path) {
  // Reading a FIFO could wait for ever. A folder gets its own error message below.
  struct stat entry {};
  if (::stat(path.c_str(), &entry) == 0 && !S_ISREG(entry.st_mode) && !S_ISDIR(entry.st_mode))
    return invalid("is not a regular file: give the path of a TOML file");
  errno = 0;
  std::ifstream file(path, std::ios::binary);
  std::string text(kLargestFile + 1, '\0');
  if (file) file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (!file.is_open() || file.bad())
    return invalid(fmt::format("cannot be read: {}", errno != 0 ? std::strerror(errno) : "input error"));
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kLargestFile) return invalid("larger than 1 MiB: is this the right file?");
  return text;
}

constexpr std::array<std::string_view, 4> kAdminSettings{"admin", "admin_token", "admin_tls_cert", "store"};

} // namespace

ReadConfig read_config_file(const std::string& path, const std::vector<Override>& overrides, NamedFiles files) {
  const Result<std::string> text = text_of_file(path);
  if (!text) return {path, {}, {Finding{0, {}, text.fault().message}}, {}};
  return read_config_text(*text, path, overrides, files);
}

Result<Config> load_admin_settings(const std::string& path) {
  const Result<std::string> text = text_of_file(path);
  if (!text) return invalid(fmt::format("{}: {}", path, text.fault().message));
  const auto parsed = parse_toml(*text, path);
  if (const auto* const finding = std::get_if<Finding>(&parsed)) return invalid(shown(*finding, path));
  const toml::table* const table = &std::get<toml::table>(parsed);
  Config config;
  for (const Setting<Config>& setting : gateway_settings()) {
    const toml::node* const value = table->get(setting.name);
    const bool wanted = std::find(kAdminSettings.begin(), kAdminSettings.end(), setting.name) != kAdminSettings.end();
    if (value == nullptr || !wanted) continue;
    if (const Status read = setting.read(*value, config); !read)
      return invalid(
          fmt::format("{}:{}: {}: {}", path, value->source().begin.line, setting.name, read.fault().message));
  }
  return config;
}

Result<Config> parse_config(std::string_view text, std::string_view file_name) {
  return config_or_fault(read_config_text(text, file_name, {}, NamedFiles::left_alone));
}

Result<Config> load_config(const std::string& path) {
  return config_or_fault(read_config_file(path, {}, NamedFiles::left_alone));
}

} // namespace oncekey
