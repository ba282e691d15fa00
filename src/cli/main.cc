// oncekey: one binary, one subcommand for each thing an operator does.
#include "base/private_files.h"
#include "cli/subcommand.h"
#include "config/load.h"
#include "config/suggestion.h"
#include "core/policy.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdio>

namespace oncekey {
namespace {

template <class Range>
bool contains(const Range& range, std::string_view wanted) {
  return std::find(range.begin(), range.end(), wanted) != range.end();
}

std::vector<const CLI::App*> subcommands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App*) { return true; });
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

std::string unknown_subcommand(const CLI::App& app, std::string_view word) {
  std::vector<std::string> known;
  for (const CLI::App* const one : subcommands_of(app)) known.push_back(one->get_name());
  const std::string name = whole_name(app);
  return fmt::format("{}: there is no subcommand \"{}\"{} ({} --help lists them)", name, word, nearest(word, known, ""),
                     name);
}

// The command line as given, with `oncekey help COMMAND` and `oncekey version` as the flags they stand for.
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

// What is wrong with the words after `help`, with a suggestion; empty if they name a command.
std::string unknown_help(const CLI::App& app, int argc, const char* const* argv) {
  if (argc < 2 || std::string_view(argv[1]) != "help") return {};
  const CLI::App* at = &app;
  for (int i = 2; i < argc && argv[i][0] != '-'; ++i) {
    const std::string_view word = argv[i];
    const auto all = subcommands_of(*at);
    const auto found =
        std::find_if(all.begin(), all.end(), [&](const CLI::App* one) { return one->get_name() == word; });
    if (found == all.end()) return unknown_subcommand(*at, word);
    at = *found;
  }
  return {};
}

// One line about the first word that is not understood (an unknown option, an unknown subcommand, a surplus argument),
// with the nearest known word. Empty if all words are known: then CLI11's own error says what is wrong.
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
  if (!subcommands_of(*at).empty() && !is_option(rest.front())) return unknown_subcommand(*at, rest.front());
  if (const auto option = std::find_if(rest.begin(), rest.end(), is_option); option != rest.end()) {
    const std::string written = option->substr(0, option->find('='));
    return fmt::format("{}: there is no option {}{} ({} --help lists them)", name, written,
                       nearest(written, options_of(at), "--"), name);
  }
  return fmt::format("{}: the argument \"{}\" is one too many; {} --help shows what it takes", name, rest.front(),
                     name);
}

// The command that was given without one of its subcommands; empty if none was.
std::string missing_subcommand(const CLI::App& app) {
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) at = at->get_subcommands().front();
  std::vector<std::string> known;
  for (const CLI::App* const one : subcommands_of(*at)) known.push_back(one->get_name());
  if (known.empty()) return {};
  const std::string name = whole_name(*at);
  return fmt::format("{}: say what to do: {} ({} --help explains them)", name, fmt::join(known, ", "), name);
}

// The first option or argument with an empty value. In a script that is a variable that is not set far more often than
// a wish, and it would count as not given: `oncekey send` would make up a key.
std::string empty_value(const CLI::App& app) {
  // What may be empty: bodies, and the page of a list to begin with.
  static constexpr std::array<std::string_view, 4> kMayBeEmpty{"--data", "--json", "--body", "--after"};
  for (const CLI::App* at = &app; at != nullptr;
       at = at->get_subcommands().empty() ? nullptr : at->get_subcommands().front()) {
    for (const CLI::Option* const option : at->get_options()) {
      const std::string name = option->get_name();
      if (option->get_expected_max() == 0 || !contains(option->results(), "") || contains(kMayBeEmpty, name)) continue;
      return fmt::format("{}: {} is empty: give a value, or leave it out (is a variable of a script not set?)",
                         whole_name(*at), name);
    }
  }
  return {};
}

void add_serve_flags(CLI::App& serve, ServeFlags& flags) {
  // --drain-timeout is the setting drain_timeout.
  const auto add = [&](const std::string& flag, const char* value, const std::string& help) {
    std::string setting = flag;
    std::replace(setting.begin(), setting.end(), '-', '_');
    serve.add_option("--" + flag, flags.texts[setting], help)->type_name(value);
  };
  serve.add_option("--config", flags.config, "TOML file; see docs/CONFIG.md")->type_name("FILE");
  add("listen", "HOST:PORT", "address for clients (default 127.0.0.1:8080)");
  add("admin", "HOST:PORT", "address for operators (default 127.0.0.1:8081)");
  add("upstream", "URL", "the API to protect, as in http://127.0.0.1:9090");
  add("store", "URL",
      "journal:PATH, postgres://, redis://, redis+cluster:// or memory:\n"
      "(default journal:./oncekey-data; env:NAME or file:PATH if it holds a password)");
  add("policy", "NAME", fmt::format("{} (default classic)", fmt::join(policy_names(), ", ")));
  serve.add_option("--scope", flags.scope, "where the account comes from (default header:Authorization)")
      ->type_name("SOURCE");
  add("lease", "DURATION", "how long an owner may stay silent (default 60s)");
  add("retention", "DURATION", "how long answers are replayed (default: the policy's)");
  add("upstream-timeout", "DURATION", "the longest call to the upstream (default 60s)");
  add("wait", "DURATION", "how long a retry waits for a first request still at work (default 0s)");
  add("require-durability", "LEVEL", "power or process: refuse to start on less");
  add("admin-token", "SOURCE",
      "env:NAME or file:PATH; needed when --admin is not on loopback\n"
      "(default: made at the first start and kept in a file)");
  add("tls-cert", "FILE", "PEM certificate chain for --listen");
  add("tls-key", "FILE", "its PEM private key");
  add("upstream-ca", "FILE", "PEM certificates to trust for an https upstream");
  serve.add_option("--threads", flags.threads, "event loops (default: one for every two cores)")->type_name("N");
  add("drain-timeout", "DURATION", "how long SIGTERM waits for running requests (default 30s)");
  serve.add_flag("--accept-identity-change", flags.accept_identity_change,
                 "start although changed rules (scope, identity, key_from, ...) forget keys in the store");
  add("log-level", "LEVEL", "debug, info, warning or error (default info)");
}

int run(int argc, char** argv) {
  CLI::App app("Oncekey makes retries safe: the same idempotency key gets the first answer again.", "oncekey");
  app.set_version_flag("--version", std::string("oncekey ") + ONCEKEY_VERSION);
  app.require_subcommand(1);

  ServeFlags flags;
  CLI::App* serve = app.add_subcommand("serve", "Run the gateway in front of an API");
  add_serve_flags(*serve, flags);
  serve->add_flag(
      "--take-over", flags.take_over,
      "replace the gateway that runs on --listen without a refused connection; starts as usual if there is none");

  std::string checked_file;
  CLI::App* check = app.add_subcommand("check", "Validate a configuration file and say what it does");
  check->add_option("FILE", checked_file, "TOML file")->required();
  bool as_json = false;
  check->add_flag("--json", as_json, "print one JSON object");

  CLI::App* doctor =
      app.add_subcommand("doctor", "Try what a configuration needs: ports, store, upstream, the machine");
  add_serve_flags(*doctor, flags);
  std::string examined_file;
  doctor->add_option("FILE", examined_file, "TOML file; the same as --config FILE")->excludes("--config");
  doctor->add_flag("--json", as_json, "print one JSON object");

  std::string first_file = "oncekey.toml";
  std::string first_upstream = "http://127.0.0.1:9090";
  CLI::App* init = app.add_subcommand("init", "Write a commented configuration file to begin with");
  init->add_option("FILE", first_file, "file to write; it must not exist (default oncekey.toml; - prints it)");
  init->add_option("--upstream", first_upstream, "the API to protect (default http://127.0.0.1:9090)")
      ->type_name("URL");

  std::vector<std::unique_ptr<Subcommand>> commands;
  for (const auto make : {keys_command, jobs_command, audit_command, console_command, health_command, send_command,
                          store_command, work_command, schema_command, completion_command})
    commands.push_back(make(app));

  // Only listed here; arguments_of() turns it into --help.
  app.add_subcommand("help", "Explain a command, as in oncekey help serve");
  app.add_subcommand("version", "Print the version");

  std::vector<std::string> arguments = arguments_of(argc, argv);
  // CLI11 expects the arguments in reverse order.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0; // --help, --version
    std::string wrong = asked ? unknown_help(app, argc, argv) : not_understood(app);
    if (!asked && wrong.empty()) wrong = missing_subcommand(app);
    if (!wrong.empty()) {
      std::fprintf(stderr, "%s\n", wrong.c_str());
      return 2;
    }
    // CLI11 has codes of its own; usage errors are 2 here, as everywhere.
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (const std::string empty = empty_value(app); !empty.empty()) {
    std::fprintf(stderr, "%s\n", empty.c_str());
    return 2;
  }

  const Console console = standard_console();
  const Output output = as_json ? Output::json : Output::text;
  if (check->parsed()) return run_check(checked_file, output, console);
  if (!examined_file.empty()) flags.config = examined_file;
  if (doctor->parsed()) return run_doctor(flags, output, console);
  if (init->parsed()) return run_init(first_file, first_upstream, console);
  for (const auto& command : commands) {
    if (command->chosen()) return command->run(console);
  }
  set_core_dumps(CoreDumps::forbidden); // before the first secret is read
  ReadConfig read = read_config(flags, NamedFiles::left_alone);
  for (const Finding& finding : read.findings) std::fprintf(stderr, "%s\n", shown(finding, read.file_name).c_str());
  if (!read.findings.empty()) return 2;
  return run_serve(flags, std::move(read));
}

} // namespace
} // namespace oncekey

int main(int argc, char** argv) { return oncekey::run(argc, argv); }
