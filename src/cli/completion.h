// completion: the scripts that let a shell complete the command line.
//
// They are made from the definition of the command line itself, so that a new option is completed without a further
// line here. A script finds the command that the words before the cursor name, and offers its subcommands, its options
// (those of the commands before it too, as both places are accepted), file names, or the words an option takes.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <string_view>

namespace oncekey {

enum class Shell { bash, zsh, fish };

// `app` is the whole application.
std::string completion_script(const CLI::App& app, Shell shell);

} // namespace oncekey
