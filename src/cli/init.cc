#include "base/private_files.h"
#include "cli/subcommand.h"

#include <fmt/format.h>

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace oncekey {
namespace {

// Settings that differ from the defaults, or that every user should decide, are active; the others are commented out,
// with an example. docs/CONFIG.md has all of them.
constexpr std::string_view kFirstConfig =
    R"toml(# Configuration of the Oncekey gateway. docs/CONFIG.md explains every setting.
#
#   oncekey check {file}            reads this file and the files it names
#   oncekey doctor --config {file}  also tries ports, store and upstream
#   oncekey serve --config {file}   runs it; SIGHUP reads it again

# Where clients connect.
listen = "127.0.0.1:8080"
# Where operators connect: metrics, health, `oncekey keys`.
admin = "127.0.0.1:8081"
# The API to protect.
upstream = "{upstream}"
# Where keys and answers are kept. Several gateways share postgres:// or redis://.
store = "rocksdb:./oncekey-data"
# Encrypt them with the keys of this file: (umask 077; echo "1 $(openssl rand -hex 32)" > /etc/oncekey/keys)
#encryption_key_file = "/etc/oncekey/keys"

# Serve TLS to clients.
#tls_cert = "/etc/oncekey/chain.pem"
#tls_key = "/etc/oncekey/key.pem"

# Whose key it is. Each account has its own keys. Choose this first: changing it later forgets all keys.
#   "header:Authorization"  the credential itself; a new token is a new account
#   "jwt:sub"               a claim of a bearer token that the gateway verifies (needs jwt_keys)
#   "cookie:session"        a cookie
scope = "header:Authorization"
#jwt_keys = "https://id.example.com/.well-known/jwks.json"

# How long a request may stay silent before another may take its key over.
lease = "60s"
# The longest call to the API.
upstream_timeout = "60s"
# How long a retry waits for a first request that still runs, before it gets 409.
wait = "5s"

# The first route that matches a request decides. * stands for any characters. Requests without a route, and requests
# without a key where `key` does not say "required", are forwarded unprotected.
[[route]]
path = "/*"
# classic: a 5xx is not kept, and a retry runs again. stripe-v1: every answer is kept, also a 5xx.
policy = "classic"
# 400 for a request without an Idempotency-Key: key = "required".
key = "pass"
# How long answers are replayed, from the first request on.
retention = "24h"
# After a crash in the middle of a call, or an answer that got lost: "reexecute" runs a retry again, "hold" waits for a
# person (`oncekey keys list`).
on_abandoned = "reexecute"
# Only count what would happen, and forward everything: a safe way to begin.
#mode = "observe"

#[[webhook]]
#path = "/hooks/stripe"
#provider = "stripe"
#secrets = ["env:STRIPE_WEBHOOK_SECRET"]
#deliver_to = "http://127.0.0.1:9090/events"
)toml";

void replace_all(std::string& text, std::string_view what, std::string_view with) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + with.size()))
    text.replace(at, what.size(), with);
}

Status write_new_file(const std::string& path, std::string_view text) {
  const int file = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (file < 0 && errno == EEXIST)
    return invalid(fmt::format("{} exists and is left as it is; name another file, as in oncekey init new.toml", path));
  if (file < 0) return invalid(fmt::format("{} cannot be made: {}", path, std::strerror(errno)));
  const int error = write_all(file, text);
  ::close(file);
  if (error == 0) return ok_status();
  ::unlink(path.c_str());
  return invalid(fmt::format("{} cannot be written: {}", path, std::strerror(error)));
}

} // namespace

int run_init(const std::string& file, const std::string& upstream, const Console& console) {
  if (const auto url = parse_upstream(upstream); !url) {
    console.err << "oncekey init: --upstream: " << url.fault().message << "\n";
    return 2;
  }
  std::string text(kFirstConfig);
  replace_all(text, "{upstream}", upstream);
  replace_all(text, "{file}", file == "-" ? "oncekey.toml" : file);
  if (file == "-") {
    console.out << text;
    return 0;
  }
  if (const Status written = write_new_file(file, text); !written) {
    console.err << "oncekey init: " << written.fault().message << "\n";
    return 1;
  }
  console.out << fmt::format(
      "wrote {0}\nnext: set upstream and scope in it, then run\n  oncekey check {0}\n  oncekey serve "
      "--config {0}\n",
      file);
  return 0;
}

} // namespace oncekey
