#include "cli/subcommand.h"

#include <oncekey/database.h>

#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <filesystem>
#include <iostream>

namespace oncekey {
namespace {

bool ask_on_the_terminal(const std::string& question) {
  std::cerr << question << " [y/N] " << std::flush;
  std::string answer;
  return std::getline(std::cin, answer) && (answer == "y" || answer == "Y" || answer == "yes");
}

} // namespace

std::size_t terminal_width(int descriptor) {
  // What a terminal has that does not tell its size, as in some containers.
  constexpr std::size_t kUsualWidth = 80;
  if (::isatty(descriptor) != 1) return 0;
  winsize window{};
  return ::ioctl(descriptor, TIOCGWINSZ, &window) == 0 && window.ws_col > 0 ? window.ws_col : kUsualWidth;
}

Console standard_console() {
  const bool has_terminal = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDERR_FILENO) == 1;
  return Console{std::cout, std::cerr, has_terminal ? ask_on_the_terminal : nullptr, terminal_width(STDOUT_FILENO),
                 &std::cin};
}

int Subcommand::complain(const Console& console, std::string_view message, int exit_code) const {
  console.err << "oncekey " << command_->get_name() << ": " << message << "\n";
  return exit_code;
}

Result<std::unique_ptr<Database>> open_library_database(const std::string& url) {
  constexpr std::string_view kSqlite = "sqlite:";
  const std::string path = url.starts_with(kSqlite) ? url.substr(kSqlite.size()) : "";
  std::error_code ignored;
  // Opening would make an empty database, without any work in it.
  if (!path.empty() && !std::filesystem::exists(path, ignored))
    return unavailable(fmt::format("there is no database {}: start the application first, which makes it", path));
  auto database = open_database(url);
  if (!database) return std::move(database).fault();
  if (const Status migrated = (*database)->migrate(); !migrated) return migrated.fault();
  return database;
}

} // namespace oncekey
