#include "phases/runner_policy.h"

namespace oncekey {
namespace phases {

Policy policy_of(const RunnerPolicy& rules) {
  // What a library has no use for (upstreams, scopes, limits) stays as it is there.
  Policy policy = *policy_by_name("classic");
  policy.key_syntax = rules.key_syntax;
  policy.strict = rules.strict;
  policy.identity = rules.identity;
  policy.fingerprint = rules.fingerprint;
  policy.fingerprint_ignore = rules.fingerprint_ignore;
  policy.path_case = rules.path_case;
  policy.key = MissingKey::required;
  policy.mismatch_status = rules.mismatch_status;
  policy.in_progress_status = rules.in_progress_status;
  policy.retention = rules.retention;
  policy.errors = rules.errors;
  policy.replay_set_cookie = rules.replay_set_cookie;
  return policy;
}

} // namespace phases

std::optional<RunnerPolicy> runner_policy(std::string_view name) {
  const std::optional<Policy> named = policy_by_name(name);
  if (!named) return std::nullopt;
  return RunnerPolicy{.key_syntax = named->key_syntax,
                      .strict = named->strict,
                      .identity = named->identity,
                      .fingerprint = named->fingerprint,
                      .fingerprint_ignore = named->fingerprint_ignore,
                      .path_case = named->path_case,
                      .mismatch_status = named->mismatch_status,
                      .in_progress_status = named->in_progress_status,
                      .retention = named->retention,
                      .errors = named->errors,
                      .replay_set_cookie = named->replay_set_cookie};
}

} // namespace oncekey
