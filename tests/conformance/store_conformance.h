// One suite for every store: what include/oncekey/store.h promises, asked of each of them in the same words.
//
// A store joins by giving a way to open it (StoreUnderTest) and one line in store_conformance.cc. Time is turned by
// hand, so nothing here sleeps.
#pragma once

#include <oncekey/store.h>

#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace oncekey {

// How the suite handles one kind of store.
class StoreUnderTest {
 public:
  virtual ~StoreUnderTest() = default;
  virtual Store& store() = 0;
  // Turns the store's clock forward, and lets it drop what has ended.
  virtual void advance(Millis by) = 0;
  // Closes the store and opens it again; false for stores that keep nothing.
  virtual bool reopen() = 0;
};

struct StoreKind {
  std::string name;
  std::function<std::unique_ptr<StoreUnderTest>()> make;
};

class StoreConformance : public ::testing::TestWithParam<StoreKind> {
 protected:
  static constexpr Millis kLease{10'000};
  static constexpr Millis kRetention{400'000}; // buckets of 131 s

  void SetUp() override { under_test_ = GetParam().make(); }
  void TearDown() override { under_test_.reset(); }

  Store& store() { return under_test_->store(); }
  void advance(Millis by) { under_test_->advance(by); }
  bool reopen() { return under_test_->reopen(); }

  static RecordId id(std::uint64_t number);
  static Fingerprint print(std::uint8_t byte);
  static StoredResponse answer(std::string body, int status = 201);

  // The verbs wait for the answer and fail the test on a fault.
  ClaimAnswer claim(std::uint64_t key, Abandoned abandoned = Abandoned::leave, std::uint8_t fingerprint = 1);
  // The fence of a claim that must succeed; 0 and a failure if it does not.
  std::uint64_t own(std::uint64_t key, Abandoned abandoned = Abandoned::leave);
  // The same with another retention than the usual.
  std::uint64_t own_for(std::uint64_t key, Millis retention);
  // The record of a claim that must find one.
  Record found(std::uint64_t key, Abandoned abandoned = Abandoned::leave, std::uint8_t fingerprint = 1);
  std::optional<Found> find(std::uint64_t key);
  FenceAnswer renew(std::uint64_t key, std::uint64_t fence, Millis lease = kLease);
  FenceAnswer complete(std::uint64_t key, std::uint64_t fence, StoredResponse response);
  FenceAnswer release(std::uint64_t key, std::uint64_t fence);
  FenceAnswer hold(std::uint64_t key, std::uint64_t fence, Holder by = Holder::owner);
  OperatorAnswer operate(std::uint64_t key, OperatorAction action, StoredResponse response = {});
  std::vector<Listed> list(ListRequest request = {});

  // Claims `key` from `threads` threads at once; returns how many were told they own it.
  int race_for(std::uint64_t key, int threads);

  // Waits for the one answer of an asynchronous call.
  template <class T, class Call>
  static Result<T> wait_for(Call call) {
    std::promise<Result<T>> promise;
    std::future<Result<T>> answer = promise.get_future();
    call([&promise](Result<T> result) { promise.set_value(std::move(result)); });
    return answer.get();
  }

 private:
  template <class T, class Call>
  static T value_of(Call call);
  static ClaimRequest request(std::uint64_t key, Abandoned abandoned, std::uint8_t fingerprint);

  std::unique_ptr<StoreUnderTest> under_test_;
};

} // namespace oncekey
