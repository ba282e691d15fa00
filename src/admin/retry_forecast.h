// retry_forecast: what a retry of a record's request would get now, by the same pure rules that decide about requests.
#pragma once

#include "config/config.h"

#include <oncekey/record.h>

#include <boost/json/value.hpp>

namespace oncekey {

// {"same": of an equal request, "other": of a different one under the key}, each with `decision`, `status`, `code` and
// `retry_after_seconds`. Null if the record's route is not configured any more.
boost::json::value retry_forecast(const Config& config, const Record& record, Time now);

} // namespace oncekey
