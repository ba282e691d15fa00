// metrics_page: the gateway's metrics as Prometheus reads them, with those brought up to date that are only looked at
// when they are asked for.
#pragma once

#include "admin/page_answer.h"
#include "gateway/shared.h"
#include "http/server.h"

namespace oncekey {

// `gateway` is the public listener; null before there is one.
// As OpenMetrics where the request's Accept asks for it.
PageAnswer metrics_page(GatewayShared& shared, const Server* gateway, const Headers& asked);

} // namespace oncekey
