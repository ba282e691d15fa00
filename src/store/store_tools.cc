#include "store/store_tools.h"

#include "base/masked_url.h"
#include "core/job_store.h"
#include "store/journal/backup.h"
#include "store/journal/examine.h"
#include "store/journal/folder_lock.h"
#include "store/open_store.h"
#include "store/postgres/postgres_store.h"
#include "store/redis/redis_store.h"

#include <fmt/format.h>

#include <future>

namespace oncekey {
namespace {

bool is_postgres(std::string_view url) { return url.starts_with("postgres"); }

template <class T, class Ask>
Result<T> answer_of(Ask ask) {
  std::promise<Result<T>> answered;
  ask([&](Result<T> result) { answered.set_value(std::move(result)); });
  return answered.get_future().get();
}

Result<bool> shared_store_exists(std::string_view url, Log& log) {
  if (is_postgres(url)) return postgres_store_exists({.url = std::string(url), .log = log});
  return redis_store_exists({.url = std::string(url), .log = log});
}

// Records that do not decode make the listing fail.
Result<StoreReport> look_at_shared(std::string_view url, const VerifyOptions& options) {
  const Result<bool> exists = shared_store_exists(url, options.log);
  if (!exists) return exists.fault();
  if (!*exists)
    return invalid(fmt::format("there is no store at {} yet: the first start of a gateway makes it", masked_url(url)));
  StoreReport report;
  Result<std::unique_ptr<Store>> store =
      open_store(url, {options.log, [](const std::string&) {}, Durability::none, options.sealer});
  if (!store) {
    const FaultKind kind = store.fault().kind;
    if (kind != FaultKind::corrupt && kind != FaultKind::newer_format) return std::move(store).fault();
    report.problems.push_back({store.fault().message, kind == FaultKind::newer_format
                                                          ? "use the version of oncekey that wrote it"
                                                          : "restore the server's backup"});
    return report;
  }
  const auto check = [&](const Fault& fault, std::string_view what) {
    report.problems.push_back(
        {fmt::format("{}: {}", what, fault.message), "restore the server's backup, or remove that row"});
  };
  if (const Status healthy = (*store)->healthy(); !healthy)
    report.notes.push_back(fmt::format("claims are refused: {}", healthy.fault().message));
  if (options.thoroughness == Thoroughness::everything) {
    BrowseRequest request;
    request.limit = kVerifiedRecordsMax;
    request.look_max = kVerifiedRecordsMax;
    const auto page = answer_of<BrowsePage>([&](auto done) { (*store)->browse(request, std::move(done)); });
    if (!page) {
      check(page.fault(), "records");
    } else {
      for (const Listed& line : page->lines) {
        ++(line.record.state == RecordState::completed     ? report.completed
           : line.record.state == RecordState::in_progress ? report.in_progress
                                                           : report.indeterminate);
      }
      if (!page->whole) report.notes.push_back(fmt::format("only the first {} records were looked at", page->looked));
    }
  }
  const auto jobs = answer_of<std::vector<JobCount>>([&](auto done) { (*store)->jobs().count(std::move(done)); });
  if (!jobs) {
    check(jobs.fault(), "jobs");
  } else {
    for (const JobCount& count : *jobs) report.jobs_not_over += count.count;
  }
  report.notes.emplace_back("the server's own checks find damage below: amcheck of Postgres, redis-check-aof of Redis");
  report.bytes_on_disk = (*store)->stats().bytes_on_disk;
  return report;
}

} // namespace

std::optional<pid_t> process_with_store(std::string_view url) {
  const std::optional<std::string> folder = folder_of_store(url);
  return folder ? process_with_journal(*folder) : std::nullopt;
}

std::optional<std::string> who_backs_up(std::string_view url) {
  if (folder_of_store(url)) return std::nullopt;
  if (url.starts_with("memory:"))
    return "memory: keeps nothing over a restart: there is nothing to back up or to restore";
  constexpr std::string_view kAfterwards =
      "After a restore every gateway notices that the store remembers less than it did, and refuses claims until: "
      "oncekey "
      "store accept-loss";
  if (is_postgres(url)) {
    return fmt::format(
        "a Postgres store is backed up with the database: pg_basebackup with archived WAL, which can restore "
        "up to the last commit, or pg_dump --schema=oncekey. {}",
        kAfterwards);
  }
  return fmt::format(
      "a Redis store is backed up with the server: copy its append-only folder after BGREWRITEAOF, or the file "
      "of BGSAVE. {}",
      kAfterwards);
}

Result<StoreReport> verify_store(std::string_view url, const VerifyOptions& options) {
  if (url.starts_with("memory:")) return invalid("memory: keeps nothing over a restart: there is nothing to look at");
  if (const Status usable = check_store_url(url); !usable) return usable.fault();
  const std::optional<std::string> folder = folder_of_store(url);
  if (!folder) return look_at_shared(url, options);
  const Result<FolderLock> lock = FolderLock::take(*folder);
  if (!lock) return lock.fault();
  const bool all = options.thoroughness == Thoroughness::everything;
  return examine_journal(*folder, {all ? Depth::everything : Depth::numbers, options.sealer, options.tell});
}

Result<BackupMade> back_up_store(std::string_view url, const std::string& to, const TellProgress& tell) {
  return back_up_journal(*folder_of_store(url), to, tell);
}

Result<BackupMade> restore_store(const std::string& backup, const std::string& folder, const TellProgress& tell) {
  return restore_journal(backup, folder, tell);
}

} // namespace oncekey
