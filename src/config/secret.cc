#include "config/secret.h"

#include "base/faults.h"

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace oncekey {

Result<std::string> secret_kept_elsewhere(std::string_view text) {
  if (text.starts_with("env:") || text.starts_with("file:")) return resolve_secret(text);
  return invalid(
      "write \"env:NAME\" or \"file:PATH\": a secret is kept out of this file, and a name without its env: would be "
      "taken for the secret itself");
}

Result<std::string> resolve_secret(std::string_view text) {
  if (text.starts_with("env:")) {
    const char* value = std::getenv(std::string(text.substr(4)).c_str());
    if (value == nullptr || *value == '\0') return invalid("the environment variable {} is not set", text.substr(4));
    return std::string(value);
  }
  if (text.starts_with("file:")) {
    errno = 0;
    std::ifstream file{std::string(text.substr(5))};
    std::string line;
    if (!file.is_open() || (!std::getline(file, line) && errno != 0))
      return invalid("the file {} cannot be read: {}", text.substr(5), std::strerror(errno));
    if (line.empty()) return invalid("the first line of the file {} is empty", text.substr(5));
    if (line.back() == '\r') line.pop_back();
    return line;
  }
  return std::string(text);
}

} // namespace oncekey
