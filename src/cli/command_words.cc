#include "cli/command_words.h"

#include "core/policy.h"

#include <algorithm>

namespace oncekey {
namespace {

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The words of an option that CLI11 does not check, because the configuration does.
std::vector<std::string> words_of_setting(std::string_view name) {
  if (name == "--log-level") return {"debug", "info", "warning", "error"};
  if (name == "--require-durability") return {"power", "process"};
  if (name != "--policy") return {};
  std::vector<std::string> names;
  for (const std::string_view policy : policy_names()) names.emplace_back(policy);
  return names;
}

// {waiting,taken} in "TEXT:{waiting,taken}".
std::vector<std::string> checked_words(const std::string& type) {
  const std::size_t begin = type.find('{');
  const std::size_t end = type.find('}');
  if (begin == std::string::npos || end == std::string::npos) return {};
  return CLI::detail::split(type.substr(begin + 1, end - begin - 1), ',');
}

bool is_file(std::string_view name, std::string_view type) {
  return type.starts_with("FILE") || name.ends_with("-file") || name.ends_with("-ca") || name == "--cacert" ||
         name == "--config" || name == "--journal" || name == "--output";
}

OptionWords words_of(const CLI::Option& option) {
  OptionWords out;
  for (const std::string& name : option.get_lnames()) out.names.push_back("--" + name);
  for (const std::string& name : option.get_snames()) out.names.push_back("-" + name);
  out.description = summary_of(option.get_description());
  if (option.get_items_expected_max() == 0) return out;
  out.words = checked_words(option.get_type_name());
  if (out.words.empty()) out.words = words_of_setting(out.names.front());
  out.value = !out.words.empty()                                   ? TakenValue::word
              : is_file(out.names.front(), option.get_type_name()) ? TakenValue::file
                                                                   : TakenValue::any;
  return out;
}

void collect(const CLI::App& app, const std::string& before, std::vector<CommandWords>& commands) {
  CommandWords command;
  command.path = before.empty() ? app.get_name() : before + " " + app.get_name();
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* const option : at->get_options()) {
      if (!option->nonpositional()) {
        command.takes_file = command.takes_file || option->get_name() == "FILE";
        continue;
      }
      // --help of a command hides that of the command before it; --version is the application's alone.
      OptionWords one = words_of(*option);
      const bool known = std::any_of(command.options.begin(), command.options.end(),
                                     [&](const OptionWords& other) { return other.names == one.names; });
      if (!known && (at == &app || at->get_parent() != nullptr)) command.options.push_back(std::move(one));
    }
  }
  // `oncekey help COMMAND`.
  command.subcommands = subcommands_of(app.get_name() == "help" ? *app.get_parent() : app);
  const std::string path = command.path;
  commands.push_back(std::move(command));
  for (const CLI::App* const next : subcommands_of(app)) collect(*next, path, commands);
}

} // namespace

std::vector<CommandWords> command_words(const CLI::App& app) {
  std::vector<CommandWords> commands;
  collect(app, "", commands);
  return commands;
}

std::string summary_of(const std::string& description) { return description.substr(0, description.find('\n')); }

} // namespace oncekey
