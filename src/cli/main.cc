// oncekey: one binary, one subcommand for each thing an operator does.
#include "base/core_dumps.h"
#include "cli/check.h"
#include "cli/jobs.h"
#include "cli/keys.h"
#include "cli/send.h"
#include "cli/serve.h"
#include "cli/store.h"
#include "cli/work.h"
#include "config/flags.h"

#include <CLI/CLI.hpp>

#include <algorithm>
#include <cstdio>
#include <string>
#include <utility>

namespace {

using oncekey::ServeFlags;

void add_serve_flags(CLI::App& serve, ServeFlags& flags) {
  serve.add_option("--config", flags.config, "TOML file; see docs/CONFIG.md")->type_name("FILE");
  serve.add_option("--listen", flags.listen, "address for clients (default 127.0.0.1:8080)")->type_name("HOST:PORT");
  serve.add_option("--admin", flags.admin, "address for operators (default 127.0.0.1:8081)")->type_name("HOST:PORT");
  serve.add_option("--upstream", flags.upstream, "the API to protect, as in http://127.0.0.1:9090")->type_name("URL");
  serve
      .add_option("--store", flags.store,
                  "rocksdb:PATH, postgres://, redis://, redis+cluster:// or memory:\n"
                  "(default rocksdb:./oncekey-data; env:NAME or file:PATH if it holds a password)")
      ->type_name("URL");
  serve.add_option("--policy", flags.policy, "classic, ietf, stripe-v1 or stripe-v2 (default classic)")
      ->type_name("NAME");
  serve.add_option("--scope", flags.scope, "where the account comes from (default header:Authorization)")
      ->type_name("SOURCE");
  serve.add_option("--lease", flags.lease, "how long an owner may stay silent (default 60s)")->type_name("DURATION");
  serve.add_option("--retention", flags.retention, "how long answers are replayed (default: the policy's)")
      ->type_name("DURATION");
  serve.add_option("--upstream-timeout", flags.upstream_timeout, "the longest call to the upstream (default 60s)")
      ->type_name("DURATION");
  serve.add_option("--wait", flags.wait, "how long a retry waits for a first request still at work (default 0s)")
      ->type_name("DURATION");
  serve.add_option("--require-durability", flags.require_durability, "power or process: refuse to start on less")
      ->type_name("LEVEL");
  serve
      .add_option("--admin-token", flags.admin_token,
                  "env:NAME or file:PATH; needed when --admin is not on loopback\n"
                  "(default: made at the first start and kept in a file)")
      ->type_name("SOURCE");
  serve.add_option("--tls-cert", flags.tls_cert, "PEM certificate chain for --listen")->type_name("FILE");
  serve.add_option("--tls-key", flags.tls_key, "its PEM private key")->type_name("FILE");
  serve.add_option("--upstream-ca", flags.upstream_ca, "PEM certificates to trust for an https upstream")
      ->type_name("FILE");
  serve.add_option("--threads", flags.threads, "event loops (default: one per core)")->type_name("N");
  serve.add_option("--drain-timeout", flags.drain_timeout, "how long SIGTERM waits for running requests (default 30s)")
      ->type_name("DURATION");
  serve.add_option("--log-level", flags.log_level, "debug, info, warning or error (default info)")->type_name("LEVEL");
}

bool knows(const CLI::App& app, const std::string& word) {
  const auto all = app.get_subcommands([](const CLI::App*) { return true; });
  return std::any_of(all.begin(), all.end(), [&](const CLI::App* one) { return one->check_name(word); });
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

  oncekey::KeysCommand keys(app);
  oncekey::JobsCommand jobs(app);
  oncekey::SendCommand send(app);
  oncekey::StoreCommand store(app);
  oncekey::WorkCommand work(app);
  oncekey::SchemaCommand schema(app);

  // CLI11 would only say that a subcommand is missing.
  if (argc > 1 && argv[1][0] != '-' && !knows(app, argv[1])) {
    std::fprintf(stderr, "oncekey: there is no subcommand \"%s\"; oncekey --help lists them\n", argv[1]);
    return 2;
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    // CLI11 has codes of its own; usage errors are 2 here, as everywhere.
    return app.exit(error) == 0 ? 0 : 2;
  }

  if (check->parsed()) return oncekey::run_check(checked_file);
  if (keys.chosen()) return keys.run();
  if (jobs.chosen()) return jobs.run();
  if (send.chosen()) return send.run();
  if (store.chosen()) return store.run();
  if (work.chosen()) return work.run();
  if (schema.chosen()) return schema.run();
  oncekey::forbid_core_dumps(); // before the first secret is read
  oncekey::Result<oncekey::Config> config = oncekey::config_from_flags(flags);
  if (!config) {
    std::fprintf(stderr, "%s\n", config.fault().message.c_str());
    return 2;
  }
  return oncekey::run_serve(*std::move(config));
}
