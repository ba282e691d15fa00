// PendingAnswers: answers that are gathered under locks or in the middle of work, and delivered when both are over.
#pragma once

#include "store/common/calls.h"

#include <tuple>
#include <utility>
#include <vector>

namespace oncekey::postgres {

class PendingAnswers {
 public:
  template <class T>
  void add(Done<T>& done, Result<T> answer) {
    std::get<Answers<T>>(answers_).emplace_back(std::move(done), std::move(answer));
  }
  void refuse(AnyCall& call, const Fault& fault) {
    std::visit([&](auto& refused) { add(refused.done, {fault}); }, call);
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

} // namespace oncekey::postgres
