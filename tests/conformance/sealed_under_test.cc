#include "store_conformance.h"

#include "store/common/sealing_store.h"

namespace oncekey {
namespace {

class SealedUnderTest : public StoreUnderTest {
 public:
  explicit SealedUnderTest(std::unique_ptr<StoreUnderTest> below) : below_(std::move(below)) { wrap(); }
  Store& store() override { return *store_; }
  void advance(Millis by) override { below_->advance(by); }
  bool reopen() override {
    store_.reset();
    const bool again = below_->reopen();
    wrap();
    return again;
  }
  bool shared() const override { return below_->shared(); }
  Millis blink() const override { return below_->blink(); }
  int takes_to_see_all() const override { return below_->takes_to_see_all(); }
  bool damage_message(const RecordId& id) override { return below_->damage_message(id); }

 private:
  // The store below belongs to its own way of opening it.
  void wrap() { store_ = sealing({std::shared_ptr<void>(), &below_->store()}, sealer_); }

  Sealer sealer_{*SealingKeys::parse("1 " + std::string(64, 'a'), "keys")};
  std::unique_ptr<StoreUnderTest> below_;
  std::unique_ptr<Store> store_;
};

} // namespace

StoreKind sealed(const StoreKind& kind) {
  return {kind.name + "_sealed", [make = kind.make] { return std::make_unique<SealedUnderTest>(make()); }};
}

} // namespace oncekey
