#include "admin/retry_forecast.h"

#include "admin/record_json.h"
#include "core/decide.h"
#include "core/replies.h"
#include "core/transitions.h"

#include <algorithm>

namespace oncekey {
namespace {

namespace json = boost::json;

// The refusal that a verdict means; nothing where a request is executed or replayed.
std::optional<RefusalCode> refusal_of(Verdict verdict) {
  switch (verdict) {
    case Verdict::mismatch:
      return RefusalCode::mismatch;
    case Verdict::in_progress:
      return RefusalCode::in_progress;
    case Verdict::hold:
    case Verdict::indeterminate:
      return RefusalCode::indeterminate;
    case Verdict::answer_not_kept:
      return RefusalCode::answer_not_kept;
    case Verdict::execute:
    case Verdict::probe:
    case Verdict::replay:
      break;
  }
  return std::nullopt;
}

json::object forecast(const Policy& policy, const Fingerprint& fingerprint, const Record& record, Time now) {
  ClaimRequest request;
  request.fingerprint = fingerprint;
  request.lease = policy.lease;
  request.retention = policy.retention;
  request.abandoned = abandoned_rule(policy);
  const Decision decision = decide(policy, fingerprint, claim_step(record, request, record.fence + 1, now).answer);
  json::object out{{"decision", json_text(to_string(decision.verdict))},
                   {"status", nullptr},
                   {"code", nullptr},
                   {"retry_after_seconds", nullptr}};
  if (decision.verdict == Verdict::replay) out["status"] = record.response->status;
  if (const auto code = refusal_of(decision.verdict)) {
    out["status"] = refuse(policy, Refusal{*code}, {}).status;
    out["code"] = json_text(to_string(*code));
  }
  if (decision.verdict == Verdict::in_progress)
    out["retry_after_seconds"] = retry_after(decision.age, std::nullopt).count();
  return out;
}

} // namespace

json::value retry_forecast(const Config& config, const Record& record, Time now) {
  const auto route = std::find_if(config.routes.begin(), config.routes.end(),
                                  [&](const Route& each) { return each.name == record.route; });
  if (route == config.routes.end()) return nullptr;
  Fingerprint other = record.fingerprint;
  other.bytes[0] ^= 1;
  return json::object{{"same", forecast(route->policy, record.fingerprint, record, now)},
                      {"other", forecast(route->policy, other, record, now)}};
}

} // namespace oncekey
