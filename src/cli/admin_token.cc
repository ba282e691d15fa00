#include "cli/admin_token.h"

#include "base/crypto.h"
#include "base/private_files.h"
#include "store/open_store.h"

#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kTokenFile = "admin-token";
constexpr std::size_t kTokenFileBytesMax = 4096;
// As for `admin_token` in the configuration.
constexpr std::size_t kShortestToken = 16;

std::string environment(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::string> first_line(std::string_view content, const std::string& file) {
  const std::string_view line = content.substr(0, content.find_first_of("\r\n"));
  if (line.size() >= kShortestToken) return std::string(line);
  return invalid(
      fmt::format("the admin token in {} has {} characters and needs at least {}: remove the file, and the next start "
                  "makes a new one",
                  file, line.size(), kShortestToken));
}

} // namespace

std::string admin_token_file(std::string_view store_url) {
  if (const std::optional<std::string> folder = folder_of_store(store_url)) {
    return (std::filesystem::path(*folder) / kTokenFile).native();
  }
  std::filesystem::path state = environment("XDG_STATE_HOME");
  if (state.empty()) {
    state = environment("HOME");
    if (state.empty()) return "";
    state /= ".local/state";
  }
  return (state / "oncekey" / kTokenFile).native();
}

Result<std::string> load_admin_token(const std::string& file) {
  const Result<std::optional<std::string>> content = read_file_if_there(file, kTokenFileBytesMax);
  if (!content) return content.fault();
  return *content ? first_line(**content, file) : std::string();
}

Result<std::string> load_or_make_admin_token(const std::string& file) {
  if (const Status narrowed = make_private(file); !narrowed) return narrowed.fault();
  Result<std::string> there = load_admin_token(file);
  if (!there || !there->empty()) return there;
  const std::string folder = std::filesystem::path(file).parent_path().native();
  if (const Status made = make_private_folder(folder); !made) return made.fault();
  // Another gateway of this user may be starting at the same moment.
  const Result<std::string> content = make_private_file_once(file, new_admin_token() + "\n");
  if (!content) return content.fault();
  return first_line(*content, file);
}

std::string new_admin_token() {
  std::array<std::uint8_t, 32> bytes{};
  fill_random(bytes);
  return hex_encode({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

Status find_admin_token(Config& config, Log& log) {
  if (!config.admin_token.empty()) return ok_status();
  const std::string file = admin_token_file(config.store);
  Result<std::string> token = file.empty() ? Result<std::string>(unavailable("neither XDG_STATE_HOME nor HOME is set"))
                                           : load_or_make_admin_token(file);
  if (token) {
    config.admin_token = *std::move(token);
    log.info("admin_token", {{"file", file}});
    return ok_status();
  }
  if (token.fault().kind == FaultKind::invalid) return token.fault();
  // Requests are served all the same; only operators are shut out.
  config.admin_token = new_admin_token();
  log.warning("admin_token_not_kept", {{"reason", token.fault().message},
                                       {"meaning", "the admin listener answers health and metrics only"},
                                       {"next", "set admin_token, or let this user write there"}});
  return ok_status();
}

} // namespace oncekey
