// health: "Is everything all right?" in words, out of GET /api/overview. Pure.
//
// A finding is {tone, text, link}. `bad`: a person has to do something. `warn`: worth a look.
import { bytes, duration, number, plural, rate } from "./format.js";

const kNearlyFull = 0.9;
const kFailedShare = 0.05;
const kFailedLeast = 3;
const kLastSteps = 12; // a minute of history

export function findings_of(overview) {
  const found = [];
  const bad = (text, link = null, go = null) => found.push({ tone: "bad", text, link, go });
  const warn = (text, link = null, go = null) => found.push({ tone: "warn", text, link, go });
  const { store, keys, jobs, storms, disk, memory, connections, in_flight } = overview;

  if (!store.healthy) {
    bad(`The store does not work: ${store.fault ?? "no reason is known"}. Keyed requests are refused until it does.`);
  } else if (overview.status === "draining") {
    warn("This gateway is shutting down: it finishes what runs and takes nothing new.");
  } else if (overview.status !== "ready") {
    bad(`This gateway is not ready: ${overview.reason ?? overview.status}.`);
  }
  if (!store.room)
    bad(`The store has no room: ${store.shortage ?? "its limit is reached"}. New keys get 503; replays go on.`);
  if (keys.indeterminate > 0) {
    bad(
      `${plural(keys.indeterminate, "key has", "keys have")} an unknown outcome. Retries are refused until a person decides.`,
      "#/keys?state=indeterminate",
      "Show them",
    );
  }
  if (keys.abandoned > 0) {
    warn(
      `${plural(keys.abandoned, "key is", "keys are")} abandoned: the call broke off, or its gateway stopped. ` +
        "A retry goes on where the route allows it; otherwise a person decides.",
      "#/keys?state=abandoned",
      "Show them",
    );
  }
  if (jobs.dead > 0) {
    bad(
      `${plural(jobs.dead, "message")} could not be delivered and will not be tried again.`,
      "#/jobs?state=dead",
      "Show dead letters",
    );
  }
  for (const each of jobs.destinations) {
    if (!each.configured && each.waiting > 0)
      bad(
        `${plural(each.waiting, "message")} for “${each.destination}”, which is not configured.`,
        "#/jobs?state=waiting",
        "Show them",
      );
  }
  for (const each of overview.upstreams) {
    if (each.breaker_open)
      bad(`The API at ${each.name} does not answer: its circuit breaker is open, and new work gets 503.`);
  }
  for (const each of overview.gateways) {
    if (each.state === "silent") bad(`Gateway ${each.name} has been silent for ${duration(each.seconds_ago)}.`);
    else if (each.state === "store" && !each.this) bad(`Gateway ${each.name} cannot use the store.`);
  }
  const latest = recent(overview.history);
  if (latest.failed >= kFailedLeast && latest.failed / latest.answered > kFailedShare) {
    bad(
      `${plural(latest.failed, "request")} of ${number(latest.answered)} in the last minute failed: the API or the store gave no answer.`,
    );
  }
  if (storms.stormy > 0) {
    warn(
      `${plural(storms.stormy, "key is", "keys are")} retried unusually often. Replays protect the API; the client may need a look.`,
      "#panel-hot-keys",
      "Hot keys",
    );
  }
  if (disk && disk.size_bytes > 0 && disk.free_bytes < (1 - kNearlyFull) * disk.size_bytes)
    warn(`The disk is nearly full: ${bytes(disk.free_bytes)} of ${bytes(disk.size_bytes)} are free.`);
  const nearly = (used, max) => max > 0 && used > kNearlyFull * max;
  if (nearly(store.bytes, store.bytes_max))
    warn(`The store holds ${bytes(store.bytes)} of at most ${bytes(store.bytes_max)}.`);
  if (nearly(memory.rss_bytes, memory.limit_bytes))
    warn(
      `The process has ${bytes(memory.rss_bytes)} of the ${bytes(memory.limit_bytes)} of memory that it may have. The kernel ends it at the limit.`,
    );
  if (nearly(memory.buffered_bytes, memory.buffered_bytes_max))
    warn(`Bodies under way fill ${bytes(memory.buffered_bytes)} of ${bytes(memory.buffered_bytes_max)}.`);
  if (nearly(connections.open, connections.max))
    warn(`${number(connections.open)} of ${number(connections.max)} connections are open.`);
  if (nearly(in_flight.now, in_flight.max))
    warn(`${number(in_flight.now)} of ${number(in_flight.max)} calls to the API run.`);
  if (store.durability === "none") warn("The store keeps nothing over a restart (durability: none). For trials only.");
  // What needs a person first.
  return found.sort((a, b) => (a.tone === "bad" ? 0 : 1) - (b.tone === "bad" ? 0 : 1));
}

// One sentence, for a person who reads nothing else.
export function headline_of(findings) {
  const bad = findings.filter((finding) => finding.tone === "bad").length;
  const warn = findings.length - bad;
  if (bad > 0)
    return { tone: "bad", text: `No. ${bad === 1 ? "One thing needs" : `${number(bad)} things need`} a person.` };
  if (warn > 0)
    return {
      tone: "warn",
      text: `Yes, with ${warn === 1 ? "one thing" : `${number(warn)} things`} to keep an eye on.`,
    };
  return { tone: "good", text: "Yes. Nothing needs a person." };
}

// The last minute: counts and rates.
export function recent(history) {
  const rows = history.rows.slice(-kLastSteps);
  const seconds = rows.length * history.step_seconds;
  const sum = (name) => {
    const column = history.columns.indexOf(name);
    return rows.reduce((total, row) => total + (row[column] ?? 0), 0);
  };
  const counts = Object.fromEntries(
    ["first", "replay", "in_progress", "mismatch", "held", "refused", "failed", "passed"].map((name) => [
      name,
      sum(name),
    ]),
  );
  const answered = Object.values(counts).reduce((total, count) => total + count, 0);
  const last = (name) => {
    const column = history.columns.indexOf(name);
    for (let at = rows.length - 1; at >= 0; --at)
      if (rows[at][column] !== null && rows[at][column] !== undefined) return rows[at][column];
    return null;
  };
  return { ...counts, answered, seconds, last, per_second: (count) => rate(seconds > 0 ? count / seconds : null) };
}
