#include <oncekey/client.h>

#include "base/backoff.h"
#include "base/enum_name.h"
#include "client/journal.h"
#include "client/retry_budget.h"
#include "client/world.h"
#include "core/judge.h"
#include "core/key.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <thread>

namespace oncekey {
namespace {

using Moment = ClientWorld::Moment;

// A hash as hex: a word for the journal, or a fingerprint. Parts are kept apart by their lengths.
std::string hash_of(std::initializer_list<std::string_view> parts) {
  Sha256 hash;
  for (const std::string_view part : parts) {
    hash.update(fmt::format("{}:", part.size()));
    hash.update(part);
  }
  return hex_encode(hash.finish());
}

std::string operation_of(const ClientRequest& request) {
  if (!request.operation.empty()) return hash_of({"named", request.operation});
  return hash_of({"request", request.method, request.url, request.body});
}

class RealWorld final : public ClientWorld {
 public:
  explicit RealWorld(std::unique_ptr<Fetcher> fetcher) : fetcher_(std::move(fetcher)) {}

  Moment now() override { return std::chrono::steady_clock::now(); }
  Time wall_clock() override { return std::chrono::floor<Millis>(std::chrono::system_clock::now()); }
  void sleep(Millis duration) override { std::this_thread::sleep_for(duration); }
  double chance() override { return random_chance(); }
  Fetched exchange(const FetchRequest& request, Moment due) override { return fetcher_->fetch(request, due); }

 private:
  const std::unique_ptr<Fetcher> fetcher_;
};

// Method, URL and body. Headers do not count: credentials may change between a crash and the next run.
std::string fingerprint_of(const ClientRequest& request) {
  return hash_of({"fingerprint", request.method, request.url, request.body});
}

bool changes_nothing(std::string_view method) {
  return method == "GET" || method == "HEAD" || method == "OPTIONS" || method == "TRACE";
}

bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
  });
}

bool is_field_value(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte == '\t' || (byte >= ' ' && byte != 0x7f);
  });
}

Status check_fields(const ClientRequest& request, const ClientOptions& options) {
  for (std::size_t i = 0; i < request.headers.size(); ++i) {
    const Field field = request.headers[i];
    if (!is_token(field.name) || !is_field_value(field.value))
      return invalid(fmt::format("header {}: its name or value has characters that headers cannot have", i + 1));
    for (const std::string_view ours : {"Host", "Content-Length", "Transfer-Encoding", "Connection"}) {
      if (equal_ignoring_case(field.name, ours))
        return invalid(fmt::format("the header {} is set by the client", ours));
    }
    if (equal_ignoring_case(field.name, options.key_header))
      return invalid(fmt::format("give the key itself instead of the header {}", options.key_header));
  }
  return ok_status();
}

Status check_method(std::string_view method) {
  if (!is_token(method)) return invalid(fmt::format("method: expected a word such as POST, got \"{}\"", method));
  // The methods that servers know. Methods are case-sensitive: "post" is another one than "POST", and no server has it.
  for (const std::string_view known : {"GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE"}) {
    if (method != known && equal_ignoring_case(method, known))
      return invalid(fmt::format("method: write it in capital letters, got \"{}\"", method));
  }
  return ok_status();
}

Result<FetchRequest> wire_request(const ClientRequest& request, const ClientOptions& options) {
  if (const Status good = check_method(request.method); !good) return good.fault();
  auto url = parse_url(request.url);
  if (!url) return url.fault();
  if (const Status good = check_fields(request, options); !good) return good.fault();
  if (!request.key.empty()) {
    const ParsedKey key = parse_plain_key(request.key);
    if (const auto* bad = std::get_if<BadKey>(&key))
      return invalid(fmt::format("the key cannot be used: {}", bad->why));
  }
  FetchRequest wire{request.method, *std::move(url), {}, request.body};
  if (!request.headers.has("User-Agent")) wire.headers.add("User-Agent", "oncekey");
  if (!request.headers.has("Accept")) wire.headers.add("Accept", "*/*");
  for (std::size_t i = 0; i < request.headers.size(); ++i)
    wire.headers.add(request.headers[i].name, request.headers[i].value);
  return wire;
}

std::string spelled(std::string_view key, KeySpelling spelling) {
  if (spelling == KeySpelling::bare) return std::string(key);
  std::string quoted = "\"";
  for (const char c : key) {
    if (c == '"' || c == '\\') quoted.push_back('\\');
    quoted.push_back(c);
  }
  return quoted + '"';
}

Millis wait_for_try(std::uint32_t failures, const RetryRules& rules, double chance, std::optional<Millis> retry_after) {
  const Millis pause = pause_after(failures, rules.initial, rules.longest, chance);
  return lengthened(pause, rules.initial, retry_after, rules.retry_after_max);
}

// Before the server is asked again for the answer of a request that is still running: what it said, and up to a quarter
// more.
Millis wait_for_answer(const RetryRules& rules, double chance, Millis retry_after) {
  const Millis asked = std::clamp(retry_after, rules.initial, std::max(rules.initial, rules.retry_after_max));
  return asked + Millis(static_cast<std::int64_t>(static_cast<double>(asked.count()) * 0.25 * chance));
}

std::string shown(Time time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", std::chrono::floor<std::chrono::seconds>(time));
}

Fault conflict(const JournalEntry& entry, std::string_view what) {
  if (entry.ended) {
    return {FaultKind::conflict,
            fmt::format("the journal holds this operation ({}), which ended with {} at {}: {}. Nothing was sent. Give "
                        "a new operation a name of its own, or run this one again under a new key (--again)",
                        entry.summary, entry.ended->status, shown(entry.ended->at), what)};
  }
  return {FaultKind::conflict,
          fmt::format("the journal holds this operation since {} ({}), and its answer is not known: {}. Nothing was "
                      "sent. Find out what became of it, then drop its key (--forget)",
                      shown(entry.begun), entry.summary, what)};
}

} // namespace

std::string_view to_string(Ending ending) { return enum_name(ending); }

ClientAnswer decided(ClientAnswer answer) {
  if (answer.ending == Ending::gave_up || answer.key_kept)
    throw Undecided(
        fmt::format("{}: {}; send it again under the key {}", to_string(answer.ending), answer.reason, answer.key));
  return answer;
}

ClientAnswer decided(Result<ClientAnswer> answer) {
  if (!answer) throw Undecided(answer.fault().message);
  return decided(*std::move(answer));
}

struct Client::Impl {
  Impl(ClientOptions given, std::unique_ptr<ClientWorld> its_world, std::unique_ptr<Journal> its_journal)
      : options(std::move(given)),
        world(std::move(its_world)),
        journal(std::move(its_journal)),
        budget(options.budget, world->wall_clock(),
               options.journal.empty() ? std::string() : options.journal + ".budget") {}

  const ClientOptions options;
  const std::unique_ptr<ClientWorld> world;
  const std::unique_ptr<Journal> journal; // none: keys are not kept
  RetryBudget budget;

  struct Key {
    std::string text;
    std::string operation; // its word in the journal; empty if it is not there
    bool resumed = false;
    bool named = false;
    bool used_elsewhere = false;       // perhaps: it is the caller's own, and no journal tells
    std::optional<JournalEnd> ended{}; // by an earlier run
    std::uint64_t run = 1;             // of the operation, by the journal
  };
  static Result<std::unique_ptr<Client>> open(ClientOptions options, std::unique_ptr<ClientWorld> world);
  Result<Key> key_for(const ClientRequest& request, const Url& url);
  Status check_found(const JournalEntry& found, const JournalEntry& wanted, const ClientRequest& request) const;
  ClientAnswer run(const FetchRequest& wire, const Key& key);
  Status close(ClientAnswer& answer, const Key& key, const Receive& receive);
};

Status Client::Impl::check_found(const JournalEntry& found, const JournalEntry& wanted,
                                 const ClientRequest& request) const {
  if (found.fingerprint != wanted.fingerprint)
    return conflict(found, "it was begun with another method, URL or body than now");
  if (!request.key.empty() && found.key != request.key)
    return conflict(found, "it was begun with another key than now");
  if (wanted.begun - found.begun > options.key_lifetime)
    return conflict(found, "that is longer ago than servers remember keys, so that sending it again may do it again");
  return ok_status();
}

Result<Client::Impl::Key> Client::Impl::key_for(const ClientRequest& request, const Url& url) {
  if (request.key.empty() && changes_nothing(request.method)) return Key{};
  JournalEntry wanted{fingerprint_of(request), request.key.empty() ? random_uuid() : request.key, world->wall_clock(),
                      fmt::format("{} {}", request.method, url.shown())};
  if (!journal) return Key{.text = wanted.key, .operation = {}, .used_elsewhere = !request.key.empty()};
  const std::string operation = operation_of(request);
  auto begun = journal->begin(operation, wanted, request.again ? IfEnded::begin_anew : IfEnded::find,
                              [&](const JournalEntry& found) { return check_found(found, wanted, request); });
  if (!begun) return begun.fault();
  const JournalEntry& entry = begun->entry;
  return Key{entry.key, operation, begun->found, !request.operation.empty(), false, entry.ended, entry.run};
}

ClientAnswer Client::Impl::run(const FetchRequest& wire, const Key& key) {
  const RetryRules& rules = options.retry;
  ClientAnswer answer;
  answer.key = key.text;
  answer.resumed = key.resumed;
  if (key.ended && is_success(key.ended->status)) answer.ended_before = key.ended->at;
  // Whether an earlier attempt may have had an effect that its answer did not tell. An operation that was refused for
  // good had none.
  bool unsettled = key.resumed && !(key.ended && !is_success(key.ended->status));
  // Attempts that were answered "still running, come back then" are not failures: only the deadline ends them.
  std::uint32_t failures = 0;
  budget.earn(world->wall_clock());
  const Moment deadline = world->now() + rules.deadline;
  for (;;) {
    Fetched fetched = world->exchange(wire, std::min(deadline, world->now() + rules.timeout));
    ++answer.attempts;
    std::optional<Millis> asked;
    bool running = false;
    if (auto* got = std::get_if<FetchedAnswer>(&fetched)) {
      answer.response = {got->status, std::move(got->reason), std::move(got->headers), std::move(got->body)};
      const ClientResponse& response = *answer.response;
      const Judged judged = judge_call(response.status, response.reason, response.headers, response.body);
      answer.reason = judged.why;
      if (judged.judgement == Judgement::success) {
        answer.ending = Ending::succeeded;
        return answer;
      }
      if (judged.judgement == Judgement::refusal) {
        answer.ending = Ending::refused;
        // A caller that is not authorized learns nothing about the operation, which an earlier run may have begun. A
        // mismatch says that one did.
        const bool elsewhere = key.used_elsewhere && (judged.another_request || is_about_the_caller(response.status));
        answer.key_kept = judged.may_have_done || ((unsettled || elsewhere) && !is_replay(response.headers));
        return answer;
      }
      unsettled = unsettled || judged.may_have_done;
      asked = retry_after(response.headers, world->wall_clock());
      running = judged.in_progress && asked.has_value();
    } else {
      const auto& failure = std::get<FetchFailure>(fetched);
      answer.reason = failure.reason;
      unsettled = unsettled || failure.kind != FetchFailure::Kind::not_sent;
      if (failure.lasting) break;
    }
    if (!running && ++failures >= rules.max_attempts) {
      answer.reason = fmt::format("{}, after {} tries", answer.reason, answer.attempts);
      break;
    }
    const Millis wait = running ? wait_for_answer(rules, world->chance(), *asked)
                                : wait_for_try(failures, rules, world->chance(), asked);
    if (world->now() + wait >= deadline) {
      answer.reason = fmt::format("{}, and the deadline comes before the next try", answer.reason);
      break;
    }
    if (!running && !budget.take(world->wall_clock())) {
      answer.reason = fmt::format("{}, and the retry budget is used up", answer.reason);
      break;
    }
    if (options.on_retry) options.on_retry({answer.attempts, answer.reason, wait});
    world->sleep(wait);
  }
  answer.ending = Ending::gave_up;
  answer.key_kept = !key.text.empty();
  return answer;
}

// `receive` comes first: a crash before the journal is written costs one attempt, which gets the same answer again. In
// the other order a crash could lose the answer. An operation that had ended before is ended again, so that a crash
// after this answer is as safe as one after the first.
Status Client::Impl::close(ClientAnswer& answer, const Key& key, const Receive& receive) {
  const bool in_journal = journal && !key.operation.empty();
  if (in_journal && !answer.key_kept && answer.ending == Ending::refused) {
    // Another run of the operation may have an effect that the refusal of this one does not tell. This look is for the
    // caller, which gets the answer before the journal is written; that looks again.
    const auto entry = journal->find(key.operation);
    if (!entry) return entry.fault();
    answer.key_kept = !(entry->has_value() && (*entry)->key == key.text && (*entry)->run == key.run);
  }
  if (receive) {
    if (Status received = receive(answer); !received) return received;
  }
  if (!in_journal || answer.key_kept) return ok_status();
  const Time now = world->wall_clock();
  // A refusal says nothing about a run that has begun since.
  const auto only_run = answer.ending == Ending::refused ? std::optional(key.run) : std::nullopt;
  const Result<bool> closed =
      key.named
          ? journal->end(key.operation, key.text, {now, now + options.key_lifetime, answer.response->status}, only_run)
          : journal->forget(key.operation, key.text, now, only_run);
  if (!closed) return closed.fault();
  if (only_run && !*closed) answer.key_kept = true;
  return ok_status();
}

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

Result<std::unique_ptr<Client>> Client::open(ClientOptions options) {
  auto fetcher = Fetcher::open(options.ca_file, {options.response_bytes_max, AnswerLimit::Longer::fails});
  if (!fetcher) return fetcher.fault();
  return Impl::open(std::move(options), std::make_unique<RealWorld>(*std::move(fetcher)));
}

Result<std::unique_ptr<Client>> ClientInTests::open(ClientOptions options, std::unique_ptr<ClientWorld> world) {
  return Client::Impl::open(std::move(options), std::move(world));
}

Result<std::unique_ptr<Client>> Client::Impl::open(ClientOptions options, std::unique_ptr<ClientWorld> world) {
  if (!is_token(options.key_header))
    return invalid(fmt::format("key header: expected a name such as Idempotency-Key, got \"{}\"", options.key_header));
  if (options.retry.max_attempts == 0 || options.retry.initial <= Millis(0) || options.retry.timeout <= Millis(0))
    return invalid("max_attempts, initial and timeout must be greater than 0");
  std::unique_ptr<Journal> journal;
  if (!options.journal.empty()) {
    auto opened = Journal::open(options.journal);
    if (!opened) return opened.fault();
    journal = *std::move(opened);
  }
  auto impl = std::make_unique<Impl>(std::move(options), std::move(world), std::move(journal));
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

Result<ClientAnswer> Client::send(const ClientRequest& request, const Receive& receive) {
  auto wire = wire_request(request, impl_->options);
  if (!wire) return wire.fault();
  const auto key = impl_->key_for(request, wire->url);
  if (!key) return key.fault();
  if (!key->text.empty()) wire->headers.add(impl_->options.key_header, spelled(key->text, impl_->options.key_spelling));
  ClientAnswer answer = impl_->run(*wire, *key);
  if (answer.ending == Ending::gave_up) return answer;
  if (const Status closed = impl_->close(answer, *key, receive); !closed) return closed.fault();
  return answer;
}

Result<bool> Client::forget(const ClientRequest& request) {
  if (!impl_->journal) return false;
  const std::string operation = operation_of(request);
  const auto entry = impl_->journal->find(operation);
  if (!entry) return entry.fault();
  if (!entry->has_value()) return false;
  return impl_->journal->forget(operation, (*entry)->key, impl_->world->wall_clock());
}

} // namespace oncekey
