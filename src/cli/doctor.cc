#include "base/certificate.h"
#include "base/durations.h"
#include "base/enum_name.h"
#include "base/machine_memory.h"
#include "base/masked_url.h"
#include "base/private_files.h"
#include "cli/admin_token.h"
#include "cli/config_as_serve.h"
#include "cli/descriptors.h"
#include "cli/identity_memory.h"
#include "cli/machine.h"
#include "cli/subcommand.h"
#include "config/sealing_key_file.h"
#include "gateway/store_room.h"
#include "net/connect.h"
#include "net/listener.h"
#include "store/open_store.h"
#include "store/store_tools.h"

#include <fmt/format.h>
#include <boost/json.hpp>

#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <set>

namespace oncekey {
namespace {

constexpr std::uint64_t kMiB = 1u << 20;
// A request waits for two of them. Disks with spinning platters take about ten milliseconds.
constexpr std::chrono::milliseconds kSlowSync{20};
// No disk is that quick without a cache that survives a power cut.
constexpr std::chrono::microseconds kQuickSync{15};
// Renewals usually come at a third of a certificate's ninety days.
constexpr std::chrono::days kCertificateEndsSoon{14};
// More than clocks of machines that are synchronised differ by.
constexpr std::chrono::minutes kClockBehind{1};

enum class Health { ok, warning, problem };

struct Diagnosis {
  Health health = Health::ok;
  std::string about; // "listen", "store", "upstream"
  std::string text;
  std::string next; // what to do; empty where all is well
};

class Doctor {
 public:
  explicit Doctor(const ServeFlags& flags) : flags_(flags), log_(LogLevel::error) {}

  std::vector<Diagnosis> examine() {
    ReadConfig read = read_config_as_serve(flags_);
    for (const Finding& finding : read.findings) problem("config", shown(finding, read.file_name));
    if (!read.findings.empty()) return std::move(out_);
    config_ = std::move(read.config);
    ok("config", fmt::format("{} {}", config_.routes.size(), config_.routes.size() == 1 ? "route" : "routes"));
    for (const std::string& text : warnings_of(config_)) warning("config", text);
    certificates();
    encryption();
    store(); // before the listeners: whether a gateway holds it tells whose the ports may be
    listener("listen", config_.listen);
    listener("admin", config_.admin);
    if (config_.outbox) listener("outbox", *config_.outbox);
    admin_token();
    servers();
    clock();
    descriptors();
    memory();
    return std::move(out_);
  }

 private:
  void ok(const std::string& about, const std::string& text) { out_.push_back({Health::ok, about, text, ""}); }
  void warning(const std::string& about, const std::string& text, const std::string& next = "") {
    out_.push_back({Health::warning, about, text, next});
  }
  void problem(const std::string& about, const std::string& text, const std::string& next = "") {
    out_.push_back({Health::problem, about, text, next});
  }

  Result<std::string> connect(const Url& url, const std::string& ca_file) const {
    TlsContext tls;
    if (url.tls) {
      Result<TlsContext> made = client_tls({.ca_file = ca_file, .ca_setting = "upstream_ca"});
      if (!made) return std::move(made).fault();
      tls = *std::move(made);
    }
    Loop loop;
    const MonotonicTime due = std::chrono::steady_clock::now() + config_.timeouts.connect;
    Connected connected = loop.run_to_end(oncekey::connect(loop, url.host, url.port, std::move(tls), due));
    if (connected.failure != ConnectFailure::none) return unavailable(std::move(connected.reason));
    return std::move(connected.address);
  }

  // Whether the server takes connections. `next` is for one that does not.
  void reach(const std::string& about, const Url& url, const std::string& ca_file, Health otherwise,
             const std::string& next) {
    const auto reached = connect(url, ca_file);
    if (!reached)
      return out_.push_back({otherwise, about, fmt::format("{}: {}", url.origin(), reached.fault().message), next});
    ok(about, about == "upstream" ? fmt::format("{} takes connections at {}", url.origin(), *reached)
                                  : fmt::format("{} takes connections", url.origin()));
  }

  void listener(const std::string& setting, const Address& address) {
    if (address.port == 0) return ok(setting, fmt::format("{} takes a free port at start", address.host));
    Loop loop;
    const std::string where = host_and_port(address.host, address.port);
    const Status bound = Listener(loop).listen(address.host, address.port);
    if (bound) return ok(setting, fmt::format("{} is free", where));
    if (bound.fault().kind != FaultKind::conflict)
      return problem(setting, fmt::format("{}: {}", where, bound.fault().message),
                     next_for_address(address, bound.fault()));
    if (gateway_runs_)
      return warning(setting,
                     fmt::format("{}: {}, probably the gateway that holds the store", where, bound.fault().message),
                     "nothing, if that gateway is this one");
    problem(setting, fmt::format("{}: {}", where, bound.fault().message),
            "stop the other process, or choose another address");
  }

  // For an address that no other process has.
  static std::string next_for_address(const Address& address, const Fault& fault) {
    if (fault.message == std::error_code(EACCES, std::system_category()).message())
      return fmt::format(
          "ports below 1024 are the administrator's: choose a higher port, or allow port {} with "
          "AmbientCapabilities=CAP_NET_BIND_SERVICE in the systemd unit or `setcap "
          "cap_net_bind_service=+ep` on the binary",
          address.port);
    return "choose an address that this machine has: `ip address` lists them";
  }

  void certificates() {
    const auto look = [&](const std::string& setting, const std::string& file) {
      const std::optional<Time> end = file.empty() ? std::nullopt : end_of_certificate(file);
      if (!end) return;
      const auto left = std::chrono::floor<std::chrono::days>(*end - std::chrono::system_clock::now());
      const std::string when = iso_time(*end);
      if (left < std::chrono::days(0))
        return problem(setting, fmt::format("{} expired on {}: clients refuse it", file, when),
                       "renew it, then send SIGHUP");
      const std::string text = fmt::format("{} expires on {}, in {} days", file, when, left.count());
      if (left < kCertificateEndsSoon) return warning(setting, text, "renew it soon, then send SIGHUP");
      ok(setting, text);
    };
    look("tls_cert", config_.tls_cert);
    look("admin_tls_cert", config_.admin_tls_cert);
  }

  // The configuration was read, and its key file with it.
  void encryption() {
    std::unique_ptr<Sealer> sealer;
    if (!config_.encryption_key_file.empty()) {
      auto keys = load_sealing_keys(config_.encryption_key_file);
      if (!keys) return problem("encryption", keys.fault().message);
      sealer = std::make_unique<Sealer>(*std::move(keys));
    }
    if (const Status opened = check_sealed_secret(config_.store, sealer.get()); !opened)
      return problem("encryption", opened.fault().message);
    if (sealer) {
      ok("encryption",
         fmt::format("key {} seals; the file holds {}", sealer->keys().sealing_id(), sealer->keys().ids()));
    }
  }

  void store() {
    const std::string shown_store = masked_url(config_.store);
    const std::optional<std::string> folder = folder_of_store(config_.store);
    if (config_.store == "memory:") return ok("store", "memory: is always there");
    if (!folder) {
      const Status reached = reach_shared_store(config_.store, log_);
      if (reached) return ok("store", fmt::format("{} can be reached", shown_store));
      return problem("store", fmt::format("{}: {}", shown_store, reached.fault().message),
                     "start the server, or correct the URL or the network");
    }
    struct stat status {};
    if (::stat(folder->c_str(), &status) != 0) {
      ok("store", fmt::format("{} will be made at the first start", shown_store));
    } else if (const Status readable = check_store_format(config_.store); !readable) {
      problem("store", readable.fault().message, "run the version of oncekey that made it, or restore a backup");
    } else if (const auto holder = process_with_store(config_.store)) {
      gateway_runs_ = true;
      warning("store", fmt::format("{} is open in process {}", shown_store, *holder),
              "a second gateway cannot start on it: replace that one with serve --take-over, stop it first, or share "
              "postgres:// or redis://");
    } else if (is_backup(*folder)) {
      warning("store", fmt::format("{} is a backup: claims are refused until its loss is accepted", shown_store),
              fmt::format("find out what was lost, then run oncekey store accept-loss --store {}", shown_store));
    } else {
      ok("store", fmt::format("{} is there, and no process has it open", shown_store));
    }
    identity(*folder);
    disk(*folder);
    syncs(*folder);
    io_uring();
  }

  static bool is_backup(const std::string& folder) { return ::access((folder + "/backup").c_str(), F_OK) == 0; }

  // The folder itself, or the one that it will be made in.
  static std::string nearest_folder(const std::string& folder) {
    std::error_code error;
    std::filesystem::path nearest = std::filesystem::absolute(folder, error).lexically_normal();
    while (!std::filesystem::is_directory(nearest, error) && nearest != nearest.parent_path())
      nearest = nearest.parent_path();
    return nearest.native();
  }

  void syncs(const std::string& folder) {
    const std::string nearest = nearest_folder(folder);
    if (const std::optional<FileSystem> on = file_system_of(nearest)) {
      const std::string text = fmt::format("{} is on {}", nearest, on->name);
      switch (on->kind) {
        case FileSystemKind::disk:
          ok("file system", text);
          break;
        case FileSystemKind::memory:
          warning("file system", text + ", which is memory: everything is lost with the machine",
                  "put the store on a disk");
          break;
        case FileSystemKind::container:
          warning("file system", text + ", the layer of a container: everything is lost with it",
                  "mount a volume for the store");
          break;
        case FileSystemKind::network:
          problem("file system", text + ", a network file system: two machines could open the store at once",
                  "put the store on a local disk, or use postgres:// or redis://");
          break;
      }
    }
    const Result<SyncTimes> times = measure_syncs(nearest);
    if (!times)
      return warning("sync",
                     fmt::format("durable writes could not be measured in {}: {}", nearest, times.fault().message));
    const auto in_ms = [](std::chrono::microseconds time) { return static_cast<double>(time.count()) / 1000; };
    const std::string text = fmt::format("a durable write takes {:.2f} ms (median), {:.2f} ms at most",
                                         in_ms(times->median), in_ms(times->longest));
    if (times->median > kSlowSync)
      return warning("sync", text, "each first request waits for two of them: use a disk with power-loss protection");
    if (times->median < kQuickSync)
      return warning("sync", text + ": quicker than a disk can be",
                     "make sure that the disk keeps what it has confirmed over a power cut");
    ok("sync", text);
  }

  void io_uring() {
    if (const Status may = may_use_io_uring(); !may)
      return warning("io_uring", fmt::format("the kernel does not allow it: {}", may.fault().message),
                     "nothing has to be done: a thread writes the log, which costs some more CPU; or allow it "
                     "(seccomp profile, kernel.io_uring_disabled)");
    ok("io_uring", "it may be used to write the log");
  }

  void identity(const std::string& folder) {
    const auto note = read_file_if_there(fmt::format("{}/{}", folder, name_of(StoreNote::identity)),
                                         bytes_max_of(StoreNote::identity));
    if (!note) return problem("identity", note.fault().message, "let this user read it");
    if (!note->has_value()) return;
    const IdentityChange change = flags_.accept_identity_change ? IdentityChange::accepted : IdentityChange::refused;
    const auto basis = identity_basis_of(config_);
    if (!basis) return problem("identity", basis.fault().message);
    const auto verdict = judge_identity(**note, *basis, change);
    if (verdict) return ok("identity", "the rules find the keys that are in the store");
    problem("identity", verdict.fault().message);
  }

  void disk(const std::string& folder) {
    std::filesystem::path nearest = folder;
    struct statvfs disk {};
    while (::statvfs(nearest.empty() ? "." : nearest.c_str(), &disk) != 0) {
      if (nearest.empty() || nearest == nearest.parent_path()) return;
      nearest = nearest.parent_path();
    }
    const std::uint64_t free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
    const std::uint64_t reserve =
        disk_reserve(config_.limits, static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize);
    const std::string text =
        fmt::format("{} MiB are free; the last {} MiB are kept in reserve", free / kMiB, reserve / kMiB);
    if (free <= reserve) return problem("disk", text, "make room: new keys get 503 until there is some");
    if (free < 2 * reserve) return warning("disk", text, "make room, or set limits.disk_reserve");
    ok("disk", text);
  }

  void admin_token() {
    if (!config_.admin_token.empty()) return ok("admin_token", "the configuration has one");
    const std::string file = admin_token_file(config_.store);
    if (file.empty())
      return warning("admin_token", "neither XDG_STATE_HOME nor HOME is set: no token can be kept", "set admin_token");
    const auto token = load_admin_token(file);
    if (!token) return problem("admin_token", token.fault().message, "let this user read it");
    ok("admin_token",
       token->empty() ? fmt::format("the first start writes one to {}", file) : fmt::format("it is in {}", file));
  }

  void servers() {
    for (const Url& url : upstreams_of(config_))
      reach("upstream", url, config_.upstream_ca, Health::problem,
            "start the API, or correct upstream: until then clients get 503 and nothing is executed");
    const auto receiver = [&](const Endpoint& endpoint) {
      reach(endpoint.name, endpoint.url, endpoint.ca_file, Health::warning,
            "messages are tried again until their budget is over");
    };
    for (const Webhook& webhook : config_.webhooks) receiver(webhook.endpoint);
    for (const Endpoint& destination : config_.destinations) receiver(destination);
    std::set<std::string> seen;
    for (const Route& route : config_.routes) {
      const std::string& keys = route.policy.tokens.keys;
      const auto url = parse_url(keys);
      if (keys.starts_with("http") && url && seen.insert(keys).second)
        reach("jwt_keys", *url, "", Health::problem,
              "keyed requests of its routes get 503 until the keys can be fetched");
    }
  }

  void clock() {
    timex status{};
    const int state = ::adjtimex(&status);
    const bool synchronised = state >= 0 && state != TIME_ERROR && (status.status & STA_UNSYNC) == 0;
    const Time now = std::chrono::time_point_cast<Millis>(std::chrono::system_clock::now());
    if (const std::optional<Time> written = store_written_at(); written && *written > now + kClockBehind) {
      return problem(
          "clock",
          fmt::format("it says {}, and the store was written at {}: it is behind", iso_time(now), iso_time(*written)),
          "set the clock right: certificates, tokens and retention go by it");
    }
    if (synchronised) return ok("clock", "the kernel says that it is synchronised");
    if (config_.trust_clock) return ok("clock", "trust_clock says that it is right");
    warning(
        "clock", "the kernel does not say that it is synchronised",
        "run chrony or systemd-timesyncd: until then time that passes while the machine is off does not count towards "
        "retention");
  }

  // When the log of an embedded store was last written, by the clock of then.
  std::optional<Time> store_written_at() const {
    const std::optional<std::string> folder = folder_of_store(config_.store);
    if (!folder) return std::nullopt;
    std::optional<Time> newest;
    std::error_code error;
    for (std::filesystem::directory_iterator at(*folder + "/log", error), end; !error && at != end;
         at.increment(error)) {
      struct stat found {};
      if (::stat(at->path().c_str(), &found) != 0) continue;
      const Time written{Millis{std::int64_t{found.st_mtim.tv_sec} * 1000 + found.st_mtim.tv_nsec / 1'000'000}};
      newest = std::max(newest.value_or(written), written);
    }
    return newest;
  }

  void descriptors() {
    Config fitted = config_;
    const std::size_t threads = event_loops(config_, std::thread::hardware_concurrency());
    const Status fits = fit_descriptors(fitted, threads, log_);
    if (!fits) return problem("descriptors", fits.fault().message);
    if (fitted.limits.max_connections < config_.limits.max_connections)
      return warning("descriptors",
                     fmt::format("too few for limits.max_connections: {} instead of {}", fitted.limits.max_connections,
                                 config_.limits.max_connections),
                     "raise the limit (ulimit -n, LimitNOFILE) or set smaller limits");
    ok("descriptors", fmt::format("enough for {} connections", config_.limits.max_connections));
  }

  void memory() {
    const std::optional<std::uint64_t> available = available_memory();
    if (!available) return;
    const std::uint64_t wanted = config_.limits.max_buffered_bytes;
    const std::string text =
        fmt::format("{} MiB are available, and bodies may take {} MiB", *available / kMiB, wanted / kMiB);
    if (wanted > *available) return warning("memory", text, "set a smaller limits.max_buffered_bytes");
    ok("memory", text);
  }

  const ServeFlags& flags_;
  Log log_;
  Config config_;
  bool gateway_runs_ = false;
  std::vector<Diagnosis> out_;
};

} // namespace

int run_doctor(const ServeFlags& flags, Output output, const Console& console) {
  std::signal(SIGPIPE, SIG_IGN); // a server may close while TLS is being set up
  const std::vector<Diagnosis> all = Doctor(flags).examine();
  const bool well =
      std::none_of(all.begin(), all.end(), [](const Diagnosis& one) { return one.health == Health::problem; });
  boost::json::array checks;
  for (const Diagnosis& one : all) {
    if (output == Output::text) {
      console.out << fmt::format("{:<8} {:<12} {}{}{}\n", enum_name(one.health), one.about, one.text,
                                 one.next.empty() ? "" : "; next: ", one.next);
    }
    boost::json::object check{{"status", enum_name(one.health)}, {"about", one.about}, {"text", one.text}};
    if (!one.next.empty()) check["next"] = one.next;
    checks.push_back(std::move(check));
  }
  if (output == Output::json)
    console.out << boost::json::serialize(boost::json::object{{"ok", well}, {"checks", std::move(checks)}}) << "\n";
  return well ? 0 : 1;
}

} // namespace oncekey
