#include "store/postgres/news.h"

#include "base/crypto.h"

#include <fmt/format.h>
#include <pthread.h>

#include <unordered_set>

namespace oncekey::postgres {
namespace {

constexpr Millis kAskWhenHearing{1000};
constexpr Millis kAskWhenDeaf{50};
constexpr Millis kTestEvery{10'000};
constexpr Millis kTestTime{1000};
// So that a store that is closed does not wait for news.
constexpr Millis kNewsLookUpEvery{50};

} // namespace

News::News(PostgresState& state) : state_(state), backoff_(Millis{25}, Millis{2000}), thread_([this] { run(); }) {}

News::~News() { thread_.join(); }

void News::run() {
  pthread_setname_np(pthread_self(), "store-news");
  Deadline test_again{};
  Deadline ask_again{};
  while (!state_.stopping()) {
    if (!connection_ || !connection_->usable()) {
      if (!connect()) {
        state_.sleep(backoff_.next());
        continue;
      }
      test_again = {};
    }
    const Deadline now = std::chrono::steady_clock::now();
    if (now >= test_again) {
      const bool heard = test_hearing();
      if (heard != hears_)
        state_.log.info("notifications", {{"store", state_.target.name}, {"arrive", heard ? "yes" : "no"}});
      hears_ = heard;
      test_again = deadline_in(kTestEvery);
    }
    if (now >= ask_again) {
      if (!ask_for_awaited()) continue;
      ask_again = deadline_in(hears_ ? kAskWhenHearing : kAskWhenDeaf);
    }
    wait_for_news(std::min({ask_again, test_again, deadline_in(kNewsLookUpEvery)}));
  }
}

bool News::connect() {
  connection_.reset();
  Result<std::unique_ptr<Connection>> opened = state_.open_connection();
  if (!opened) return false;
  const Section listening = (*opened)->run_script("LISTEN oncekey_settled", deadline_in(state_.call_timeout));
  if (!listening.committed()) return false;
  connection_ = *std::move(opened);
  backoff_.reset();
  // What was settled while this gateway did not listen.
  state_.announce(std::nullopt);
  return true;
}

bool News::test_hearing() {
  test_ = fmt::format("test-{:016x}", random_u64());
  was_heard_ = false;
  // Over another connection, as real news come: over this one a pooler may lend us the very session that listens, and
  // then a gateway hears itself and no other one.
  const Result<std::unique_ptr<Connection>> other = state_.open_connection();
  if (!other) return false;
  const Section sent =
      (*other)->run_script("NOTIFY oncekey_settled, '" + test_ + "'", deadline_in(state_.call_timeout));
  if (!sent.committed()) return false;
  const Deadline until = deadline_in(kTestTime);
  while (!was_heard_ && std::chrono::steady_clock::now() < until && !state_.stopping() && connection_->usable()) {
    wait_for_news(std::min(until, deadline_in(kNewsLookUpEvery)));
  }
  return was_heard_;
}

void News::wait_for_news(Deadline until) {
  while (const std::optional<std::string> payload = connection_->next_notification(until)) {
    hear(*payload);
    until = std::chrono::steady_clock::now(); // the rest of what has arrived, without waiting
  }
}

void News::hear(std::string_view payload) {
  if (payload == test_) {
    was_heard_ = true;
    return;
  }
  const std::optional<RecordId> id = record_id_from_hex(payload);
  if (!id) return; // another gateway's test
  state_.awaited.remove(*id);
  state_.announce(id);
}

bool News::ask_for_awaited() {
  const std::vector<RecordId> awaited = state_.awaited.current();
  if (awaited.empty()) return true;
  const Section section =
      connection_->run(Statement("SELECT oncekey.at_work($1, $2)", state_.skew().count(),
                                 ArrayParam(awaited, [](const RecordId& id) { return bytea_of(id); })),
                       deadline_in(state_.call_timeout));
  if (!section.committed()) {
    connection_->give_up();
    return false;
  }
  std::unordered_set<std::string_view> at_work;
  for (const Row row : rows_of(section.result())) at_work.insert(row.bytes(0));
  for (const RecordId& id : awaited) {
    if (at_work.contains(view_of(id.bytes))) continue;
    state_.awaited.remove(id);
    state_.announce(id);
  }
  return true;
}

} // namespace oncekey::postgres
