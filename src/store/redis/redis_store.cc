#include "store/redis/redis_store.h"

#include "core/record_codec.h"
#include "store/redis/listing.h"
#include "store/redis/rates.h"
#include "store/redis/record_value.h"
#include "store/redis/session.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <utility>

namespace oncekey {
namespace {

using redis::Answer;
using redis::Call;
using redis::CallPtr;

Fault odd_answer() { return {FaultKind::timeout, "Redis gave an answer of an unexpected shape"}; }

CallPtr call_for(const RecordId& id, std::string_view verb) {
  auto call = std::make_unique<Call>();
  call->id = id;
  call->add(verb);
  return call;
}

CallPtr call_for(const Ownership& owner, std::string_view verb) {
  CallPtr call = call_for(owner.id, verb);
  call->add(redis::encode_fence(owner.fence));
  return call;
}

void add_millis(Call& call, Millis time) {
  call.add_decimal(static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.count())));
}

void add_response(Call& call, const StoredResponse& response) {
  call.add(redis::encode_status(response.status));
  call.add(response.omitted && !response.omitted->whole ? "1" : "0");
  std::string bytes;
  encode_response(response, bytes);
  call.add(bytes);
}

Result<Found> found_in(const Answer& answer) {
  Result<Record> record = redis::decode_value(answer.reply.text());
  if (!record) return std::move(record).fault();
  return Found{*std::move(record), answer.now};
}

Result<ClaimAnswer> claim_answer(const Answer& answer) {
  if (answer.reply.is_integer()) {
    const auto fence_and_took_over = static_cast<std::uint64_t>(*answer.reply.integer());
    return ClaimAnswer(Claimed{fence_and_took_over / 2, fence_and_took_over % 2 == 1, answer.now});
  }
  if (!answer.reply.is_text()) return odd_answer();
  Result<Found> found = found_in(answer);
  if (!found) return std::move(found).fault();
  return ClaimAnswer(*std::move(found));
}

Result<std::optional<Found>> find_answer(const Answer& answer) {
  if (answer.reply.is_nil()) return std::optional<Found>();
  if (!answer.reply.is_text()) return odd_answer();
  Result<Found> found = found_in(answer);
  if (!found) return std::move(found).fault();
  return std::optional<Found>(*std::move(found));
}

Result<FenceAnswer> fence_answer(const Answer& answer) {
  if (!answer.reply.is_integer()) return odd_answer();
  return *answer.reply.integer() == 1 ? FenceAnswer::done : FenceAnswer::lost;
}

Result<OperatorAnswer> operator_answer(const Answer& answer) {
  switch (answer.reply.integer().value_or(-1)) {
    case 0:
      return OperatorAnswer::done;
    case 1:
      return OperatorAnswer::absent;
    case 2:
      return OperatorAnswer::live;
    case 3:
      return OperatorAnswer::completed;
    default:
      return odd_answer();
  }
}

} // namespace

class RedisStore::Impl {
 public:
  explicit Impl(std::unique_ptr<redis::Session> opened)
      : rates(opened->context(), opened->servers(), opened->names()), session(std::move(opened)) {}

  template <class T>
  void submit(CallPtr call, Result<T> (*read)(const Answer&), Done<T> done) {
    call->answered = [read, done = std::move(done)](Result<Answer> answer) {
      if (answer) {
        done(read(*answer));
      } else {
        done(std::move(answer).fault());
      }
    };
    session->dispatcher().submit(std::move(call));
  }

  // Above the session, whose loop may still have a call of it when it ends.
  redis::Rates rates;
  const std::unique_ptr<redis::Session> session;
};

RedisStore::RedisStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RedisStore::~RedisStore() = default;

Result<std::unique_ptr<RedisStore>> RedisStore::open(RedisOptions options) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  if (Status status = (*session)->open_store(); !status) return std::move(status).fault();
  return std::unique_ptr<RedisStore>(new RedisStore(std::make_unique<Impl>(*std::move(session))));
}

void RedisStore::claim(ClaimRequest request, Done<ClaimAnswer> done) {
  if (Status may = impl_->session->state().may_claim(); !may) return done(std::move(may).fault());
  CallPtr call = call_for(request.id, "C");
  call->add(redis::encode_times(request));
  call->add(request.abandoned == Abandoned::take_over ? "1" : "0");
  call->add(redis::encode_identity(request));
  impl_->submit<ClaimAnswer>(std::move(call), claim_answer, std::move(done));
}

void RedisStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  if (interest == Interest::settling) impl_->session->announcements().somebody_waits();
  CallPtr call = call_for(id, "F");
  call->add(interest == Interest::settling ? "1" : "0");
  impl_->submit<std::optional<Found>>(std::move(call), find_answer, std::move(done));
}

void RedisStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "R");
  add_millis(*call, lease);
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "D");
  add_response(*call, response);
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  impl_->submit<FenceAnswer>(call_for(owner, "L"), fence_answer, std::move(done));
}

void RedisStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "H");
  call->add(by == Holder::finder ? "1" : "0");
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                         Done<OperatorAnswer> done) {
  CallPtr call = call_for(id, "O");
  call->add(to_string(action));
  add_response(*call, response);
  impl_->submit<OperatorAnswer>(std::move(call), operator_answer, std::move(done));
}

void RedisStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  redis::Session& session = *impl_->session;
  boost::asio::co_spawn(
      session.context(),
      redis::list_records(session.servers(), session.names(), request, session.now(), std::move(done)),
      boost::asio::detached);
}

void RedisStore::announce_to(Listener listener) { impl_->session->announcements().tell(std::move(listener)); }
Time RedisStore::now() const { return impl_->session->now(); }
const std::array<std::uint8_t, 32>& RedisStore::secret() const { return impl_->session->state().secret; }
Durability RedisStore::durability() const { return impl_->session->state().durability(); }
Status RedisStore::healthy() const { return impl_->session->state().healthy(); }
RateKeeper* RedisStore::rates() { return &impl_->rates; }
StoreStats RedisStore::stats() const { return impl_->session->state().stats(); }

Status accept_lost_memory_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  return (*session)->accept_loss();
}

} // namespace oncekey
