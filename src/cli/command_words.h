// command_words: every word that the command line knows, read from its definition.
#pragma once

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace oncekey {

// What an option takes behind its name: nothing, a text that cannot be guessed, a file, or one of some words.
enum class TakenValue { none, any, file, word };

struct OptionWords {
  std::vector<std::string> names; // with their dashes, the long one first
  std::string description;
  TakenValue value = TakenValue::none;
  std::vector<std::string> words; // for TakenValue::word
};

struct CommandWords {
  std::string path;                           // "oncekey keys list"
  std::vector<OptionWords> options;           // with those of the commands before it
  std::vector<const CLI::App*> subcommands{}; // they belong to the application
  bool takes_file = false;                    // as an argument
};

// Every command of the application, each before its subcommands; the application itself is the first.
std::vector<CommandWords> command_words(const CLI::App& app);

// The first line of a description.
std::string summary_of(const std::string& description);

} // namespace oncekey
