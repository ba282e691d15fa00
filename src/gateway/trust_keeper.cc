#include "gateway/trust_keeper.h"

#include "base/backoff.h"
#include "config/identity_files.h"

#include <sys/stat.h>

#include <tuple>

namespace oncekey {
namespace {

constexpr std::chrono::milliseconds kLookEvery{1000};
constexpr AnswerLimit kSetLimit{1u << 20, AnswerLimit::Longer::fails};
constexpr std::chrono::seconds kFetchTimeout{10};
// Between two tries that fail.
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

UpstreamOptions fetch_options(const Url& server, const Config& config) {
  return {.server = server,
          .connect_timeout = std::min<Millis>(config.timeouts.connect, kFetchTimeout),
          .idle_timeout = config.timeouts.upstream_idle,
          .max_header_bytes = config.limits.max_header_bytes,
          .max_connections = 1};
}

} // namespace

struct TrustKeeper::KeyUrl {
  KeyUrl(TrustedKeys& trusted, Url at) : keys(trusted), url(std::move(at)), name(url.shown()) {}

  TrustedKeys& keys;
  const Url url;
  const std::string name; // in labels and in the log: without what may be secret in a query
  std::unique_ptr<UpstreamPool> pool;
  std::atomic<std::uint32_t> connections{0};
  UpstreamCall* call = nullptr; // under way
  bool fetching = false;
  MonotonicTime due; // of the next fetch
  Backoff pauses{kFirstPause, kLongestPause};
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

TrustKeeper::TrustKeeper(GatewayShared& shared, Loop& loop)
    : shared_(shared), loop_(loop), tick_(loop, [this] { tick(); }) {}

TrustKeeper::~TrustKeeper() = default;

Result<std::unique_ptr<TrustKeeper>> TrustKeeper::make(GatewayShared& shared, Loop& loop) {
  std::unique_ptr<TrustKeeper> made(new TrustKeeper(shared, loop));
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
    auto parsed = parse_url(keys->source);
    if (!parsed) return invalid(fmt::format("jwt_keys: {}", parsed.fault().message));
    auto url = std::make_unique<KeyUrl>(*keys, *std::move(parsed));
    auto pool = UpstreamPool::make(fetch_options(url->url, shared.config()), loop, url->connections);
    if (!pool) return std::move(pool).fault();
    url->pool = std::move(pool).value();
    keys->on_asked([keeper = made.get(), asked = url.get()] {
      keeper->loop_.post([keeper, asked] {
        asked->due = std::chrono::steady_clock::now();
        keeper->tick();
      });
    });
    made->urls_.push_back(std::move(url));
  }
  for (const auto& accounts : shared.trust.accounts) {
    made->files_.push_back({accounts->source, stamp_of(accounts->source),
                            [file = accounts.get(), keeper = made.get()](File::Take take) -> Status {
                              auto read = load_accounts(file->source);
                              if (!read) return std::move(read).fault();
                              const std::size_t before = file->accounts.get()->size();
                              if (!read->keeps(*file->accounts.get()))
                                return invalid(fmt::format(
                                    "{}: a credential is missing or has another account than before, whose keys would "
                                    "be forgotten: put it back, or restart with --accept-identity-change",
                                    file->source));
                              if (take == File::Take::no) return ok_status();
                              const std::size_t added = read->size() - before;
                              file->accounts.put(*std::move(read));
                              if (added != 0 && keeper->accounts_added_) keeper->accounts_added_(file->source, added);
                              return ok_status();
                            }});
  }

  if (made->urls_.empty()) return made;
  prometheus::Registry& registry = shared.metrics.registry();
  auto& age = gauges(registry, "oncekey_jwks_age_seconds",
                     "How long ago the key set in use was fetched; 0 while there is none");
  auto& usable = gauges(registry, "oncekey_jwks_usable", "1 while there is a key set to verify tokens with, else 0");
  auto& fetches = counters(registry, "oncekey_jwks_fetches_total", "Tries to fetch a key set, by their outcome");
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

Task<void> TrustKeeper::fetch(KeyUrl& url) {
  ++fetches_;
  url.fetching = true;
  Headers headers;
  std::string reason;
  try {
    Fetched fetched = co_await get(url);
    if (const auto* const failure = std::get_if<FetchFailure>(&fetched)) {
      reason = failure->reason;
    } else if (auto& answer = std::get<FetchedAnswer>(fetched); answer.status != 200) {
      reason = fmt::format("it answered {}, and 200 was expected; redirects are not followed", answer.status);
    } else {
      headers = std::move(answer.headers);
      auto set = parse_jwks(answer.body, SecretKeys::refused);
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
  url.call = nullptr;
  const MonotonicTime now = std::chrono::steady_clock::now();
  if (reason.empty()) {
    url.fetched->Increment();
    url.fetched_at = now;
    url.pauses.reset();
    url.due = now + jwks_lifetime(headers);
  } else if (!stopped_) {
    url.failed->Increment();
    const Millis pause = url.pauses.next();
    url.due = now + pause;
    shared_.log.warning("jwks_fetch_failed",
                        {{"keys", url.name},
                         {"reason", reason},
                         {"next", url.fetched_at ? "the keys fetched before stay in use"
                                                 : "keyed requests of its routes get 503 until it can be fetched"},
                         {"retry_seconds", std::chrono::ceil<std::chrono::seconds>(pause).count()}});
  }
  url.keys.fetched(!reason.empty());
  url.fetching = false;
  show_ages();
  --fetches_;
}

// The set, or why there is none.
Task<Fetched> TrustKeeper::get(KeyUrl& url) {
  UpstreamRequest request;
  request.method = "GET";
  request.target = url.url.target;
  request.headers.add("Accept", "application/jwk-set+json, application/json");
  UpstreamCall call(*url.pool);
  url.call = &call;
  co_return co_await oncekey::fetch(call, request, {}, std::chrono::steady_clock::now() + kFetchTimeout, kSetLimit);
}

} // namespace oncekey
