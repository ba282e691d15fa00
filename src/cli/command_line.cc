#include "cli/command_line.h"

#include "config/suggestion.h"

#include <CLI/CLI.hpp>

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

namespace oncekey {
namespace {

std::vector<std::string> subcommands_of(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* const one : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(one->get_name());
  return names;
}

// The options of a command and of the commands before it: both `oncekey keys --json list` and `oncekey keys list
// --json` are accepted.
std::vector<std::string> options_of(const CLI::App* app) {
  std::vector<std::string> names;
  for (; app != nullptr; app = app->get_parent()) {
    for (const CLI::Option* const option : app->get_options()) {
      for (const std::string& name : option->get_lnames()) names.push_back(name);
    }
  }
  return names;
}

std::string nearest(std::string_view written, const std::vector<std::string>& known, std::string_view prefix) {
  std::vector<std::string> spelled;
  for (const std::string& name : known) spelled.push_back(fmt::format("{}{}", prefix, name));
  const std::vector<std::string_view> views(spelled.begin(), spelled.end());
  // Without the quotes that a setting of the file has.
  std::string suggestion = did_you_mean(written, views);
  std::erase(suggestion, '"');
  return suggestion;
}

std::string whole_name(const CLI::App& app) {
  if (app.get_parent() == nullptr) return app.get_name();
  return fmt::format("{} {}", whole_name(*app.get_parent()), app.get_name());
}

} // namespace

std::vector<std::string> arguments_of(int argc, const char* const* argv) {
  std::vector<std::string> words(argv + 1, argv + argc);
  if (words.empty()) return words;
  if (words.front() == "version" && words.size() == 1) return {"--version"};
  if (words.front() == "help") {
    words.erase(words.begin());
    words.emplace_back("--help");
  }
  return words;
}

std::string unknown_help(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "help") return {};
  const CLI::App* at = &app;
  for (int i = 2; i < argc && argv[i][0] != '-'; ++i) {
    const std::string_view word = argv[i];
    const auto all = at->get_subcommands([](const CLI::App*) { return true; });
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const CLI::App* one) { return one->get_name() == word; });
    if (found == all.end()) {
      const std::string name = whole_name(*at);
      return fmt::format("{}: there is no subcommand \"{}\"{} ({} --help lists them)", name, word,
                         nearest(word, subcommands_of(*at), ""), name);
    }
    at = *found;
  }
  return {};
}

std::string not_understood(const CLI::App& app) {
  // CLI11 passes words that a subcommand does not know to the command before it.
  std::vector<std::string> rest = app.remaining();
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    for (std::string& word : at->remaining()) rest.push_back(std::move(word));
  }
  if (rest.empty()) return {};
  const std::string name = whole_name(*at);
  const auto is_option = [](const std::string& word) { return word.size() > 1 && word[0] == '-'; };
  const std::vector<std::string> known = subcommands_of(*at);
  if (!known.empty() && !is_option(rest.front()))
    return fmt::format("{}: there is no subcommand \"{}\"{} ({} --help lists them)", name, rest.front(),
                       nearest(rest.front(), known, ""), name);
  if (const auto option = std::find_if(rest.begin(), rest.end(), is_option); option != rest.end()) {
    const std::string written = option->substr(0, option->find('='));
    return fmt::format("{}: there is no option {}{} ({} --help lists them)", name, written,
                       nearest(written, options_of(at), "--"), name);
  }
  return fmt::format("{}: the argument \"{}\" is one too many; {} --help shows what it takes", name, rest.front(),
                     name);
}

} // namespace oncekey
