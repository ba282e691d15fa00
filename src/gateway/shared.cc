#include "gateway/shared.h"

#include "core/replies.h"

namespace oncekey {
namespace {

constexpr std::size_t kPseudonymPrefixBytes = std::string_view("oncekey-").size();

Policy default_policy() {
  std::optional<Policy> policy = policy_by_name("classic");
  ONCEKEY_CHECK(policy.has_value(), "the default policy exists");
  return *std::move(policy);
}

std::string publish(const Config& config) {
  std::vector<PublishedRoute> published;
  for (const Route& route : config.routes) published.push_back({route.path, &route.policy});
  if (config.publish_policies == PublishedPolicies::none) return {};
  return config.publish_policies == PublishedPolicies::expiry ? published_expiry(published)
                                                              : published_routes(published);
}

// A share never rounds down to nothing.
std::uint64_t part(std::uint64_t all, double share) {
  return std::max<std::uint64_t>(1, static_cast<std::uint64_t>(static_cast<double>(all) * share));
}

// The largest body that some route reads or keeps whole.
std::uint64_t largest_body(const Config& config) {
  std::uint64_t largest = 0;
  for (const Route& route : config.routes) {
    largest = std::max({largest, route.policy.max_request_body, route.policy.max_stored_body});
  }
  for (const Webhook& webhook : config.webhooks) largest = std::max(largest, webhook.max_body);
  return largest;
}

std::shared_ptr<Shares> make_shares(const Config& config) {
  const Limits& limits = config.limits;
  const auto shared_fairly = [&](std::uint64_t all) {
    return ShareLimit{all, part(all, limits.share_per_address), part(all, limits.share_per_account), all / 2};
  };
  std::array<ShareLimit, kResources> of{};
  const std::uint64_t per_address =
      limits.max_connections_per_address != 0 ? limits.max_connections_per_address : part(limits.max_connections, 0.25);
  of[static_cast<std::size_t>(Resource::connections)] = {limits.max_connections, per_address, per_address, 0};
  ShareLimit& buffered = of[static_cast<std::size_t>(Resource::buffered_bytes)];
  buffered = shared_fairly(limits.max_buffered_bytes);
  // One body fits into every share: it would be refused for ever otherwise.
  buffered.per_address = std::max(buffered.per_address, largest_body(config));
  buffered.per_account = std::max(buffered.per_account, largest_body(config));
  of[static_cast<std::size_t>(Resource::places)] = shared_fairly(limits.max_upstream_connections);
  // A WebSocket keeps its place for as long as its client likes. All of them together leave half of the places to
  // requests, which give theirs back.
  of[static_cast<std::size_t>(Resource::tunnels)] =
      shared_fairly(std::max<std::uint64_t>(limits.max_upstream_connections / 2, 1));
  // Each of them has a connection.
  of[static_cast<std::size_t>(Resource::waiters)] = shared_fairly(limits.max_connections);
  return std::make_shared<Shares>(of);
}

} // namespace

GatewayShared::GatewayShared(const Config& configuration, Store& record_store, Log& logger)
    : store(record_store),
      log(logger),
      hash(record_store.secret()),
      self{fmt::format("oncekey-{:08x}", static_cast<std::uint32_t>(random_u64())), configuration.trusted_proxies},
      name(configuration.gateway_name.empty() ? self.pseudonym.substr(kPseudonymPrefixBytes)
                                              : configuration.gateway_name),
      no_policy(default_policy()),
      shares_owner(make_shares(configuration)),
      room(configuration.limits),
      rates(record_store.rates() != nullptr ? *record_store.rates() : local_rates),
      upstreams(configuration, metrics),
      trust(configuration) {
  auto first = prepare(configuration);
  ONCEKEY_CHECK(first.ok(), "what the first configuration names was just set up");
  use(*std::move(first));
  store.owners_here([live = live_calls_owner](const RecordId& id) { return live->fence_of(id); });
  store.announce_to([told = waiters_owner](const std::optional<RecordId>& settled) {
    if (settled) {
      told->notify(*settled);
    } else {
      told->notify_all();
    }
  });
}

bool GatewayShared::owner_is_gone(const RecordId& id, const Record& record) const {
  if (record.fence < store.least_fence_here()) return true;
  return given_up.has({id, record.fence}, std::chrono::steady_clock::now());
}

Result<std::unique_ptr<Generation>> GatewayShared::prepare(Config next) {
  if (generations_.size() >= kGenerationsMax)
    return unavailable(fmt::format("the configuration was changed {} times in the life of this process: restart it",
                                   generations_.size()));
  // The shares were cut at start, so that one body fits into each of them.
  const ShareLimit& share = shares.limit(Resource::buffered_bytes);
  if (largest_body(next) > std::min(share.per_address, share.per_account))
    return invalid(
        "max_request_body, max_stored_body or max_body is larger than one caller's share of "
        "limits.max_buffered_bytes");
  auto made = std::make_unique<Generation>();
  made->config = std::move(next);
  for (Route& route : made->config.routes) {
    std::optional<RouteTrust> of_route = trust.of(route.policy);
    if (!of_route) return invalid(fmt::format("route {}: jwt_keys or accounts names another source", route.name));
    Upstream* const upstream = upstreams.find(upstream_of(made->config, route));
    if (upstream == nullptr) return invalid(fmt::format("route {}: its upstream is a new one", route.name));
    const std::size_t number = metrics.number_of({route.name, upstream->name});
    made->states.push_back({number, metrics.route(number), *upstream, *std::move(of_route),
                            fmt::format("{} {}", generations_.size(), route.name)});
    route.state = &made->states.back();
    made->has_status_urls = made->has_status_urls || route.policy.respond_async;
  }
  made->published = publish(made->config);
  return made;
}

void GatewayShared::use(std::unique_ptr<Generation> next) {
  generation_.store(next.get(), std::memory_order_release);
  generations_.push_back(std::move(next));
  metrics.config_loaded.SetToCurrentTime();
}

Sharer::Sharer(const Sharer& other, Shares& shares) : address_(nullptr) {
  if (other.address_ != nullptr) {
    address_ref_ = shares.addresses().join(other.address_->name());
    address_ = address_ref_.get();
  }
  if (other.account() != nullptr) account_ = shares.accounts().join(other.account()->name());
}

void Sharer::is_behind_proxy(Shares& shares, std::string_view address) {
  address_ref_ = shares.addresses().join(party_of_address(address));
  address_ = address_ref_.get();
}

void Sharer::is_account(RecentAccounts& recent, const AccountId& account) { account_ = recent.join(account); }

Parties::Ref RecentAccounts::join(const AccountId& account) {
  Recent& recent = recent_[static_cast<unsigned char>(account.bytes[0]) % recent_.size()];
  if (recent.party.get() == nullptr || recent.account != account) {
    recent.party = shares_.accounts().join({account.bytes.data(), account.bytes.size()});
    recent.account = account;
  }
  return recent.party.again();
}

bool BufferedBytes::try_hold(std::uint64_t bytes) {
  if (uncounted_ + bytes <= kUncounted) {
    uncounted_ += bytes;
    return true;
  }
  why_ = holding_.try_add(bytes);
  return why_ == Grant::given;
}

bool BufferedBytes::try_hold_answer(GatewayShared& shared, std::uint64_t bytes) {
  if (try_hold(bytes)) return true;
  if (why_ != Grant::all_used || shared.shares.in_use(Resource::buffered_bytes) > held()) return false;
  hold(bytes);
  return true;
}

Refusal refusal_of(Grant grant, Resource resource) {
  static constexpr std::array<std::string_view, kResources> kWhat = {
      "connections", "memory for bodies", "calls to the API", "WebSockets", "waiting requests"};
  if (grant == Grant::all_used) return {RefusalCode::overloaded, {}, std::chrono::seconds(1), {}};
  return {RefusalCode::over_share,
          fmt::format("This {} holds its share of the {}.", grant == Grant::address_over ? "address" : "account",
                      kWhat[static_cast<std::size_t>(resource)]),
          std::chrono::seconds(1),
          {}};
}

} // namespace oncekey
