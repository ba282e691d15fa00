#include "cli/completion.h"

#include "cli/subcommand.h"
#include "core/policy.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

namespace oncekey {
namespace {

enum class TakenValue { none, any, file, word };

struct CompletedOption {
  std::vector<std::string> names; // with their dashes, the long one first
  std::string description;
  TakenValue value = TakenValue::none;
  std::vector<std::string> words; // for TakenValue::word
};

struct CompletedCommand {
  std::string path;                           // "oncekey keys list"
  std::vector<CompletedOption> options;       // with those of the commands before it
  std::vector<const CLI::App*> subcommands{}; // by their names
  bool takes_file = false;                    // as an argument
};

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
}

// The first line of a description.
std::string summary_of(const std::string& text) { return text.substr(0, text.find('\n')); }

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

CompletedOption completed(const CLI::Option& option) {
  CompletedOption out;
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

void collect(const CLI::App& app, const std::string& before, std::vector<CompletedCommand>& commands) {
  CompletedCommand command;
  command.path = before.empty() ? app.get_name() : before + " " + app.get_name();
  for (const CLI::App* at = &app; at != nullptr; at = at->get_parent()) {
    for (const CLI::Option* const option : at->get_options()) {
      if (!option->nonpositional()) {
        command.takes_file = command.takes_file || option->get_name() == "FILE";
        continue;
      }
      // --help of a command hides that of the command before it; --version is the application's alone.
      CompletedOption one = completed(*option);
      const bool known = std::any_of(command.options.begin(), command.options.end(),
                                     [&](const CompletedOption& other) { return other.names == one.names; });
      if (!known && (at == &app || at->get_parent() != nullptr)) command.options.push_back(std::move(one));
    }
  }
  // `oncekey help COMMAND`.
  command.subcommands = subcommands_of(app.get_name() == "help" ? *app.get_parent() : app);
  const std::string path = command.path;
  commands.push_back(std::move(command));
  for (const CLI::App* const next : subcommands_of(app)) collect(*next, path, commands);
}

// The name of each option of each command with this kind of value, as "oncekey keys list --config".
std::vector<std::string> places_of(const std::vector<CompletedCommand>& commands, TakenValue value) {
  std::vector<std::string> places;
  for (const CompletedCommand& command : commands) {
    for (const CompletedOption& option : command.options) {
      if (option.value != value) continue;
      for (const std::string& name : option.names) places.push_back(fmt::format("\"{} {}\"", command.path, name));
    }
  }
  return places;
}

// The patterns by which a script goes from a command to its subcommand.
std::vector<std::string> steps_of(const std::vector<CompletedCommand>& commands) {
  std::vector<std::string> steps;
  for (std::size_t i = 1; i < commands.size(); ++i) steps.push_back(fmt::format("\"{}\"", commands[i].path));
  return steps;
}

// In single quotes, for bash and zsh.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) c == '\'' ? out += "'\\''" : out += c;
  return out + "'";
}

std::string quoted_for_fish(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string bash_script(const std::vector<CompletedCommand>& commands) {
  std::string out = fmt::format(
      R"sh(# Completes the command line of oncekey in bash. Made by `oncekey completion bash`.
_oncekey() {{
  local command=oncekey current=${{COMP_WORDS[COMP_CWORD]}} previous='' words='' i
  # bash makes three words of --option=value.
  [[ $current == = ]] && current=''
  for ((i = 1; i < COMP_CWORD; ++i)); do
    [[ ${{COMP_WORDS[i]}} == = ]] && continue
    previous=${{COMP_WORDS[i]}}
    case "$command $previous" in
      {}) command+=" $previous" ;;
    esac
  done
  case "$command $previous" in
)sh",
      fmt::join(steps_of(commands), " | "));
  for (const CompletedCommand& command : commands) {
    for (const CompletedOption& option : command.options) {
      if (option.value != TakenValue::word) continue;
      out += fmt::format("    \"{} {}\") words='{}' ;;\n", command.path, option.names.front(),
                         fmt::join(option.words, " "));
    }
  }
  out += fmt::format(R"sh(    {})
      mapfile -t COMPREPLY < <(compgen -f -- "$current")
      compopt -o filenames 2>/dev/null
      return
      ;;
    {})
      COMPREPLY=()
      return
      ;;
    *)
      case $command in
)sh",
                     fmt::join(places_of(commands, TakenValue::file), " | "),
                     fmt::join(places_of(commands, TakenValue::any), " | "));
  for (const CompletedCommand& command : commands) {
    std::vector<std::string> words;
    for (const CLI::App* const next : command.subcommands) words.push_back(next->get_name());
    for (const CompletedOption& option : command.options)
      words.insert(words.end(), option.names.begin(), option.names.end());
    out += fmt::format("        \"{}\") words='{}' ;;\n", command.path, fmt::join(words, " "));
  }
  std::vector<std::string> with_files;
  for (const CompletedCommand& command : commands)
    if (command.takes_file) with_files.push_back(fmt::format("\"{}\"", command.path));
  out += fmt::format(R"sh(      esac
      ;;
  esac
  mapfile -t COMPREPLY < <(compgen -W "$words" -- "$current")
  if ((${{#COMPREPLY[@]}} == 0)) || [[ -z $current ]]; then
    case $command in
      {})
        mapfile -t -O "${{#COMPREPLY[@]}}" COMPREPLY < <(compgen -f -- "$current")
        compopt -o filenames 2>/dev/null
        ;;
    esac
  fi
}}
complete -F _oncekey oncekey
)sh",
                     fmt::join(with_files, " | "));
  return out;
}

// "name:description", as _describe reads it.
std::string described(const std::string& name, const std::string& description) {
  std::string escaped = name;
  for (std::size_t at = 0; (at = escaped.find(':', at)) != std::string::npos; at += 2) escaped.insert(at, "\\");
  return quoted(escaped + ":" + description);
}

std::string zsh_script(const std::vector<CompletedCommand>& commands) {
  std::string out = fmt::format(
      R"sh(#compdef oncekey
# Completes the command line of oncekey in zsh. Made by `oncekey completion zsh`.
_oncekey() {{
  local command=oncekey previous= word
  for word in ${{words[2,CURRENT-1]}}; do
    previous=$word
    case "$command $word" in
      ({}) command+=" $word" ;;
    esac
  done
  local -a choices subcommands options
  case "$command $previous" in
)sh",
      fmt::join(steps_of(commands), "|"));
  for (const CompletedCommand& command : commands) {
    for (const CompletedOption& option : command.options) {
      if (option.value != TakenValue::word) continue;
      out += fmt::format("    (\"{} {}\") choices=({}) ;;\n", command.path, option.names.front(),
                         fmt::join(option.words, " "));
    }
  }
  out += fmt::format(R"sh(    ({}) _files; return ;;
    ({}) _message value; return ;;
  esac
  if (( $#choices )); then
    compadd -a choices
    return
  fi
  local files=no
  case $command in
)sh",
                     fmt::join(places_of(commands, TakenValue::file), "|"),
                     fmt::join(places_of(commands, TakenValue::any), "|"));
  for (const CompletedCommand& command : commands) {
    std::vector<std::string> subcommands;
    for (const CLI::App* const next : command.subcommands)
      subcommands.push_back(described(next->get_name(), summary_of(next->get_description())));
    std::vector<std::string> options;
    for (const CompletedOption& option : command.options)
      for (const std::string& name : option.names) options.push_back(described(name, option.description));
    out += fmt::format("    (\"{}\")\n      subcommands=({})\n      options=({})\n{}      ;;\n", command.path,
                       fmt::join(subcommands, " "), fmt::join(options, " "),
                       command.takes_file ? "      files=yes\n" : "");
  }
  out += R"sh(  esac
  if [[ $PREFIX == -* ]]; then
    _describe -o option options
    return
  fi
  (( $#subcommands )) && _describe command subcommands
  [[ $files == yes ]] && _files
  (( $#subcommands )) || [[ $files == yes ]] || _describe -o option options
}
# Loaded by zsh from its path of functions, or read with `source`.
if [[ ${funcstack[1]-} == _oncekey ]]; then
  _oncekey "$@"
elif (( $+functions[compdef] )); then
  compdef _oncekey oncekey
fi
)sh";
  return out;
}

std::string fish_script(const std::vector<CompletedCommand>& commands) {
  std::string out = fmt::format(
      R"sh(# Completes the command line of oncekey in fish. Made by `oncekey completion fish`.
function __oncekey_command
    set -l command oncekey
    for word in (commandline -opc)[2..-1]
        switch "$command $word"
            case {}
                set command "$command $word"
        end
    end
    echo $command
end
complete -c oncekey -f
)sh",
      fmt::join(steps_of(commands), " "));
  for (const CompletedCommand& command : commands) {
    const std::string here = fmt::format("complete -c oncekey -n 'test (__oncekey_command) = \"{}\"'", command.path);
    for (const CLI::App* const next : command.subcommands) {
      out +=
          fmt::format("{} -a {} -d {}\n", here, next->get_name(), quoted_for_fish(summary_of(next->get_description())));
    }
    for (const CompletedOption& option : command.options) {
      std::string line = here;
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      switch (option.value) {
        case TakenValue::none:
          break;
        case TakenValue::any:
          line += " -x";
          break;
        case TakenValue::file:
          line += " -r -F";
          break;
        case TakenValue::word:
          line += fmt::format(" -x -a '{}'", fmt::join(option.words, " "));
          break;
      }
      out += fmt::format("{} -d {}\n", line, quoted_for_fish(option.description));
    }
    if (command.takes_file) out += here + " -F\n";
  }
  return out;
}

class CompletionCommand final : public Subcommand {
 public:
  explicit CompletionCommand(CLI::App& app)
      : Subcommand(app, "completion", "Print a script that completes this command line in a shell") {
    command_->add_option("SHELL", shell_, "bash, zsh or fish")->required();
  }

  int run(const Console& console) const override {
    const CLI::App& app = *command_->get_parent();
    if (shell_ == "bash") return print(completion_script(app, Shell::bash), console);
    if (shell_ == "zsh") return print(completion_script(app, Shell::zsh), console);
    if (shell_ == "fish") return print(completion_script(app, Shell::fish), console);
    return complain(console, fmt::format("there is no completion for \"{}\": expected bash, zsh or fish", shell_));
  }

 private:
  static int print(const std::string& script, const Console& console) {
    console.out << script;
    return kDone;
  }

  std::string shell_;
};

} // namespace

std::string completion_script(const CLI::App& app, Shell shell) {
  std::vector<CompletedCommand> commands;
  collect(app, "", commands);
  switch (shell) {
    case Shell::bash:
      return bash_script(commands);
    case Shell::zsh:
      return zsh_script(commands);
    case Shell::fish:
      return fish_script(commands);
  }
  return {};
}

std::unique_ptr<Subcommand> completion_command(CLI::App& app) { return std::make_unique<CompletionCommand>(app); }

} // namespace oncekey
