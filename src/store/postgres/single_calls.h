// single_calls: the calls with a statement of their own: those of operators, and all of the jobs.
#pragma once

#include "store/common/calls.h"
#include "store/postgres/server.h"

#include <tuple>

namespace oncekey::postgres {

// What the statements carry besides the calls.
struct SqlTerms {
  KnownMarker marker; // of the store as we know it; claims are refused on any other
  Millis skew{};
  TextEncoding encoding = TextEncoding::utf8;
};

// The lock of an id: some of its bits, which are as good as any others. Ids that share one take turns, nothing more.
std::int64_t lock_of(const RecordId& id);

Bytea<std::string> encoded(const StoredResponse& response);

// Answers that are gathered under locks or in the middle of work, and delivered when both are over.
class PendingAnswers {
 public:
  template <class T>
  void add(Done<T>& done, Result<T> answer) {
    std::get<Answers<T>>(answers_).emplace_back(std::move(done), std::move(answer));
  }
  // Refuses all of the calls and leaves none.
  void refuse(auto& calls, const Fault& fault) {
    for (const auto& call : calls) std::visit([&](auto& refused) { add(refused.done, {fault}); }, call->what);
    calls.clear();
  }
  void deliver() {
    std::apply([](auto&... each) { (deliver_all(each), ...); }, answers_);
  }

 private:
  template <class T>
  using Answers = std::vector<std::pair<Done<T>, Result<T>>>;
  template <class T>
  static void deliver_all(Answers<T>& answers) {
    for (auto& [done, answer] : answers) done(std::move(answer));
    answers.clear();
  }

  std::tuple<Answers<ClaimAnswer>, Answers<std::optional<Found>>, Answers<FenceAnswer>, Answers<OperatorAnswer>,
             Answers<StageAnswer>, Answers<std::vector<TakenJob>>, Answers<std::optional<FoundJob>>, Answers<JobAnswer>>
      answers_;
};

Statement single_statement(const AnyCall& call, const SqlTerms& terms);

// The answer in the result of that statement. False if the id's lock was not free: the call is to be sent again.
bool answer_single(AnyCall& call, const PGresult* result, PendingAnswers& pending);

// A job out of a row that has all of oncekey.job behind one other column.
Result<StoredJob> job_of(const Row& row);

} // namespace oncekey::postgres
