#include "config/load.h"

#include "config/identity_files.h"
#include "config/settings.h"

#include <sys/stat.h>

#include <set>
#include <variant>

namespace oncekey {
namespace {

// Large enough for a thousand routes. The bound keeps a disk or a log that is named by mistake out of memory.
constexpr std::size_t kLargestFile = 1u << 20;

// Puts what flags say in the place of what the file says.
void place(toml::table& table, const ServeFlags& flags) {
  for (const auto& [setting, text] : flags.texts)
    if (text) table.insert_or_assign(setting, *text);
  if (flags.threads) table.insert_or_assign("threads", std::int64_t{*flags.threads});
  toml::array scope;
  for (const std::string& source : flags.scope) scope.push_back(source);
  if (!scope.empty()) table.insert_or_assign("scope", std::move(scope));
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

Result<std::string> text_of_file(const std::string& path) {
  // Reading a FIFO could wait for ever. A folder gets its own error message below.
  struct stat entry {};
  if (::stat(path.c_str(), &entry) == 0 && !S_ISREG(entry.st_mode) && !S_ISDIR(entry.st_mode))
    return invalid("is not a regular file: give the path of a TOML file");
  return read_whole(path, kLargestFile, ": is this the right file?");
}

} // namespace

std::string shown(const Finding& finding, std::string_view file_name) {
  if (finding.line != 0) return fmt::format("{}:{}: {}", file_name, finding.line, finding.text);
  if (finding.setting.empty() && !file_name.empty()) return fmt::format("{}: {}", file_name, finding.text);
  return finding.text;
}

ReadConfig read_config_text(std::string_view text, std::string_view file_name, NamedFiles files,
                            const ServeFlags& flags) {
  auto parsed = parse_toml(text, file_name);
  if (auto* const finding = std::get_if<Finding>(&parsed)) return {std::string(file_name), {}, {std::move(*finding)}};
  place(std::get<toml::table>(parsed), flags);
  return read_settings(std::get<toml::table>(parsed), file_name, files);
}

ReadConfig read_config(const ServeFlags& flags, NamedFiles files) {
  if (!flags.config) {
    const auto token = flags.texts.find("admin_token");
    const bool visible = token != flags.texts.end() && token->second && !token->second->starts_with("env:") &&
                         !token->second->starts_with("file:");
    if (!visible) return read_config_text("", "", files, flags);
    return {"",
            {},
            {{0, "admin_token",
              "--admin-token: write env:NAME or file:PATH: an argument is visible to every user of the machine"}}};
  }
  static const std::set<std::string_view> kAllowedBesideAFile{"listen", "admin", "upstream", "store"};
  ReadConfig refused{*flags.config, {}, {}};
  toml::table given;
  place(given, flags);
  for (const auto& [key, value] : given) {
    if (kAllowedBesideAFile.contains(key.str())) continue;
    std::string setting(key.str());
    std::string text =
        fmt::format("{}: contradicts --config: change {} in {} instead", as_flag(setting), setting, *flags.config);
    refused.findings.push_back({0, std::move(setting), std::move(text)});
  }
  if (!refused.findings.empty()) return refused;
  const Result<std::string> text = text_of_file(*flags.config);
  if (!text) return {*flags.config, {}, {{0, {}, text.fault().message}}};
  return read_config_text(*text, *flags.config, files, flags);
}

Result<Config> load_admin_settings(const std::string& path) {
  const Result<std::string> text = text_of_file(path);
  if (!text) return invalid("{}: {}", path, text.fault().message);
  const auto parsed = parse_toml(*text, path);
  if (const auto* const finding = std::get_if<Finding>(&parsed)) return invalid(shown(*finding, path));
  const toml::table* const table = &std::get<toml::table>(parsed);
  Config config;
  for (const std::string_view name :
       {"admin", "admin_token", "admin_tls_cert", "store", "encryption_key_file", "audit_log", "gateway_name"}) {
    const toml::node* const value = table->get(name);
    if (value == nullptr) continue;
    if (const Status read = find_setting(gateway_settings(), name)->read(*value, config); !read)
      return invalid("{}:{}: {}: {}", path, value->source().begin.line, name, read.fault().message);
  }
  return config;
}

} // namespace oncekey
