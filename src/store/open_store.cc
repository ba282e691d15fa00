#include "store/open_store.h"

#include "store/memory/memory_store.h"
#include "store/rocksdb/rocksdb_store.h"

#include <fmt/format.h>

#include <string>
#include <utility>

namespace oncekey {
namespace {

constexpr std::string_view kWhatExists = "memory: (keeps nothing over a restart) and rocksdb:PATH (a directory)";

// Planned, and said so: a wrong guess of ours must not look like a typing error of theirs.
bool is_planned(std::string_view scheme) {
  return scheme == "postgres" || scheme == "postgresql" || scheme == "redis" || scheme == "rediss" ||
         scheme == "redis+cluster" || scheme == "sqlite";
}

} // namespace

Result<std::unique_ptr<Store>> open_store(std::string_view url, const StoreOptions& options) {
  const std::size_t colon = url.find(':');
  if (colon == std::string_view::npos) {
    return invalid(
        fmt::format("\"{}\" is not a store: the kind and a colon come first; there are {}", url, kWhatExists));
  }
  const std::string_view scheme = url.substr(0, colon);
  const std::string_view rest = url.substr(colon + 1);
  if (scheme == "memory") {
    if (!rest.empty()) return invalid(fmt::format("\"{}\": nothing may follow memory:", url));
    return std::unique_ptr<Store>(std::make_unique<MemoryStore>());
  }
  if (scheme == "rocksdb") {
    Result<std::unique_ptr<RocksdbStore>> store =
        RocksdbStore::open({.path = std::string(rest), .log = options.log, .on_fatal = options.on_fatal});
    if (!store) return std::move(store).fault();
    return std::unique_ptr<Store>(*std::move(store));
  }
  if (is_planned(scheme)) {
    return invalid(
        fmt::format("a {} store is not supported by this version of oncekey; there are {}", scheme, kWhatExists));
  }
  return invalid(fmt::format("\"{}\" names an unknown kind of store; there are {}", url, kWhatExists));
}

} // namespace oncekey
