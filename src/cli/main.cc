// oncekey: one binary, one subcommand for each thing an operator does.
#include "base/core_dumps.h"
#include "cli/check.h"
#include "cli/command_line.h"
#include "cli/doctor.h"
#include "cli/init.h"
#include "cli/serve.h"
#include "cli/subcommand.h"
#include "config/load.h"
#include "core/policy.h"

#include <fmt/format.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

namespace {

using oncekey::ServeFlags;

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
      "rocksdb:PATH, postgres://, redis://, redis+cluster:// or memory:\n"
      "(default rocksdb:./oncekey-data; env:NAME or file:PATH if it holds a password)");
  add("policy", "NAME", fmt::format("{} (default classic)", fmt::join(oncekey::policy_names(), ", ")));
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
  serve.add_option("--threads", flags.threads, "event loops (default: one per core)")->type_name("N");
  add("drain-timeout", "DURATION", "how long SIGTERM waits for running requests (default 30s)");
  serve.add_flag("--accept-identity-change", flags.accept_identity_change,
                 "start although changed rules (scope, identity, key_from, ...) forget keys in the store");
  add("log-level", "LEVEL", "debug, info, warning or error (default info)");
}

} // namespace

int main(int argc, char** argv) {
  CLI::App app("Oncekey makes retries safe: the same idempotency key gets the first answer again.", "oncekey");
  app.set_version_flag("--version", std::string("oncekey ") + ONCEKEY_VERSION);
  app.require_subcommand(1);

  ServeFlags flags;
  CLI::App* serve = app.add_subcommand("serve", "Run the gateway in front of an API");
  add_serve_flags(*serve, flags);

  std::string checked_file;
  CLI::App* check = app.add_subcommand("check", "Validate a configuration file and say what it does");
  check->add_option("FILE", checked_file, "TOML file")->required();
  bool check_json = false;
  check->add_flag("--json", check_json, "print one JSON object");

  ServeFlags examined;
  bool doctor_json = false;
  CLI::App* doctor =
      app.add_subcommand("doctor", "Try what a configuration needs: ports, store, upstream, the machine");
  add_serve_flags(*doctor, examined);
  std::string examined_file;
  doctor->add_option("FILE", examined_file, "TOML file; the same as --config FILE")->excludes("--config");
  doctor->add_flag("--json", doctor_json, "print one JSON object");

  std::string first_file = "oncekey.toml";
  std::string first_upstream = "http://127.0.0.1:9090";
  CLI::App* init = app.add_subcommand("init", "Write a commented configuration file to begin with");
  init->add_option("FILE", first_file, "file to write; it must not exist (default oncekey.toml; - prints it)");
  init->add_option("--upstream", first_upstream, "the API to protect (default http://127.0.0.1:9090)")
      ->type_name("URL");

  const auto keys = oncekey::keys_command(app);
  const auto jobs = oncekey::jobs_command(app);
  const auto send = oncekey::send_command(app);
  const auto store = oncekey::store_command(app);
  const auto work = oncekey::work_command(app);
  const auto schema = oncekey::schema_command(app);

  // Only listed here; arguments_of() turns it into --help.
  app.add_subcommand("help", "Explain a command, as in oncekey help serve");
  app.add_subcommand("version", "Print the version");

  std::vector<std::string> arguments = oncekey::arguments_of(argc, argv);
  // CLI11 expects the arguments in reverse order.
  std::reverse(arguments.begin(), arguments.end());
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    const bool asked = error.get_exit_code() == 0; // --help, --version
    if (const std::string unknown = asked ? oncekey::unknown_help(app, argc, argv) : oncekey::not_understood(app);
        !unknown.empty()) {
      std::fprintf(stderr, "%s\n", unknown.c_str());
      return 2;
    }
    // CLI11 has codes of its own; usage errors are 2 here, as everywhere.
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (check->parsed())
    return oncekey::run_check(checked_file, check_json ? oncekey::CheckOutput::json : oncekey::CheckOutput::text);
  if (!examined_file.empty()) examined.config = examined_file;
  if (doctor->parsed())
    return oncekey::run_doctor(examined, doctor_json ? oncekey::DoctorOutput::json : oncekey::DoctorOutput::text);
  if (init->parsed()) return oncekey::run_init(first_file, first_upstream);
  for (const auto* command : {keys.get(), jobs.get(), send.get(), store.get(), work.get(), schema.get()}) {
    if (command->chosen()) return command->run(oncekey::standard_console());
  }
  oncekey::forbid_core_dumps(); // before the first secret is read
  oncekey::ReadConfig read = oncekey::read_config(flags, oncekey::NamedFiles::left_alone);
  for (const oncekey::Finding& finding : read.findings)
    std::fprintf(stderr, "%s\n", oncekey::shown(finding, read.file_name).c_str());
  if (!read.findings.empty()) return 2;
  return oncekey::run_serve(flags, std::move(read));
}
