// verdict: what stands on top of a key's page. Was it executed, once or more, and what does a retry get now? Pure.
import { duration, now_ms, plural } from "./format.js";

const seconds_until = (text) => Math.max(0, (Date.parse(text) - now_ms()) / 1000);

const kLeaseOver = "A run took over from one whose answer was never recorded";
const kReleased = "An operator released the key before, and a run before that may have been executed";

// {tone, title, why, retry}: a title of a few words, why that is so, and what a retry gets now.
export function verdict_of(record, overview) {
  const operators = (record.timeline ?? []).filter((entry) => entry.event === "operator");
  const did = (done) => operators.some((entry) => entry.text.startsWith(done));
  return {
    ...executed(record, run_before(record, did), did("complete: done"), unseen_actions(record, operators, overview)),
    retry: retry_text(record),
  };
}

// Why there may have been another run before this one, or null. A takeover begins another run while the outcome of the one
// before is not known; a release lets the next request be a first one. The record remembers that there was a takeover, not
// how many.
function run_before(record, did) {
  if ((record.timeline ?? []).some((entry) => entry.event === "taken_over")) return kLeaseOver;
  return did("release: done") ? kReleased : null;
}

// The actions of operators that this page does not have, or null. An answer given by hand looks like any other: only the
// audit trail of the gateway that the operator used tells.
function unseen_actions(record, operators, overview) {
  if (!overview || overview.gateways_shared) return "through other gateways (their audit logs have them)";
  if (operators.some((entry) => !entry.who)) return "older than those in the timeline (the audit log has them)";
  if (record.audit === "memory")
    return record.first_received < overview.started ? "from before this gateway's start (the log has them)" : null;
  return record.audit_back_to && record.first_received < record.audit_back_to
    ? "from before the time that the audit log was looked at back to (see below the timeline)"
    : null;
}

function executed(record, again, by_hand, unseen) {
  const gateway = record.gateway ? `Gateway ${record.gateway}` : "The gateway";
  if (record.state === "completed" && by_hand) {
    return {
      tone: "warn",
      title: "Settled by an operator",
      why: `The answer ${record.status} was given by hand. Whether the API did the work is what the operator found out: see the reason in the timeline.`,
    };
  }
  if (record.state === "completed" && again) {
    return {
      tone: "warn",
      title: "Executed, maybe more than once",
      why: `The answer ${record.status} is that of the last run. ${again}: ask the API whether that one took effect too.`,
    };
  }
  if (record.state === "completed" && unseen) {
    return {
      tone: "calm",
      title: "Executed once, as far as this gateway knows",
      why: `The answer ${record.status} is recorded, and no other run took over under this key. Not shown here are actions of operators ${unseen}. With one of them an operator may have given the answer by hand, or released the key earlier.`,
    };
  }
  if (record.state === "completed") {
    return {
      tone: "good",
      title: "Executed once",
      why: `The API answered ${record.status}, and no other run took over under this key.`,
    };
  }
  if (record.state === "indeterminate") {
    return {
      tone: "bad",
      title: again ? "Not known whether it was executed, or how often" : "Not known whether it was executed",
      why: `${again ? "There was more than one run, and no" : "No"} whole answer was recorded${again ? " of the last" : ""}: the API may have done the work, or never have got the request. It is not run again before a person decides: ask the API whether it happened.`,
    };
  }
  if (record.rerun) {
    return {
      tone: "warn",
      title: "Runs again at the next retry",
      why: "Of an earlier run no answer was recorded; it may have been executed. An operator has allowed another run.",
    };
  }
  if (record.abandoned) {
    return {
      tone: "warn",
      title: "Not known whether it was executed",
      why: `${gateway} stopped working on it before an answer was recorded, and its lease is over. It may have been executed.`,
    };
  }
  return {
    tone: "busy",
    title: again ? "Being executed again now" : "Being executed now",
    why: `${gateway} works on it${
      record.lease_until
        ? `. Its lease lasts ${duration(seconds_until(record.lease_until))} more, and is renewed while it works`
        : ""
    }.${again ? ` ${again}: ask the API whether that one took effect too.` : ""}`,
  };
}

// What the store and the route's policy make of an equal request now.
function decision_of(record) {
  if (record.retry) return record.retry.same.decision;
  if (record.state === "completed") return "replay";
  if (record.state === "indeterminate") return "indeterminate";
  if (record.rerun || record.waits_for === "retry") return "execute";
  return record.abandoned ? "hold" : "in_progress";
}

function retry_text(record) {
  const same = record.retry?.same;
  const status = same?.status ?? 409;
  const until = ` until the key expires in ${duration(seconds_until(record.expires_at))}`;
  const other = record.retry
    ? ` A request with another body gets ${record.retry.other.status} and is not executed.`
    : " A request with another body is refused.";
  switch (decision_of(record)) {
    case "replay":
      return `A retry gets the stored answer (${record.status})${until}. It is not executed again.${other}`;
    case "answer_not_kept":
      return `A retry gets ${status}, “the answer was not kept”${until}. It is not executed again.`;
    case "in_progress":
      return `A retry gets ${status}, “in progress”, because the first request is still under way.${
        same?.retry_after_seconds ? ` It is told to come back in about ${duration(same.retry_after_seconds)}.` : ""
      }`;
    case "execute":
      return `The next retry with the same body is forwarded to the API${record.rerun ? "" : " again"}, with a higher fence.`;
    case "probe":
      return "At the next retry the gateway asks the API what happened, and goes on by its answer.";
    default:
      return `A retry gets ${status}, “outcome unknown”, until a person decides. It is not executed.`;
  }
}

// "12 replays, 1 mismatch": what retries have met, as far as this gateway has seen it.
export function activity_text(activity) {
  if (!activity) return null;
  const parts = [
    [activity.replays, "replay"],
    [activity.in_progress, "“in progress” answer"],
    [activity.mismatches, "mismatch", "mismatches"],
    [activity.held, "“outcome unknown” answer"],
  ]
    .filter(([count]) => count > 0)
    .map(([count, one, many]) => plural(count, one, many));
  return parts.length > 0 ? parts.join(", ") : "no retries";
}
