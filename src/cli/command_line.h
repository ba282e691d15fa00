// command_line: what to say when the words after `oncekey` cannot be understood.
#pragma once

#include <string>
#include <vector>

namespace CLI {
class App;
} // namespace CLI

namespace oncekey {

// The command line as given, with `oncekey help COMMAND` and `oncekey version` as the flags they stand for.
std::vector<std::string> arguments_of(int argc, const char* const* argv);

// What is wrong with the words after `help`, with a suggestion; empty if they name a command.
std::string unknown_help(const CLI::App& app, int argc, const char* const* argv);

// One line about the first word that could not be understood, with the nearest word that could: an unknown option, an
// unknown subcommand, or an argument that is one too many. Empty if the words are all known; what is wrong is then for
// CLI11 to say.
std::string not_understood(const CLI::App& app);

} // namespace oncekey
