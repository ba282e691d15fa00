#include "store/common/sealing_store.h"

#include "core/codec_parts.h"
#include "core/job_store.h"

#include <fmt/format.h>

#include <utility>

namespace oncekey {
namespace {

// Of each text, so that both fit where a store keeps one (kTextBytesMax).
constexpr std::size_t kSealedTextBytesMax = std::size_t{16} << 10;
constexpr std::string_view kSealedText = "sealed:";

std::shared_ptr<const Sealed> shared(Sealed sealed) { return std::make_shared<const Sealed>(std::move(sealed)); }

// The pieces one after another, and at the end the lengths of all but the first, last one last: a body is moved to the
// front, and stays there when the lengths are cut off.
std::string joined(std::string front, std::initializer_list<std::string_view> others) {
  std::size_t bytes = front.size() + kSealTagBytes;
  for (const std::string_view other : others) bytes += other.size() + sizeof(std::uint32_t);
  front.reserve(bytes);
  for (const std::string_view other : others) front += other;
  for (const std::string_view other : others) codec::field(front, static_cast<std::uint32_t>(other.size()));
  return front;
}

// Cuts the last piece off: its length is the last number. `numbers` more stand before it.
bool take_last(std::string& plain, std::size_t numbers, std::string& piece) {
  constexpr std::size_t kNumber = sizeof(std::uint32_t);
  if (plain.size() < kNumber * (numbers + 1)) return false;
  const std::size_t last = plain.size() - kNumber;
  const std::size_t length = codec::Cursor(std::string_view(plain).substr(last)).number<std::uint32_t>();
  const std::size_t pieces = last - kNumber * numbers;
  if (length > pieces) return false;
  piece = plain.substr(pieces - length, length);
  plain.erase(last);
  plain.erase(pieces - length, length);
  return true;
}

Fault misshapen_part() { return corrupt("it was sealed by something else than oncekey"); }

bool put_headers(Headers& headers, std::string lines) {
  std::optional<Headers> read = Headers::from_lines(std::move(lines));
  if (read) headers = *std::move(read);
  return read.has_value();
}

void seal(const SealingKeys& keys, const RecordId& id, std::uint64_t fence, StoredResponse& response) {
  if (response.sealed) return;
  std::string plain = joined(std::move(response.body), {response.headers.lines()});
  response.sealed = shared(keys.seal(SealedPart::response, id, fence, std::move(plain)));
  response.headers.clear();
  response.body.clear();
}

// A fault of kind unavailable leaves it as it is.
Status open(const SealingKeys& keys, const RecordId& id, StoredResponse& response) {
  Result<std::string> plain = keys.open(SealedPart::response, id, *response.sealed);
  if (!plain) return std::move(plain).fault();
  std::string lines;
  if (!take_last(*plain, 0, lines) || !put_headers(response.headers, std::move(lines))) return misshapen_part();
  response.body = *std::move(plain);
  response.sealed = nullptr;
  return ok_status();
}

void seal(const SealingKeys& keys, const RecordId& id, Message& message) {
  if (message.sealed) return;
  std::string plain = joined(std::move(message.body), {message.headers.lines(), message.target});
  message.sealed = shared(keys.seal(SealedPart::message, id, 0, std::move(plain)));
  message.target.clear();
  message.headers.clear();
  message.body.clear();
}

Status open(const SealingKeys& keys, const RecordId& id, Message& message) {
  if (!message.sealed) return ok_status();
  Result<std::string> plain = keys.open(SealedPart::message, id, *message.sealed);
  if (!plain) return std::move(plain).fault();
  std::string lines;
  const bool good = take_last(*plain, 1, message.target) && take_last(*plain, 0, lines) &&
                    put_headers(message.headers, std::move(lines));
  if (!good) return misshapen_part();
  message.body = *std::move(plain);
  message.sealed = nullptr;
  return ok_status();
}

// "sealed:" and base64, for places that hold text.
std::string sealed_text(const SealingKeys& keys, SealedPart part, const RecordId& id, std::string plain) {
  const Sealed sealed = keys.seal(part, id, 0, std::move(plain));
  std::string bytes;
  codec::each(bytes, sealed.key_id, sealed.nonce);
  return std::string(kSealedText) + base64_encode(bytes + sealed.bytes);
}

// Nothing for a text in clear, of before the store was encrypted.
std::optional<Sealed> sealed_in(std::string_view text) {
  if (!text.starts_with(kSealedText)) return std::nullopt;
  const std::optional<std::string> bytes = base64_decode(text.substr(kSealedText.size()));
  if (!bytes) return std::nullopt;
  codec::Cursor cursor(*bytes);
  Sealed sealed;
  codec::each(cursor, sealed.key_id, sealed.nonce);
  if (!cursor.ok()) return std::nullopt;
  sealed.bytes = bytes->substr(sizeof sealed.key_id + sealed.nonce.size());
  return sealed;
}

Status open_key(const SealingKeys& keys, StoredJob& job) {
  const std::optional<Sealed> sealed = sealed_in(job.key);
  if (!sealed) return ok_status();
  Result<std::string> key = keys.open(SealedPart::job_key, job.id, *sealed);
  if (!key) return std::move(key).fault();
  job.key = *std::move(key);
  return ok_status();
}

class SealingStore final : public Store {
 public:
  SealingStore(std::shared_ptr<Store> store, const Sealer& sealer)
      : sealer_(sealer), hash_(store->secret()), store_(std::move(store)) {}

  void claim(ClaimRequest request, Done<ClaimAnswer> done) override {
    const RecordId id = request.id;
    seal_texts(request);
    store_->claim(std::move(request), [this, id, done = std::move(done)](Result<ClaimAnswer> answer) {
      if (Found* const found = answer ? std::get_if<Found>(&*answer) : nullptr) {
        if (const Status opened = open_found(id, *found); !opened) return done(opened.fault());
      }
      done(std::move(answer));
    });
  }

  void find(const RecordId& id, Interest interest, Done<std::optional<Found>> done) override {
    store_->find(id, interest, [this, id, done = std::move(done)](Result<std::optional<Found>> found) {
      if (found && *found) {
        if (const Status opened = open_found(id, **found); !opened) return done(opened.fault());
      }
      done(std::move(found));
    });
  }

  void by_fence(FenceCall call) override {
    if (call.verb == FenceVerb::complete) seal(sealer_.keys(), call.owner.id, call.owner.fence, call.response);
    store_->by_fence(std::move(call));
  }

  JobStore& jobs() override { return jobs_; }

  void operate(const RecordId& id, OperatorAction action, StoredResponse response, Done<OperatorAnswer> done) override {
    if (action == OperatorAction::complete) seal(sealer_.keys(), id, 0, response);
    store_->operate(id, action, std::move(response), std::move(done));
  }

  void list(const ListRequest& request, Done<std::vector<Listed>> done) override {
    store_->list(request, [this, done = std::move(done)](Result<std::vector<Listed>> lines) {
      if (lines) open_lines(*lines);
      done(std::move(lines));
    });
  }

  void browse(const BrowseRequest& request, Done<BrowsePage> done) override {
    BrowseRequest sought = request;
    sought.key = search_text(request.key);
    store_->browse(sought, [this, done = std::move(done)](Result<BrowsePage> page) {
      if (page) open_lines(page->lines);
      done(std::move(page));
    });
  }

  void count_waiting(Done<WaitingKeys> done) override { store_->count_waiting(std::move(done)); }
  void beat(GatewayBeat mine, Done<std::vector<GatewayBeat>> done) override {
    store_->beat(std::move(mine), std::move(done));
  }
  void announce_to(Listener listener) override { store_->announce_to(std::move(listener)); }
  void owners_here(OwnersHere owners) override { store_->owners_here(std::move(owners)); }
  std::uint64_t least_fence_here() const override { return store_->least_fence_here(); }
  Time now() const override { return store_->now(); }
  std::size_t server_of(const RecordId& id) const override { return store_->server_of(id); }
  std::size_t servers() const override { return store_->servers(); }
  const Secret& secret() const override { return store_->secret(); }
  Durability durability() const override { return store_->durability(); }
  Status healthy() const override { return store_->healthy(); }
  StoreStats stats() const override { return store_->stats(); }
  void write_from(Loop* loop) override { store_->write_from(loop); }
  RateKeeper* rates() override { return store_->rates(); }

 private:
  class Jobs final : public JobStore {
   public:
    explicit Jobs(SealingStore& store) : store_(store) {}

    void stage(StageRequest request, Done<StageAnswer> done) override {
      seal(keys(), request.id, request.message);
      request.key = sealed_text(keys(), SealedPart::job_key, request.id, std::move(request.key));
      jobs().stage(std::move(request), std::move(done));
    }

    void take(const TakeRequest& request, Done<std::vector<TakenJob>> done) override {
      jobs().take(request, [this, done = std::move(done)](Result<std::vector<TakenJob>> taken) {
        if (!taken) return done(std::move(taken));
        for (TakenJob& each : *taken) {
          Status opened = open_key(keys(), each.job);
          if (opened) opened = open(keys(), each.job.id, each.message);
          // Not `corrupt`, which would make it a dead letter: it may be the key that is another one, and damage has
          // been looked for by the store below.
          if (!opened && !each.unreadable) each.unreadable = unavailable(opened.fault().message);
        }
        done(std::move(taken));
      });
    }

    void end_attempt(const Ownership& owner, AttemptEnd end, Done<FenceAnswer> done) override {
      jobs().end_attempt(owner, std::move(end), std::move(done));
    }

    void find(const RecordId& id, Done<std::optional<FoundJob>> done) override {
      jobs().find(id, [this, done = std::move(done)](Result<std::optional<FoundJob>> found) {
        if (!found || !*found) return done(std::move(found));
        FoundJob& job = **found;
        Status opened = open_key(keys(), job.job);
        if (opened && job.message) opened = open(keys(), job.job.id, *job.message);
        if (!opened) {
          job.message.reset();
          job.unreadable = std::move(opened).fault();
        }
        done(std::move(found));
      });
    }

    void operate(const RecordId& id, const std::string& route, JobAction action, std::optional<JobSeen> seen,
                 Done<JobAnswer> done) override {
      jobs().operate(id, route, action, seen, std::move(done));
    }

    // A key that does not open is shown as it is.
    void list(const JobListRequest& request, Done<JobPage> done) override {
      jobs().list(request, [this, done = std::move(done)](Result<JobPage> page) {
        if (!page) return done(std::move(page));
        for (StoredJob& job : page->jobs) (void)open_key(keys(), job);
        done(std::move(page));
      });
    }

    void count(Done<std::vector<JobCount>> done) override { jobs().count(std::move(done)); }

   private:
    const SealingKeys& keys() const { return store_.sealer_.keys(); }
    JobStore& jobs() { return store_.store_->jobs(); }

    SealingStore& store_;
  };

  // What stands in place of the key, the same for the same key: only the store's secret, which is sealed, leads to it.
  std::string search_text(const std::string& key) const {
    if (key.empty()) return {};
    const std::array<std::string_view, 2> parts{"oncekey: key to search by", key};
    return hex_encode(hash_.of(parts)).substr(0, 32);
  }

  void seal_texts(ClaimRequest& request) const {
    const std::string_view key = std::string_view(request.key).substr(0, kSealedTextBytesMax);
    const std::string_view target = std::string_view(request.target).substr(0, kSealedTextBytesMax);
    request.target = sealed_text(sealer_.keys(), SealedPart::texts, request.id, joined(std::string(key), {target}));
    request.key = search_text(request.key);
  }

  // Texts are for people: those that do not open change nothing else.
  void open_texts(const RecordId& id, Record& record) const {
    const std::optional<Sealed> sealed = sealed_in(record.target);
    if (!sealed) return;
    Result<std::string> plain = sealer_.keys().open(SealedPart::texts, id, *sealed);
    std::string target;
    if (!plain || !take_last(*plain, 0, target)) {
      record.target = fmt::format("sealed with key {}", sealed->key_id);
      return;
    }
    record.key = *std::move(plain);
    record.target = std::move(target);
  }

  Status open_found(const RecordId& id, Found& found) const {
    const bool has_sealed_response = found.record->response && found.record->response->sealed;
    if (!has_sealed_response && !found.record->target.starts_with(kSealedText)) return ok_status();
    Record record = *found.record;
    open_texts(id, record);
    if (has_sealed_response) {
      const Status opened = open(sealer_.keys(), id, *record.response);
      if (!opened && opened.fault().kind == FaultKind::corrupt)
        return corrupt(fmt::format("the answer of key {} cannot be read: {}", short_hash(id), opened.fault().message));
    }
    found = Found{std::move(record), found.now};
    return ok_status();
  }

  void open_lines(std::vector<Listed>& lines) const {
    for (Listed& line : lines) open_texts(line.id, line.record);
  }

  const Sealer& sealer_;
  const KeyedHash hash_; // keyed with the store's secret
  Jobs jobs_{*this};
  // Destroyed first: its last callbacks need what is above.
  std::shared_ptr<Store> store_;
};

} // namespace

std::unique_ptr<Store> sealing(std::shared_ptr<Store> store, const Sealer& sealer) {
  return std::make_unique<SealingStore>(std::move(store), sealer);
}

} // namespace oncekey
