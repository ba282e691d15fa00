// server_options: what the configuration says of each listener, as the servers want it.
#pragma once

#include "config/config.h"
#include "http/server.h"

#include <memory>

namespace oncekey {

// `shares` counts what all clients have.
ServerOptions options_for_clients(const Config& config, std::shared_ptr<Shares> shares);
ServerOptions options_for_operators(const Config& config);
// For the application at the outbox.
ServerOptions options_for_outbox(const Config& config);

} // namespace oncekey
