#include "cli/completion.h"

#include "cli/command_words.h"
#include "cli/subcommand.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <vector>

namespace oncekey {
namespace {

// The name of each option of each command with this kind of value, as "oncekey keys list --config".
std::vector<std::string> places_of(const std::vector<CommandWords>& commands, TakenValue value) {
  std::vector<std::string> places;
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
      if (option.value != value) continue;
      for (const std::string& name : option.names) places.push_back(fmt::format("\"{} {}\"", command.path, name));
    }
  }
  return places;
}

// The patterns by which a script goes from a command to its subcommand.
std::vector<std::string> steps_of(const std::vector<CommandWords>& commands) {
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

std::string bash_script(const std::vector<CommandWords>& commands) {
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
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
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
  for (const CommandWords& command : commands) {
    std::vector<std::string> words;
    for (const CLI::App* const next : command.subcommands) words.push_back(next->get_name());
    for (const OptionWords& option : command.options)
      words.insert(words.end(), option.names.begin(), option.names.end());
    out += fmt::format("        \"{}\") words='{}' ;;\n", command.path, fmt::join(words, " "));
  }
  std::vector<std::string> with_files;
  for (const CommandWords& command : commands)
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

std::string zsh_script(const std::vector<CommandWords>& commands) {
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
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
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
  for (const CommandWords& command : commands) {
    std::vector<std::string> subcommands;
    for (const CLI::App* const next : command.subcommands)
      subcommands.push_back(described(next->get_name(), summary_of(next->get_description())));
    std::vector<std::string> options;
    for (const OptionWords& option : command.options)
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

std::string fish_script(const std::vector<CommandWords>& commands) {
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
  for (const CommandWords& command : commands) {
    const std::string here = fmt::format("complete -c oncekey -n 'test (__oncekey_command) = \"{}\"'", command.path);
    for (const CLI::App* const next : command.subcommands) {
      out +=
          fmt::format("{} -a {} -d {}\n", here, next->get_name(), quoted_for_fish(summary_of(next->get_description())));
    }
    for (const OptionWords& option : command.options) {
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
  const std::vector<CommandWords> commands = command_words(app);
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
