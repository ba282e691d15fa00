#include "store/redis/redis_store.h"

#include "core/record_codec.h"
#include "store/redis/browsing.h"
#include "store/redis/listing.h"
#include "store/redis/own_tokens.h"
#include "store/redis/rates.h"
#include "store/redis/record_value.h"
#include "store/redis/session.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include <algorithm>
#include <map>
#include <mutex>
#include <set>
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

CallPtr call_for(const Ownership& owner, std::string_view verb, const std::optional<ClaimToken>& token) {
  CallPtr call = call_for(owner.id, verb);
  std::string words = redis::encode_fence(owner.fence);
  if (token) words.append(token->begin(), token->end());
  call->add(words);
  return call;
}

void add_millis(Call& call, Millis time) {
  call.add_decimal(static_cast<std::uint64_t>(std::max<std::int64_t>(0, time.count())));
}

void add_response(Call& call, const StoredResponse& response) {
  call.add(redis::encode_status(response.status));
  call.add(response.unfinished() ? "1" : "0");
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

Result<std::vector<TakenJob>> taken_answer(const Answer& answer) {
  std::vector<TakenJob> taken;
  for (std::size_t at = 1; at + 1 < answer.reply.size(); at += 2) {
    const std::optional<RecordId> id = record_id_from_hex(answer.reply[at].text());
    Result<Record> record = redis::decode_value(answer.reply[at + 1].text());
    if (!id) return odd_answer();
    if (!record) return std::move(record).fault();
    taken.push_back({*id, *std::move(record), answer.now});
  }
  return taken;
}

// The answers of several partitions to one take.
struct TakeInParts {
  std::mutex mutex;
  std::size_t open = 0;
  std::vector<TakenJob> taken;
  std::optional<Fault> fault;
  Done<std::vector<TakenJob>> done;

  void add(Result<std::vector<TakenJob>> part) {
    {
      const std::lock_guard lock(mutex);
      if (part) {
        std::move(part->begin(), part->end(), std::back_inserter(taken));
      } else {
        fault = std::move(part).fault();
      }
      if (--open != 0) return;
    }
    // What was taken somewhere is handed out, whatever went wrong elsewhere.
    if (taken.empty() && fault) return done(*std::move(fault));
    done(std::move(taken));
  }
};

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

  // A call after which nothing is owned any more. One that was lost is remembered: its owner may try something else.
  void submit_last(CallPtr call, const Ownership& owner, Done<FenceAnswer> done) {
    submit<FenceAnswer>(std::move(call), fence_answer,
                        [this, owner, done = std::move(done)](Result<FenceAnswer> answer) {
                          if (answer && *answer == FenceAnswer::done) tokens.forget(owner);
                          done(std::move(answer));
                        });
  }

  // Where a route has jobs, as far as is known here.
  struct Whereabouts {
    std::set<std::uint32_t> with_jobs;
    std::uint32_t last_asked = 0; // of those
    std::uint32_t turn = 0;       // of all
  };

  // Which partitions to take from, and how many from each. Some of all are only asked whether they have any, in turn:
  // jobs that nobody delivers any more may be anywhere.
  std::map<std::uint32_t, std::size_t> where_to_take(const TakeRequest& request) {
    const std::uint32_t all = session->names().partitions();
    if (all == 1) return {{0, request.limit}};
    std::map<std::uint32_t, std::size_t> limits;
    const std::lock_guard lock(jobs_mutex);
    Whereabouts& known = whereabouts[request.route];
    const std::size_t some = std::min({known.with_jobs.size(), request.limit, kPartitionsPerTake});
    auto next = known.with_jobs.upper_bound(known.last_asked);
    for (std::size_t asked = 0; asked < some; ++asked) {
      if (next == known.with_jobs.end()) next = known.with_jobs.begin();
      known.last_asked = *next++;
      limits[known.last_asked] = request.limit / some;
    }
    for (std::size_t asked = 0; asked < kPartitionsPerTake; ++asked) limits.try_emplace(known.turn++ % all, 0);
    return limits;
  }
  void has_jobs(const std::string& route, std::uint32_t partition, bool any) {
    const std::lock_guard lock(jobs_mutex);
    if (any) {
      whereabouts[route].with_jobs.insert(partition);
    } else {
      whereabouts[route].with_jobs.erase(partition);
    }
  }

  static constexpr std::size_t kPartitionsPerTake = 16;

  // Above the session, whose loop may still have a call of it when it ends.
  redis::Rates rates;
  redis::OwnTokens tokens;
  const std::unique_ptr<redis::Session> session;
  std::mutex jobs_mutex;
  std::map<std::string, Whereabouts> whereabouts; // by route
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
  if (request.staged) return stage(request, std::move(done));
  CallPtr call = call_for(request.id, "C");
  call->claims = true;
  call->add(redis::encode_times(request));
  call->add(request.abandoned == Abandoned::take_over ? "1" : "0");
  call->add(redis::encode_identity(request));
  impl_->submit<ClaimAnswer>(
      std::move(call), claim_answer,
      [this, id = request.id, token = request.token, done = std::move(done)](Result<ClaimAnswer> answer) {
        if (answer) note_owner(id, token, *answer);
        done(std::move(answer));
      });
}

void RedisStore::note_owner(const RecordId& id, const ClaimToken& token, const ClaimAnswer& answer) {
  if (const auto* const claimed = std::get_if<Claimed>(&answer)) {
    impl_->tokens.add({id, claimed->fence}, token);
  } else if (const Record& record = *std::get<Found>(answer).record; record.claimed_by == token) {
    // An attempt before this one has made it, and was not heard of.
    impl_->tokens.add({id, record.fence}, token);
  }
}

void RedisStore::stage(const ClaimRequest& request, Done<ClaimAnswer> done) {
  CallPtr call = call_for(request.id, "S");
  call->claims = true;
  call->job_route = request.route;
  call->add(redis::encode_times(request));
  call->add(redis::encode_identity(request));
  call->add_decimal(redis::encode_flags(*request.staged));
  std::string message;
  encode_response(request.staged->message, message);
  call->add(message);
  const std::uint32_t partition = impl_->session->names().partition_of(request.id);
  impl_->submit<ClaimAnswer>(
      std::move(call), claim_answer,
      [this, route = request.route, partition, done = std::move(done)](Result<ClaimAnswer> answer) {
        if (answer) impl_->has_jobs(route, partition, true);
        done(std::move(answer));
      });
}

void RedisStore::take(const TakeRequest& request, Done<std::vector<TakenJob>> done) {
  if (Status may = impl_->session->state().may_claim(); !may) return done(std::move(may).fault());
  const redis::KeyNames& names = impl_->session->names();
  const std::map<std::uint32_t, std::size_t> limits = impl_->where_to_take(request);
  auto parts = std::make_shared<TakeInParts>();
  parts->open = limits.size();
  parts->done = std::move(done);
  for (const auto& [partition, limit] : limits) {
    CallPtr call = call_for(names.nobody_in(partition), "T");
    call->claims = true;
    call->job_route = request.route;
    call->add(request.route);
    call->add_decimal(limit);
    add_millis(*call, request.lease);
    call->answered = [this, route = request.route, parts, partition = partition](const Result<Answer>& answer) {
      if (!answer) return parts->add(answer.fault());
      if (const auto left = answer->reply[0].integer()) impl_->has_jobs(route, partition, *left > 0);
      parts->add(taken_answer(*answer));
    };
    impl_->session->dispatcher().submit(std::move(call));
  }
}

void RedisStore::end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "E", std::nullopt);
  call->job_route = end.route;
  call->add(end.kind == AttemptEnd::Kind::again       ? "again"
            : end.kind == AttemptEnd::Kind::completed ? "completed"
                                                      : "dead");
  add_millis(*call, end.pause);
  call->add(redis::encode_status(end.message.status));
  std::string message;
  encode_response(end.message, message);
  call->add(message);
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) {
  if (interest == Interest::settling) impl_->session->announcements().somebody_waits();
  CallPtr call = call_for(id, "F");
  call->add(interest == Interest::settling ? "1" : "0");
  impl_->submit<std::optional<Found>>(std::move(call), find_answer, std::move(done));
}

void RedisStore::renew(const Ownership& owner, Millis lease, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "R", impl_->tokens.find(owner));
  add_millis(*call, lease);
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::complete(const Ownership& owner, StoredResponse response, Done<FenceAnswer> done) {
  CallPtr call = call_for(owner, "D", impl_->tokens.find(owner));
  add_response(*call, response);
  if (response.unfinished()) {
    return impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
  }
  impl_->submit_last(std::move(call), owner, std::move(done));
}

void RedisStore::release(const Ownership& owner, Done<FenceAnswer> done) {
  impl_->submit_last(call_for(owner, "L", impl_->tokens.find(owner)), owner, std::move(done));
}

void RedisStore::hold(const Ownership& owner, Holder by, Done<FenceAnswer> done) {
  // A finder names the record that it has found, whosever it is.
  const bool finder = by == Holder::finder;
  CallPtr call = call_for(owner, "H", finder ? std::nullopt : impl_->tokens.find(owner));
  call->add(finder ? "1" : "0");
  impl_->submit<FenceAnswer>(std::move(call), fence_answer, std::move(done));
}

void RedisStore::operate(const RecordId& id, OperatorAction action, StoredResponse response,
                         Done<OperatorAnswer> done) {
  // Which jobs it may touch has to be said with the call, so that the record is looked at first.
  find(id, Interest::none,
       [this, id, action, response = std::move(response),
        done = std::move(done)](const Result<std::optional<Found>>& found) mutable {
         if (!found) return done(found.fault());
         CallPtr call = call_for(id, "O");
         if (*found && (*found)->record->staged) call->job_route = (*found)->record->route;
         call->add(to_string(action));
         add_response(*call, response);
         impl_->submit<OperatorAnswer>(std::move(call), operator_answer, std::move(done));
       });
}

void RedisStore::list(const ListRequest& request, Done<std::vector<Listed>> done) {
  redis::Session& session = *impl_->session;
  boost::asio::co_spawn(
      session.context(),
      redis::list_records(session.servers(), session.names(), request, session.now(), std::move(done)),
      boost::asio::detached);
}

void RedisStore::browse(const BrowseRequest& request, Done<BrowsePage> done) {
  redis::Session& session = *impl_->session;
  boost::asio::co_spawn(
      session.context(),
      redis::browse_records(session.servers(), session.names(), request, session.now(), std::move(done)),
      boost::asio::detached);
}

void RedisStore::count_waiting(Done<WaitingKeys> done) {
  redis::Session& session = *impl_->session;
  boost::asio::co_spawn(
      session.context(),
      redis::count_waiting_records(session.servers(), session.names(), session.now(), std::move(done)),
      boost::asio::detached);
}

void RedisStore::announce_to(Listener listener) { impl_->session->announcements().tell(std::move(listener)); }
Time RedisStore::now() const { return impl_->session->now(); }
const std::array<std::uint8_t, 32>& RedisStore::secret() const { return impl_->session->state().secret; }
Durability RedisStore::durability() const { return impl_->session->state().durability(); }
Status RedisStore::healthy() const { return impl_->session->state().healthy(); }
RateKeeper* RedisStore::rates() { return &impl_->rates; }
StoreStats RedisStore::stats() const { return impl_->session->state().stats(); }

Status reach_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  return (*session)->reach();
}

Result<std::string> read_identity_note_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  std::string text;
  if (const Status read = (*session)->read_identity(text); !read) return read.fault();
  return text;
}

Result<bool> write_identity_note_redis(const RedisOptions& options, const std::string& expected,
                                       const std::string& next) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  bool written = false;
  if (const Status status = (*session)->write_identity(expected, next, written); !status) return status.fault();
  return written;
}

Status accept_lost_memory_redis(const RedisOptions& options) {
  Result<std::unique_ptr<redis::Session>> session = redis::Session::make(options);
  if (!session) return std::move(session).fault();
  return (*session)->accept_loss();
}

} // namespace oncekey
