#include "store/redis/dispatcher.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace oncekey::redis {
namespace {

// A script blocks the server while it runs: some hundred microseconds for so many calls.
constexpr std::size_t kBatchCallsMax = 64;
constexpr std::size_t kBatchBytesMax = 256u << 10;
// How often a call follows redirections at once, before it waits a moment.
constexpr int kResentMax = 16;
constexpr Millis kPauseBeforeAnotherTry{10};
// One is being executed while the next one travels.
constexpr int kGroupsUnderWay = 2;
constexpr int kGroupsUnderWayWithSync = 1;

Fault closed_fault() { return unavailable("the store is closed"); }

// The errors that the script itself makes.
std::optional<Fault> record_fault(std::string_view error) {
  if (error.starts_with("CORRUPT") || error.starts_with("WRONGTYPE")) {
    return corrupt(fmt::format("a record in Redis cannot be read: {}; look at what else uses this server", error));
  }
  if (error.starts_with("NEWERFORMAT ")) {
    return Fault{FaultKind::newer_format,
                 fmt::format("a record in Redis has format {}, which this version of oncekey does not know: it was "
                             "written by a newer oncekey; run that version, or a later one",
                             error.substr(error.find(' ') + 1))};
  }
  return std::nullopt;
}

} // namespace

Dispatcher::Dispatcher(StoreState& state, Servers& servers, std::function<void()> look_again)
    : state_(state), servers_(servers), look_again_(std::move(look_again)), ticks_(state.names.partitions()) {}

void Dispatcher::submit(CallPtr call) {
  call->partition = state_.names.partition_of(call->id);
  call->answer_by = state_.deadline();
  bool wake = false;
  {
    const std::lock_guard lock(mutex_);
    if (!stopped_) {
      inbox_.push_back(std::move(call));
      wake = inbox_.size() == wake_at_;
    }
  }
  if (call) return refuse(call->what, closed_fault());
  if (wake) state_.loop.post([this] { drain(); });
}

void Dispatcher::drain() {
  std::vector<CallPtr> calls;
  {
    const std::lock_guard lock(mutex_);
    std::swap(calls, inbox_);
  }
  for (CallPtr& call : calls) route(std::move(call));
  for (const std::shared_ptr<Link>& link : std::exchange(touched_, {})) send_waiting(link);
}

void Dispatcher::route(CallPtr call) {
  const std::shared_ptr<Link> link = call->asked ? servers_.link_to(*call->asked) : servers_.owner_of(call->partition);
  if (!link) return send_again(std::move(call), When::soon, unavailable("the cluster's slots are not known yet"));
  if (link->is_new()) return send_again(std::move(call), When::soon, link->why_not());
  if (!link->is_ready()) {
    servers_.refresh_soon();
    return finish(std::move(call), link->why_not());
  }
  std::vector<CallPtr> sharing = std::exchange(call->sharing, {});
  link->queue.add(std::move(call));
  if (touched_.empty() || touched_.back() != link) touched_.push_back(link);
  for (CallPtr& each : sharing) route(std::move(each)); // of one that is sent again
}

void Dispatcher::finish(CallPtr call, const Result<ScriptAnswer>& answer) {
  for (CallPtr& other : answer_calls(*call, answer)) route(std::move(other));
}

void Dispatcher::send_waiting(const std::shared_ptr<Link>& link) {
  if (!link->is_ready()) {
    for (CallPtr& call : link->queue.take_out([](const ScriptCall&) { return true; })) {
      finish(std::move(call), link->why_not());
    }
    return;
  }
  const bool syncs = state_.durability() == Durability::power;
  // Without a sync a batch costs little: it does not wait for more calls.
  const std::size_t enough = syncs ? std::numeric_limits<std::size_t>::max() : 1;
  while (link->groups < (syncs ? kGroupsUnderWayWithSync : kGroupsUnderWay)) {
    const MonotonicTime now = Clock::now();
    const std::optional<MonotonicTime> departure = link->queue.departure(now, enough);
    if (!departure) return;
    if (*departure > now) {
      if (!std::exchange(link->gathering, true)) spawn(send_gathered(link, *departure));
      // With several servers, a call to another server must not wait for this one's batch.
      if (state_.names.partitions() == 1) wake_at(link->queue.missing());
      return;
    }
    wake_at(1);
    send_group(link, now);
  }
}

Task<void> Dispatcher::send_gathered(std::shared_ptr<Link> link, MonotonicTime at) {
  co_await sleep_until(state_.loop, at);
  link->gathering = false;
  wake_at(1);
  touched_.push_back(link);
  drain();
}

void Dispatcher::wake_at(std::size_t calls) {
  bool due = false;
  {
    const std::lock_guard lock(mutex_);
    wake_at_ = calls;
    due = !inbox_.empty() && inbox_.size() >= calls;
  }
  if (due) state_.loop.post([this] { drain(); });
}

void Dispatcher::batch_is_done(Group& group) {
  if (--group.batches > 0) return;
  const MonotonicTime now = Clock::now();
  --group.link->groups;
  group.link->queue.give_back(std::move(group.ids), now - group.left_at, now);
  touched_.push_back(group.link);
}

void Dispatcher::send_group(const std::shared_ptr<Link>& link, MonotonicTime now) {
  constexpr std::size_t kAll = std::numeric_limits<std::size_t>::max();
  const auto group = std::make_shared<Group>(Group{link, link->queue.take(kAll, kAll), now, 1});
  ++link->groups;
  std::vector<CallPtr> calls;
  calls.reserve(group->ids.size());
  const Status may_claim = state_.may_claim();
  for (auto& each : group->ids) {
    CallPtr call = std::move(each.calls.front());
    each.calls.erase(each.calls.begin());
    call->sharing = std::exchange(each.calls, {});
    // They may have waited since before claims were refused.
    if (call->answer_by <= now) {
      finish(std::move(call), unavailable("Redis is too slow: the call waited too long to be sent, and was not"));
    } else if (!may_claim && kind_of(call->what) == CallKind::begins_work) {
      finish(std::move(call), may_claim.fault());
    } else {
      calls.push_back(std::move(call));
    }
  }
  if (state_.names.partitions() > 1) {
    std::stable_sort(calls.begin(), calls.end(),
                     [](const CallPtr& a, const CallPtr& b) { return a->partition < b->partition; });
  }
  std::vector<CallPtr> batch;
  std::size_t bytes = 0;
  for (CallPtr& call : calls) {
    const bool fits = !batch.empty() && batch[0]->partition == call->partition && batch[0]->script == call->script &&
                      batch.size() < kBatchCallsMax && bytes + call->arguments.size() <= kBatchBytesMax &&
                      !call->alone && !batch[0]->alone;
    if (!fits && !batch.empty()) {
      send_batch(group, std::exchange(batch, {}));
      bytes = 0;
    }
    bytes += call->arguments.size();
    batch.push_back(std::move(call));
  }
  if (!batch.empty()) send_batch(group, std::move(batch));
  // The count began at one, so that batches that fail at once do not end the group before it is complete.
  batch_is_done(*group);
}

void Dispatcher::send_batch(const GroupPtr& group, std::vector<CallPtr> calls) {
  const std::uint32_t partition = calls[0]->partition;
  // Shared, since std::function wants to copy what it holds.
  const auto sent = std::make_shared<Sent>(
      Sent{group, std::move(calls), state_.marker.memory.generation(), ++ticks_[partition].asked});
  MonotonicTime deadline = MonotonicTime::max();
  for (const CallPtr& call : sent->calls) deadline = std::min(deadline, call->answer_by);
  // A call that had to wait leaves little time for itself. All calls of the server share the connection, which is
  // closed when the deadline has passed.
  deadline = std::max(deadline, Clock::now() + state_.connections.call_timeout / 2);
  ++group->batches;
  state_.batches.fetch_add(1, std::memory_order_relaxed);
  state_.calls.fetch_add(sent->calls.size(), std::memory_order_relaxed);
  const std::shared_ptr<RedisConnection> connection = group->link->connection();
  if (std::exchange(sent->calls[0]->asked, std::nullopt)) {
    connection->send(command({"ASKING"}), deadline, [](const Result<OwnedReply>&) {});
  }
  connection->send(
      batch_bytes(partition, sent->calls, sent->generation, counts_ticks()), deadline,
      [this, sent](Result<OwnedReply> reply) { answered(*sent, std::move(reply)); }, Covered::yes);
}

std::string Dispatcher::batch_bytes(std::uint32_t partition, std::span<const CallPtr> calls,
                                    std::string_view generation, bool count_tick) const {
  std::string clock;
  if (state_.test_clock) clock = std::to_string(state_.test_clock().time_since_epoch().count());
  const std::uint64_t seen_tick = ticks_[partition].largest_of(generation);
  const std::string& sha = shas_[static_cast<std::size_t>(calls.empty() ? Script::records : calls[0]->script)];
  return batch_command({state_.names, sha, generation, seen_tick, std::move(clock), count_tick}, partition, calls);
}

void Dispatcher::answered(Sent& sent, Result<OwnedReply> reply) {
  if (reply) {
    take_reply(sent, reply->look());
  } else {
    servers_.refresh_soon();
    for (CallPtr& call : sent.calls) finish(std::move(call), reply.fault());
  }
  batch_is_done(*sent.group);
  drain(); // calls that are sent again leave together with the calls that have gathered meanwhile
}

void Dispatcher::take_reply(Sent& sent, RedisReply reply) {
  const Link& link = *sent.group->link;
  std::vector<CallPtr>& calls = sent.calls;
  if (reply.is_error()) return take_error(link, calls, parse_error(reply.text()));
  const std::uint32_t partition = calls[0]->partition;
  const Result<BatchReply> batch = parse_batch_reply(reply, calls.size());
  if (!batch) {
    for (CallPtr& call : calls) finish(std::move(call), batch.fault());
    return;
  }
  if (batch->lost) {
    const Status status = after_loss(partition, sent.generation, batch->met);
    for (CallPtr& call : calls) {
      if (status) {
        send_again(std::move(call), When::soon, unavailable("the store was just given a new marker"));
      } else {
        finish(std::move(call), status.fault());
      }
    }
    return;
  }
  if (!state_.test_clock) state_.clock.learn(batch->now);
  saw_tick(partition, sent.turn, sent.generation, batch->tick);
  const Status memory = state_.remembers();
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const RedisReply answer = batch->answer(i);
    if (!memory && kind_of(calls[i]->what) == CallKind::begins_work) {
      // The loss became known while the claim was on its way. It stands until its lease is over, without an owner.
      finish(std::move(calls[i]), memory.fault());
    } else if (!answer.is_error()) {
      finish(std::move(calls[i]), ScriptAnswer{answer, batch->now});
    } else if (std::optional<Fault> fault = record_fault(answer.text())) {
      finish(std::move(calls[i]), *std::move(fault));
    } else {
      take_error(link, {&calls[i], 1}, parse_error(answer.text()));
    }
  }
}

void Dispatcher::take_error(const Link& link, std::span<CallPtr> calls, const ServerError& error) {
  const Fault fault = fault_of(error, link.host());
  Host to = error.host;
  if (to.name.empty()) to.name = link.host().name;
  // Sent first, so that the script is there when the calls arrive again.
  if (error.kind == ErrorKind::no_script) {
    for (const Script script : {Script::records, Script::jobs}) {
      link.connection()->send(command({"SCRIPT", "LOAD", text_of(script)}), state_.deadline(),
                              [](const Result<OwnedReply>&) {});
    }
  }
  if (error.kind == ErrorKind::moved) servers_.moved(calls[0]->partition, to);
  if (error.kind == ErrorKind::again) servers_.refresh_soon();
  for (CallPtr& call : calls) {
    switch (error.kind) {
      case ErrorKind::ask:
        call->asked = to;
        [[fallthrough]];
      case ErrorKind::moved:
        call->alone = true;
        [[fallthrough]];
      case ErrorKind::no_script:
        send_again(std::move(call), When::at_once, fault);
        break;
      case ErrorKind::again:
        call->alone = true;
        send_again(std::move(call), When::soon, fault);
        break;
      case ErrorKind::refused:
        finish(std::move(call), Fault{FaultKind::unavailable, fault.message});
        break;
      case ErrorKind::unclear:
        finish(std::move(call), fault);
        break;
    }
  }
}

Status Dispatcher::after_loss(std::uint32_t partition, const std::string& sent_with,
                              const std::optional<Marker>& marker) {
  if (sent_with != state_.marker.memory.generation()) return ok_status(); // sent before the new generation was known
  if (marker && marker->generation != sent_with && marker->replaces == kReplacesAny) {
    // An operator accepts a loss. accept_loss() writes all markers first and the meta last; the meta is what counts.
    look_again_();
    return state_.marker.memory.memory();
  }
  Status status = state_.marker.memory.see(partition, marker);
  look_again_();
  return status;
}

void Dispatcher::saw_tick(std::uint32_t partition, std::uint64_t turn, const std::string& generation,
                          std::uint64_t tick) {
  if (tick == 0 || generation != state_.marker.memory.generation()) return;
  SeenTicks& ticks = ticks_[partition];
  // While a partition moves to another server, answers may overtake each other: an older one proves nothing.
  if (turn < ticks.seen) return;
  ticks.seen = turn;
  if (!state_.marker.memory.see(partition, Marker{generation, "", tick, false})) return look_again_();
  ticks.generation = generation;
  ticks.largest = tick;
}

Task<Status> Dispatcher::tick(std::shared_ptr<RedisConnection> connection, std::uint32_t partition) {
  watched_.insert(partition);
  const std::uint64_t turn = ++ticks_[partition].asked;
  const std::string generation = state_.marker.memory.generation();
  std::string bytes = batch_bytes(partition, {}, generation, /*count_tick=*/true);
  const Result<OwnedReply> reply = co_await connection->ask(std::move(bytes), state_.deadline());
  if (!reply) co_return reply.fault(); // unknown whether it has forgotten
  if (reply->look().is_error()) {
    // A server that has forgotten the script, and gets no calls that would notice. If it fails, the next tick tries
    // again.
    if (parse_error(reply->look().text()).kind == ErrorKind::no_script) (void)co_await load_script(connection);
    co_return ok_status();
  }
  const Result<BatchReply> batch = parse_batch_reply(reply->look(), 0);
  if (!batch) co_return batch.fault();
  if (batch->lost) {
    const Status noted = after_loss(partition, generation, batch->met);
    co_return ok_status();
  }
  if (!state_.test_clock) state_.clock.learn(batch->now);
  // With wait=N only a tick that the replicas have counts as seen. Otherwise a failover that lost this tick alone would
  // look like lost memory. The replies to batches are held back until the replicas have confirmed; this reply was not.
  if (!counts_ticks()) saw_tick(partition, turn, generation, batch->tick);
  co_return ok_status();
}

Task<Status> Dispatcher::load_script(std::shared_ptr<RedisConnection> connection) {
  for (const Script script : {Script::records, Script::jobs}) {
    const Result<OwnedReply> reply = co_await connection->get(state_.deadline(), "SCRIPT", "LOAD", text_of(script));
    if (!reply) co_return reply.fault();
    shas_[static_cast<std::size_t>(script)] = std::string(reply->look().text());
  }
  co_return ok_status();
}

void Dispatcher::send_again(CallPtr call, When when, const Fault& because) {
  const bool at_once = when == When::at_once && ++call->resent <= kResentMax;
  if (Clock::now() + (at_once ? Millis{0} : kPauseBeforeAnotherTry) >= call->answer_by)
    return finish(std::move(call), Fault{FaultKind::unavailable, because.message});
  if (at_once) return route(std::move(call));
  call->resent = 0;
  parked_.push_back(std::move(call));
  if (!std::exchange(parked_wait_, true)) spawn(route_parked());
}

Task<void> Dispatcher::route_parked() {
  co_await sleep_for(state_.loop, kPauseBeforeAnotherTry);
  parked_wait_ = false;
  for (CallPtr& call : std::exchange(parked_, {})) route(std::move(call));
  drain();
}

void Dispatcher::stop() {
  std::vector<CallPtr> calls;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    std::swap(calls, inbox_);
  }
  for (CallPtr& call : std::exchange(parked_, {})) calls.push_back(std::move(call));
  for (const auto& [host, link] : servers_.links()) {
    for (CallPtr& call : link->queue.take_out([](const ScriptCall&) { return true; })) calls.push_back(std::move(call));
  }
  for (CallPtr& call : calls) finish(std::move(call), closed_fault());
}

} // namespace oncekey::redis
