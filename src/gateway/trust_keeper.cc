#include "gateway/trust_keeper.h"

#include "base/masked_url.h"
#include "config/identity_files.h"

#include <fmt/format.h>

#include <sys/stat.h>

#include <algorithm>
#include <functional>
#include <tuple>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1000};
constexpr std::size_t kSetBytesMax = 1u << 20;
constexpr std::chrono::seconds kFetchTimeout{10};
// Between two tries that fail: doubled from the first to the second.
constexpr std::chrono::seconds kFirstPause{1};
constexpr std::chrono::seconds kLongestPause{60};

// What changes when a file is replaced or written to. All zero where there is none.
using FileStamp = std::tuple<std::int64_t, std::int64_t, std::uint64_t, std::uint64_t>;
FileStamp stamp_of(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return {};
  return {status.st_mtim.tv_sec, status.st_mtim.tv_nsec, static_cast<std::uint64_t>(status.st_size),
          static_cast<std::uint64_t>(status.st_ino)};
}

UpstreamOptions fetch_options(const UpstreamUrl& server, const Config& config) {
  UpstreamOptions options;
  options.host = server.host;
  options.port = server.port;
  options.tls = server.scheme == UpstreamUrl::Scheme::https;
  options.connect_timeout = std::min<Millis>(config.timeouts.connect, kFetchTimeout);
  options.idle_timeout = config.timeouts.upstream_idle;
  options.max_header_bytes = config.limits.max_header_bytes;
  options.max_connections = 1;
  return options;
}

// In a label and in the log: without what may be secret in a query.
std::string shown(const std::string& source) {
  const std::string masked = masked_url(source);
  return masked.substr(0, masked.find('?'));
}

} // namespace

struct TrustKeeper::Url {
  Url(TrustedKeys& trusted, TargetUrl target_url)
      : keys(trusted), url(std::move(target_url)), name(shown(keys.source)) {}

  TrustedKeys& keys;
  const TargetUrl url;
  const std::string name;
  std::unique_ptr<UpstreamPool> pool;
  std::atomic<std::uint32_t> connections{0};
  UpstreamCall* call = nullptr; // under way
  bool fetching = false;
  MonotonicTime due;                       // of the next fetch
  std::chrono::seconds pause{kFirstPause}; // after the next failure
  std::optional<MonotonicTime> fetched_at;
  prometheus::Gauge* age = nullptr;
  prometheus::Gauge* usable = nullptr;
  prometheus::Counter* fetched = nullptr;
  prometheus::Counter* failed = nullptr;
};

struct TrustKeeper::File {
  std::string path;
  FileStamp stamp;
  enum class Take { no, yes };
  // Reads it and, with Take::yes, puts it in place of what was there.
  std::function<Status(Take)> reread;
};

TrustKeeper::TrustKeeper(GatewayShared& shared, Loop& timers)
    : shared_(shared), timers_(timers), tick_(timers, [this] { tick(); }) {}

TrustKeeper::~TrustKeeper() = default;

Result<std::unique_ptr<TrustKeeper>> TrustKeeper::make(GatewayShared& shared, Loop& timers) {
  std::unique_ptr<TrustKeeper> made(new TrustKeeper(shared, timers));
  for (const auto& keys : shared.trust.keys) {
    if (const std::string path = jwks_path(keys->source); !path.empty()) {
      made->files_.push_back({path, stamp_of(path), [path, trusted = keys.get()](File::Take take) -> Status {
                                auto set = load_jwks(path);
                                if (!set) return std::move(set).fault();
                                if (take == File::Take::yes) trusted->sets.put(*std::move(set));
                                return ok_status();
                              }});
      continue;
    }
    auto target = parse_target_url(keys->source);
    if (!target) return invalid(fmt::format("jwt_keys: {}", target.fault().message));
    auto url = std::make_unique<Url>(*keys, *std::move(target));
    auto pool = UpstreamPool::make(fetch_options(url->url.server, shared.config()), timers, url->connections);
    if (!pool) return std::move(pool).fault();
    url->pool = std::move(pool).value();
    keys->on_asked([keeper = made.get(), asked = url.get()] {
      keeper->timers_.post([keeper, asked] {
        asked->due = std::chrono::steady_clock::now();
        keeper->tick();
      });
    });
    made->urls_.push_back(std::move(url));
  }
  for (const auto& accounts : shared.trust.accounts) {
    made->files_.push_back({accounts->path, stamp_of(accounts->path),
                            [file = accounts.get(), keeper = made.get()](File::Take take) -> Status {
                              auto read = load_accounts(file->path);
                              if (!read) return std::move(read).fault();
                              const std::size_t before = file->accounts.get()->size();
                              if (!read->keeps(*file->accounts.get()))
                                return invalid(fmt::format(
                                    "{}: a credential is missing or has another account than before, whose keys would "
                                    "be forgotten: put it back, or restart with --accept-identity-change",
                                    file->path));
                              if (take == File::Take::no) return ok_status();
                              const std::size_t added = read->size() - before;
                              file->accounts.put(*std::move(read));
                              if (added != 0 && keeper->accounts_added_) keeper->accounts_added_(file->path, added);
                              return ok_status();
                            }});
  }

  if (made->urls_.empty()) return made;
  prometheus::Registry& registry = shared.metrics.registry();
  auto& age = prometheus::BuildGauge()
                  .Name("oncekey_jwks_age_seconds")
                  .Help("How long ago the key set in use was fetched; 0 while there is none")
                  .Register(registry);
  auto& usable = prometheus::BuildGauge()
                     .Name("oncekey_jwks_usable")
                     .Help("1 while there is a key set to verify tokens with, else 0")
                     .Register(registry);
  auto& fetches = prometheus::BuildCounter()
                      .Name("oncekey_jwks_fetches_total")
                      .Help("Tries to fetch a key set, by their outcome")
                      .Register(registry);
  for (const auto& url : made->urls_) {
    url->age = &age.Add({{"keys", url->name}});
    url->usable = &usable.Add({{"keys", url->name}});
    url->fetched = &fetches.Add({{"keys", url->name}, {"outcome", "fetched"}});
    url->failed = &fetches.Add({{"keys", url->name}, {"outcome", "failed"}});
  }
  return made;
}

void TrustKeeper::start() {
  for (const auto& url : urls_) url->due = std::chrono::steady_clock::now();
  tick();
}

void TrustKeeper::stop() {
  stopped_ = true;
  tick_.clear();
  for (const auto& url : urls_) {
    if (url->call != nullptr) url->call->deadline(std::chrono::steady_clock::now());
    url->pool->close_idle();
  }
}

void TrustKeeper::tick() {
  if (stopped_) return;
  tick_.after(kLookEvery);
  look_at_files();
  show_ages();
  const MonotonicTime now = std::chrono::steady_clock::now();
  for (const auto& url : urls_) {
    if (!url->fetching && now >= url->due) spawn(fetch(*url));
  }
}

Status TrustKeeper::check_files() const {
  for (const File& file : files_) {
    if (Status read = file.reread(File::Take::no); !read) return read;
  }
  return ok_status();
}

void TrustKeeper::reread_files() {
  for (File& file : files_) file.stamp = {};
  look_at_files();
}

void TrustKeeper::look_at_files() {
  for (File& file : files_) {
    // Before it is read: what is written meanwhile is read again.
    const FileStamp stamp = stamp_of(file.path);
    if (stamp == file.stamp) continue;
    file.stamp = stamp;
    if (const Status read = file.reread(File::Take::yes); read) {
      shared_.log.info("identity_file_reread", {{"file", file.path}});
    } else {
      shared_.log.warning("identity_file_unusable",
                          {{"reason", read.fault().message}, {"next", "what was read before stays in use"}});
    }
  }
}

void TrustKeeper::show_ages() {
  const MonotonicTime now = std::chrono::steady_clock::now();
  for (const auto& url : urls_) {
    url->usable->Set(url->fetched_at ? 1 : 0);
    url->age->Set(url->fetched_at ? std::chrono::duration<double>(now - *url->fetched_at).count() : 0);
  }
}

Task<void> TrustKeeper::fetch(Url& url) {
  ++fetches_;
  url.fetching = true;
  ResponseHead head;
  std::string body;
  std::string reason;
  try {
    co_await get(url, head, body, reason);
    if (reason.empty()) {
      auto set = parse_jwks(body, SecretKeys::refused);
      if (!set) {
        reason = set.fault().message;
      } else {
        for (const std::string& rejected : set->rejected)
          shared_.log.warning("jwks_key_unusable", {{"keys", url.name}, {"reason", rejected}});
        shared_.log.info("jwks_fetched", {{"keys", url.name}, {"count", set->keys.size()}});
        url.keys.sets.put(*std::move(set));
      }
    }
  } catch (const std::exception& error) {
    reason = error.what(); // out of memory, say
  }
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (reason.empty()) {
    url.fetched->Increment();
    url.fetched_at = now;
    url.pause = kFirstPause;
    url.due = now + jwks_lifetime(head.headers);
  } else if (!stopped_) {
    url.failed->Increment();
    url.due = now + url.pause;
    shared_.log.warning("jwks_fetch_failed",
                        {{"keys", url.name},
                         {"reason", reason},
                         {"next", url.fetched_at ? "the keys fetched before stay in use"
                                                 : "keyed requests of its routes get 503 until it can be fetched"},
                         {"retry_seconds", url.pause.count()}});
    url.pause = std::min(2 * url.pause, kLongestPause);
  }
  url.keys.fetched(!reason.empty());
  url.fetching = false;
  show_ages();
  --fetches_;
}

// The set into `body`, or why there is none into `reason`.
Task<void> TrustKeeper::get(Url& url, ResponseHead& head, std::string& body, std::string& reason) {
  UpstreamRequest request;
  request.method = "GET";
  request.target = url.url.target;
  request.headers.add("Host", url.url.server.authority);
  request.headers.add("Accept", "application/jwk-set+json, application/json");
  UpstreamCall call(*url.pool);
  url.call = &call;
  CallError error = co_await call.send(request, Framing::none, 0, {}, std::chrono::steady_clock::now() + kFetchTimeout);
  while (error == CallError::none && head.status < 200) error = co_await call.read_head(head);
  while (error == CallError::none && body.size() <= kSetBytesMax) {
    std::string_view piece;
    error = co_await call.read_piece(piece);
    if (piece.empty()) break;
    body.append(piece);
  }
  url.call = nullptr;
  if (error != CallError::none) {
    reason = call.reason();
  } else if (head.status != 200) {
    reason = fmt::format("it answered {}, and 200 was expected; redirects are not followed", head.status);
  } else if (body.size() > kSetBytesMax) {
    reason = "it is longer than 1 MiB";
  }
}

} // namespace oncekey
