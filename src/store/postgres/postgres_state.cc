#include "store/postgres/postgres_state.h"

#include "core/bucket.h"

#include <fmt/format.h>

namespace oncekey::postgres {
namespace {

// Longer than a request waits for an answer without looking again.
constexpr Millis kAwaitedFor{120'000};
// One poll asks for all of them. Requests beyond this number look again by their own timers.
constexpr std::size_t kAwaitedMax = 10'000;

} // namespace

void AwaitedIds::add(const std::vector<RecordId>& ids) {
  if (ids.empty()) return;
  const Deadline until = deadline_in(kAwaitedFor);
  const std::lock_guard lock(mutex_);
  for (const RecordId& id : ids) {
    if (ids_.size() < kAwaitedMax || ids_.contains(id)) ids_[id] = until;
  }
}

void AwaitedIds::remove(const RecordId& id) {
  const std::lock_guard lock(mutex_);
  ids_.erase(id);
}

std::vector<RecordId> AwaitedIds::current() {
  const Deadline now = std::chrono::steady_clock::now();
  const std::lock_guard lock(mutex_);
  std::erase_if(ids_, [&](const auto& entry) { return entry.second <= now; });
  const auto ids = std::views::keys(ids_);
  return {ids.begin(), ids.end()};
}

KnownMarker PostgresState::known_marker() const {
  const std::lock_guard lock(mutex_);
  return known_marker_;
}

Status PostgresState::admit(Connection& connection) {
  const std::lock_guard turn(marker_mutex_);
  const Result<ServerSight> sight = look_at_server(connection, deadline_in(call_timeout));
  if (!sight) return sight.fault();
  const PostgresSettings& settings = sight->settings;
  if (const Status fit = suitable(settings, target.name); !fit) return fit;

  const Durability level = durability_of(settings);
  durability = level;
  marker.report_durability(
      level,
      fmt::format("fsync={} full_page_writes={} synchronous_commit={} synchronous_standby_names=\"{}\"", settings.fsync,
                  settings.full_page_writes, settings.synchronous_commit, settings.synchronous_standby_names));
  see(connection, sight->meta);
  return ok_status();
}

Status PostgresState::count_tick(Connection& connection) {
  const std::lock_guard turn(marker_mutex_);
  const Result<std::optional<MetaRow>> meta = tick(connection, deadline_in(call_timeout));
  if (!meta) return meta.fault();
  see(connection, *meta);
  return ok_status();
}

void PostgresState::see(Connection& connection, const std::optional<MetaRow>& meta) {
  const Status seen = marker.see(0, meta);
  marker.report_memory(marker.memory.memory());
  if (marker.must_note_loss(meta)) {
    // If this fails the next look at the marker tries again.
    const Deadline deadline = deadline_in(call_timeout);
    const Status noted = meta ? mark_lost(connection, meta->marker.generation, deadline)
                              : make_lost_schema(connection, KeptSecret(marker.secret, marker.sealer), deadline);
    if (!noted) log.warning("memory_loss_not_marked", {{"store", target.name}, {"reason", noted.fault().message}});
  }
  if (!meta) return;
  if (marker.must_reseal(meta->secret)) {
    // If this fails the next look at the marker tries again.
    const KeptSecret next(marker.secret, marker.sealer);
    const Status resealed = reseal(connection, meta->secret, next, deadline_in(call_timeout));
    if (!resealed) log.warning("secret_not_sealed", {{"store", target.name}, {"reason", resealed.fault().message}});
  }
  clock.learn(meta->clock);
  const std::lock_guard lock(mutex_);
  if (seen) known_marker_ = {meta->marker.generation, meta->marker.tick};
}

void PostgresState::connected() {
  const std::lock_guard lock(mutex_);
  queue.served_by(++connected_);
  queue.accept_again();
}

void PostgresState::disconnected() {
  const std::lock_guard lock(mutex_);
  queue.served_by(--connected_);
}

void PostgresState::cannot_connect(const Fault& fault) {
  std::vector<PostgresCallPtr> refused;
  {
    const std::lock_guard lock(mutex_);
    if (connected_ == 0) refused = queue.refuse_all(fault);
  }
  for (const PostgresCallPtr& call : refused) refuse(call->what, fault);
}

void PostgresState::claimed_with(Millis retention) {
  const int width = bucket_width_log2(retention);
  const std::lock_guard lock(mutex_);
  Millis& longest = retentions_[width];
  longest = std::max(longest, retention);
}

std::map<int, Millis> PostgresState::retentions() const {
  const std::lock_guard lock(mutex_);
  return retentions_;
}

void PostgresState::announce_to(Store::Listener listener) {
  const std::lock_guard lock(mutex_);
  listener_ = std::move(listener);
}

void PostgresState::announce(const std::optional<RecordId>& settled) const {
  Store::Listener listener;
  {
    const std::lock_guard lock(mutex_);
    listener = listener_;
  }
  if (listener) listener(settled);
}

void PostgresState::stop() {
  const std::lock_guard lock(mutex_);
  stopping_ = true;
  stop_.notify_all();
}

bool PostgresState::sleep(Millis duration) {
  std::unique_lock lock(mutex_);
  stop_.wait_for(lock, duration, [this] { return stopping_.load(); });
  return !stopping_;
}

} // namespace oncekey::postgres
