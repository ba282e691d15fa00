// command_line: errors about a command line that cannot be understood.
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

// One line about the first word that is not understood (an unknown option, an unknown subcommand, a surplus argument),
// with the nearest known word. Empty if all words are known: then CLI11's own error says what is wrong.
std::string not_understood(const CLI::App& app);

} // namespace oncekey
