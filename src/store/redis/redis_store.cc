#include "store/redis/redis_store.h"

#include "core/record_codec.h"
#include "store/redis/browsing.h"
#include "store/redis/listing.h"
#include "store/redis/rates.h"
#include "store/redis/record_value.h"
#include "store/redis/redis_jobs.h"
#include "store/redis/store_loop.h"

#include <array>
#include <utility>

namespace oncekey {
namespace {

using redis::call_for;
using redis::CallPtr;
using redis::ScriptCall;

void add_response(ScriptCall& call, const StoredResponse& response) {
  call.add(redis::encode_status(response.status));
  call.add(response.unfinished() ? "1" : "0");
  std::string bytes;
  encode_response(response, bytes);
  call.add(bytes);
}

// By FenceVerb.
constexpr std::array<std::string_view, 6> kFenceVerbs{"", "R", "D", "L", "H", "H"};

CallPtr call_for(const FenceCall& what) {
  CallPtr call = call_for(what.owner.id, kFenceVerbs.at(static_cast<std::size_t>(what.verb)));
  std::string words = redis::encode_fence(what.owner.fence);
  if (what.owner.token != ClaimToken{}) words.append(what.owner.token.begin(), what.owner.token.end());
  call->add(words);
  if (what.verb == FenceVerb::renew) call->add_millis(what.lease);
  if (what.verb == FenceVerb::complete) add_response(*call, what.response);
  if (what.verb == FenceVerb::hold) call->add("0");
  if (what.verb == FenceVerb::hold_found) call->add("1");
  return call;
}

} // namespace

class RedisStore::Impl {
 public:
  Impl(std::unique_ptr<redis::StoreLoop> opened, QueueLimits limits)
      : room(limits),
        rates(opened->loop(), opened->servers(), opened->names()),
        jobs(*opened, [this](CallPtr call, AnyCall what) { submit(std::move(call), std::move(what)); }),
        store_loop(std::move(opened)) {}

  void submit(CallPtr call, AnyCall what) {
    call->what = std::move(what);
    std::optional<QueueRoom::Place> place = room.admit(kind_of(call->what), call->arguments.size());
    if (!place) return refuse(call->what, overloaded());
    call->place = *std::move(place);
    store_loop->dispatcher().submit(std::move(call));
  }

  // Above the loop, which may still have calls when it ends.
  QueueRoom room;
  redis::Rates rates;
  redis::RedisJobs jobs;
  const std::unique_ptr<redis::StoreLoop> store_loop;
};

RedisStore::RedisStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RedisStore::~RedisStore() = default;

Result<std::unique_ptr<RedisStore>> RedisStore::open(RedisOptions options) {
  Result<std::unique_ptr<redis::StoreLoop>> store_loop = redis::StoreLoop::make(options);
  if (!store_loop) return std::move(store_loop).fault();
  if (Status status = (*store_loop)->open_store(); !status) return std::move(status).fault();
  return std::unique_ptr<RedisStore>(
      new RedisStore(std::make_unique<Impl>(*std::move(store_loop), options.queue_limits)));
}

void RedisStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (Status may = impl_->store_loop->state().may_claim(); !may) return done(std::move(may).fault());
  CallPtr call = call_for(request.id, "C");
  call->add(redis::encode_times(request));
  call->add(request.abandoned == Abandoned::take_over ? "1" : "0");
  call->add(redis::encode_identity(request));
  impl_->submit(std::move(call), ClaimCall{std::move(request), std::move(done)});
}

JobStore& RedisStore::jobs() { return impl_->jobs; }

void RedisStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  if (interest == Interest::settling) impl_->store_loop->announcements().note_waiter();
  CallPtr call = call_for(id, "F");
  call->add(interest == Interest::settling ? "1" : "0");
  impl_->submit(std::move(call), FindCall{id, interest, std::move(done)});
}

void RedisStore::by_fence(FenceCall what) {
  CallPtr call = call_for(what);
  what.response = {}; // it is among the arguments
  impl_->submit(std::move(call), std::move(what));
}

void RedisStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                         Done<OperatorAnswer> done) {
  CallPtr call = call_for(id, "O");
  call->add(to_string(action));
  add_response(*call, response);
  impl_->submit(std::move(call), OperatorCall{id, action, {}, std::move(done)});
}

void RedisStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  redis::StoreLoop& store_loop = *impl_->store_loop;
  store_loop.loop().post([&store_loop, request, done = std::move(done)]() mutable {
    spawn(redis::list_records(store_loop.servers(), store_loop.names(), request, store_loop.now(), std::move(done)));
  });
}

void RedisStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  redis::StoreLoop& store_loop = *impl_->store_loop;
  store_loop.loop().post([&store_loop, request, done = std::move(done)]() mutable {
    spawn(redis::browse_records(store_loop.servers(), store_loop.names(), request, store_loop.now(), std::move(done)));
  });
}

void RedisStore::count_waiting(Done<WaitingKeys> done) {
  redis::StoreLoop& store_loop = *impl_->store_loop;
  store_loop.loop().post([&store_loop, done = std::move(done)]() mutable {
    spawn(redis::count_waiting_records(store_loop.servers(), store_loop.names(), store_loop.now(), std::move(done)));
  });
}

void RedisStore::announce_to(Listener listener) { impl_->store_loop->announcements().tell(std::move(listener)); }
std::size_t RedisStore::server_of(const RecordId& id) const {
  return impl_->store_loop->servers().number_of(impl_->store_loop->names().partition_of(id));
}
std::size_t RedisStore::servers() const { return impl_->store_loop->servers().count(); }
Time RedisStore::now() const { return impl_->store_loop->now(); }
const std::array<std::uint8_t, 32>& RedisStore::secret() const { return impl_->store_loop->state().marker.secret; }
Durability RedisStore::durability() const { return impl_->store_loop->state().durability(); }
Status RedisStore::healthy() const { return impl_->store_loop->state().healthy(); }
RateKeeper* RedisStore::rates() { return &impl_->rates; }
StoreStats RedisStore::stats() const { return impl_->store_loop->state().stats(); }

Status reach_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::StoreLoop>> store_loop = redis::StoreLoop::make(options);
  if (!store_loop) return std::move(store_loop).fault();
  return (*store_loop)->reach();
}

Result<std::string> read_identity_note_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::StoreLoop>> store_loop = redis::StoreLoop::make(options);
  if (!store_loop) return std::move(store_loop).fault();
  std::string text;
  if (const Status read = (*store_loop)->read_identity(text); !read) return read.fault();
  return text;
}

Result<bool> write_identity_note_redis(const RedisOptions& options, const std::string& expected,
                                       const std::string& next) {
  Result<std::unique_ptr<redis::StoreLoop>> store_loop = redis::StoreLoop::make(options);
  if (!store_loop) return std::move(store_loop).fault();
  bool written = false;
  if (const Status status = (*store_loop)->write_identity(expected, next, written); !status) return status.fault();
  return written;
}

Status accept_lost_memory_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::StoreLoop>> store_loop = redis::StoreLoop::make(options);
  if (!store_loop) return std::move(store_loop).fault();
  return (*store_loop)->accept_loss();
}

} // namespace oncekey
