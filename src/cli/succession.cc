#include "cli/succession.h"

#include "cli/config_as_serve.h"
#include "cli/identity_memory.h"

#include <fmt/format.h>

#include <sys/socket.h>

#include <thread>
#include <utility>

namespace oncekey {
namespace {

// Beyond what the running gateway may take for its requests, for closing the store.
constexpr std::chrono::seconds kStoreCloses{30};
constexpr std::chrono::milliseconds kStoreAskedEvery{50};

std::optional<SocketAddress> ip_of(const Address& address) {
  return parse_ip(address.host == "localhost" ? "127.0.0.1" : address.host, address.port);
}

// Whether an inherited socket is bound where the configuration says.
bool is_bound_to(const Descriptor& socket, const Address& address) {
  SocketAddress bound;
  if (::getsockname(socket.number(), bound.get(), &bound.length) != 0) return false;
  const auto wanted = ip_of(address);
  return wanted && wanted->text() == bound.text();
}

// What can be checked of a start without the store, while another gateway has it.
Status check_before_taking_over(const ServeFlags& flags, const Config& config, const Sealer* sealer, Log& log) {
  if (config.store == "memory:") {
    return invalid(
        "--take-over needs a store that outlives the process: memory: forgets all keys, and retries would be executed "
        "again");
  }
  if (config.listen.port == 0) return invalid("--take-over needs a port in listen, to find the running gateway by");
  const ReadConfig read = read_config_as_serve(flags);
  if (!read.findings.empty()) return invalid(shown(read.findings.front(), read.file_name));
  if (Status format = check_store_format(config.store); !format) return format;
  if (Status opened = check_sealed_secret(config.store, sealer); !opened) return opened;
  const Result<IdentityBasis> basis = identity_basis_of(config);
  if (!basis) return basis.fault();
  const IdentityChange change = flags.accept_identity_change ? IdentityChange::accepted : IdentityChange::refused;
  return remember_identity(config.store, *basis, change, log, Write::no);
}

} // namespace

Result<Succession> Succession::begin(const ServeFlags& flags, const Config& config, const Sealer* sealer, Log& log) {
  Succession begun;
  Result<InheritedSockets> sockets = InheritedSockets::from_environment();
  if (!sockets) return std::move(sockets).fault();
  begun.sockets_ = std::move(sockets).value();
  begun.shares_store_ = !folder_of_store(config.store);
  if (!flags.take_over) return begun;
  if (const Status may = check_before_taking_over(flags, config, sealer, log); !may) return may.fault();
  if (const Status taken = begun.take_over(config, log); !taken) return taken.fault();
  return begun;
}

Status Succession::take_over(const Config& config, Log& log) {
  const std::chrono::milliseconds patience = config.timeouts.lame_duck + config.drain_timeout + kStoreCloses;
  const auto listen_on = ip_of(config.listen);
  Result<std::unique_ptr<TakeOver>> other =
      TakeOver::ask(listen_on ? listen_on->text() : "", handover_name_of_store(config.store), log);
  if (!other) return std::move(other).fault();
  other_ = std::move(other).value();
  if (other_) sockets_ = other_->take_listeners();
  if (other_ && !shares_store_) {
    if (Status released = other_->release_store(patience); !released) return released;
  }
  store_due_ = std::chrono::steady_clock::now() + patience;
  return ok_status();
}

Result<std::unique_ptr<Store>> Succession::open(const std::string& url, const StoreOptions& options) const {
  for (bool first = true;; first = false) {
    Result<std::unique_ptr<Store>> store = open_store(url, options);
    const bool taken = !store && store.fault().kind == FaultKind::conflict && !shares_store_;
    if (!taken || std::chrono::steady_clock::now() >= store_due_) return store;
    if (first) options.log.info("store_in_use", {{"reason", store.fault().message}, {"next", "it is waited for"}});
    std::this_thread::sleep_for(kStoreAskedEvery);
  }
}

Descriptor Succession::socket_for(std::string_view name, const Address& address) {
  Descriptor socket = sockets_.take(name);
  // The service manager's word counts. A gateway that is replaced may have had another address.
  if (socket.open() && other_ && !is_bound_to(socket, address)) return {};
  return socket;
}

void Succession::close_unused(Log& log) {
  for (const std::string& name : sockets_.left())
    log.warning("socket_not_used", {{"name", name}, {"meaning", "no listener of the configuration has this name"}});
  sockets_ = {};
}

void Succession::serves(Loop& loop, TakeOver::Adopt adopt) {
  if (!other_) return;
  if (shares_store_) other_->drain_other();
  other_->ready(loop, std::move(adopt));
}

} // namespace oncekey
