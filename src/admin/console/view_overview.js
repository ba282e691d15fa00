// The first page: is everything all right, and what has the last hour been like?
import { el } from "./dom.js";
import { bytes, clock, duration, milliseconds, number, plural, rate, short_id } from "./format.js";
import { findings_of, headline_of, recent } from "./health.js";
import { badge, empty, facts, meter, panel, table, time } from "./parts.js";
import { Plot, swatch } from "./plots.js";
import { View, heading } from "./view.js";
import { backlog_table } from "./view_jobs.js";

// A retry or two is how clients work.
const kHotRetries = 3;
const kHotShown = 8;

const kDecisions = [
  { id: "first", name: "first", colour: "--series-1", fill: true, about: "executed" },
  { id: "replay", name: "replay", colour: "--series-2", about: "from the record" },
  { id: "in_progress", name: "in progress", colour: "--series-3", about: "first still runs" },
  { id: "mismatch", name: "mismatch", colour: "--series-4", about: "another request" },
  { id: "held", name: "held", colour: "--series-5", about: "outcome unknown" },
  { id: "refused", name: "refused", colour: "--series-6", about: "limit or bad request" },
  { id: "failed", name: "failed", colour: "--series-7", about: "no answer came" },
  { id: "passed", name: "passed", colour: "--series-8", dash: [4, 4], about: "without a key" },
];
const percentiles = (what) => [
  { id: `${what}_p50_ms`, name: "median", colour: "--series-1" },
  { id: `${what}_p95_ms`, name: "95 %", colour: "--series-3" },
  { id: `${what}_p99_ms`, name: "99 %", colour: "--series-5", dash: [4, 4] },
];

export class OverviewView extends View {
  title = "Overview";
  what = "the overview";
  #requests = new Plot(kDecisions, rate, 240);
  #upstream = new Plot(percentiles("upstream"), milliseconds);
  #store = new Plot(percentiles("store"), milliseconds);

  leave() {
    for (const plot of [this.#requests, this.#upstream, this.#store]) plot.end();
  }
  on_theme() {
    for (const plot of [this.#requests, this.#upstream, this.#store]) plot.repaint();
  }

  // The frame polls for it.
  async load() {
    return {};
  }

  on_overview() {
    const { history } = this.app.overview;
    // Read out when the answer changes, and not at every poll.
    const headline = headline_of(findings_of(this.app.overview));
    if (this.tone && this.tone !== headline.tone) this.app.announce(`Is everything all right? ${headline.text}`);
    this.tone = headline.tone;
    const column = (id, scale = 1) => {
      const at = history.columns.indexOf(id);
      return history.rows.map((row) => (row[at] === null || row[at] === undefined ? null : row[at] * scale));
    };
    const times = column("at");
    const total = (id) => column(id).reduce((sum, value) => sum + (value ?? 0), 0);
    this.totals = Object.fromEntries(kDecisions.map(({ id }) => [id, total(id)]));
    this.#requests.draw(
      [times, ...kDecisions.map(({ id }) => column(id, 1 / history.step_seconds))],
      `Requests a second by decision over the last hour. In all: ${kDecisions.map(({ id, name }) => `${name} ${number(this.totals[id])}`).join(", ")}.`,
    );
    for (const [plot, what] of [
      [this.#upstream, "upstream"],
      [this.#store, "store"],
    ]) {
      const of_series = plot.series.map(({ id }) => column(id));
      plot.draw(
        [times, ...of_series],
        `Latency of the ${what} over the last hour. ${plot.series
          .map(
            ({ name }, at) =>
              `${name}: now ${milliseconds(last_of(of_series[at]))}, at most ${milliseconds(greatest_of(of_series[at]))}`,
          )
          .join("; ")}.`,
      );
      plot.figures = plot.series.map((each, at) => ({
        ...each,
        now: last_of(of_series[at]),
        most: greatest_of(of_series[at]),
      }));
    }
    this.from = times.length > 0 ? clock(times[0]) : null;
  }

  render() {
    const overview = this.app.overview;
    if (!overview)
      return [
        heading("Overview"),
        el("p", { class: "state", "aria-busy": "true", "data-key": "loading" }, "Loading the overview…"),
      ];
    if (!this.totals) this.on_overview();
    const findings = findings_of(overview);
    return [
      this.#answer(overview, findings),
      this.#figures(overview),
      el(
        "div",
        { class: "grid" },
        panel(
          "Requests by decision",
          { class: "full", aside: this.#since("requests a second") },
          el("div", { class: "side" }, this.#requests.node, this.#decisions(overview)),
        ),
        panel(
          "Upstream latency",
          { aside: this.#since("calls to the API") },
          this.#upstream.node,
          this.#latencies(this.#upstream, "Upstream latency"),
        ),
        panel(
          "Store latency",
          { aside: this.#since("calls of the store") },
          this.#store.node,
          this.#latencies(this.#store, "Store latency"),
        ),
      ),
      el(
        "div",
        { class: "columns" },
        el(
          "div",
          {},
          this.#gateways(overview),
          this.#deliveries(overview),
          this.#hot_keys(overview),
          this.#leases(overview),
        ),
        el("div", {}, this.#limits(overview), this.#upstreams(overview)),
      ),
    ];
  }

  #since(what) {
    return el("span", { class: "quiet" }, this.from ? `${what}, since ${this.from.slice(0, 5)}` : what);
  }

  #answer(overview, findings) {
    const headline = headline_of(findings);
    return el(
      "section",
      { class: `answer ${headline.tone}`, "aria-labelledby": "all-right", "data-key": "answer" },
      el(
        "h1",
        { tabindex: "-1", id: "all-right" },
        el("span", { class: "question" }, "Is everything all right? "),
        headline.text,
      ),
      findings.length > 0
        ? el(
            "ul",
            {},
            findings.map((finding) =>
              el(
                "li",
                { class: finding.tone, "data-key": finding.text },
                finding.text,
                finding.link
                  ? [
                      " ",
                      el(
                        "a",
                        {
                          href: finding.link,
                          // A place on this page is not a page of its own.
                          onclick: finding.link.startsWith("#/")
                            ? null
                            : (event) => {
                                event.preventDefault();
                                const target = document.getElementById(finding.link.slice(1));
                                target.tabIndex = -1;
                                target.scrollIntoView();
                                target.focus({ preventScroll: true });
                              },
                        },
                        finding.go,
                      ),
                    ]
                  : null,
              ),
            ),
          )
        : null,
      el(
        "p",
        { class: "quiet" },
        `Gateway ${overview.gateway}, version ${overview.version}, up for ${duration(overview.uptime_seconds)}.`,
      ),
    );
  }

  #figures(overview) {
    const minute = recent(overview.history);
    const figure = (name, value, about, tone) =>
      el(
        "div",
        { class: `figure ${tone ?? ""}`, "data-key": name },
        el("dt", {}, name),
        el("dd", {}, el("span", { class: "value" }, value), about ? el("span", { class: "quiet" }, about) : null),
      );
    const keyed = minute.answered - minute.passed;
    const waiting = overview.keys.indeterminate + overview.keys.abandoned;
    return el(
      "dl",
      { class: "figures", "data-key": "figures" },
      figure("Requests", minute.per_second(minute.answered), "a second"),
      figure("Replays", keyed > 0 ? `${Math.round((100 * minute.replay) / keyed)} %` : "–", "of keyed requests"),
      figure(
        "In flight",
        number(overview.in_flight.now),
        overview.in_flight.max > 0 ? `of ${number(overview.in_flight.max)}` : "calls to the API",
      ),
      figure("Waiting for the first", number(overview.waiters), overview.waiters === 1 ? "request" : "requests"),
      figure("Upstream, 95 %", milliseconds(minute.last("upstream_p95_ms")), "latest"),
      figure("Store, 95 %", milliseconds(minute.last("store_p95_ms")), "latest"),
      figure(
        "Keys that wait",
        number(waiting),
        "person or retry",
        overview.keys.indeterminate > 0 ? "bad" : waiting > 0 ? "warn" : "",
      ),
      figure("Dead letters", number(overview.jobs.dead), "not delivered", overview.jobs.dead > 0 ? "bad" : ""),
    );
  }

  #decisions(overview) {
    const minute = recent(overview.history);
    return el(
      "div",
      { class: "legend" },
      table(
        "Requests by decision",
        [
          {
            title: "Decision",
            cell: (row) => [swatch(row), row.name, el("span", { class: "quiet wide-inline" }, ` ${row.about}`)],
          },
          { title: "Last hour", class: "num", cell: (row) => number(this.totals[row.id]) },
          { title: "A second now", class: "num", cell: (row) => minute.per_second(minute[row.id]) },
        ],
        kDecisions,
      ),
    );
  }

  #latencies(plot, caption) {
    return el(
      "div",
      { class: "legend" },
      table(
        caption,
        [
          { title: "Share of calls", cell: (row) => [swatch(row), row.name] },
          { title: "Now", class: "num", cell: (row) => milliseconds(row.now) },
          { title: "Most", class: "num", cell: (row) => milliseconds(row.most) },
        ],
        plot.figures ?? [],
      ),
    );
  }

  #leases({ leases }) {
    return panel(
      "Leases about to end",
      {},
      leases.length === 0
        ? empty("No lease is about to end.", "Each is renewed at a third of its length while the call runs.")
        : table(
            "Leases about to end",
            [
              { title: "Key", cell: (row) => el("a", { href: `#/keys/${row.id}` }, el("code", {}, short_id(row.id))) },
              { title: "Left", class: "num", cell: (row) => milliseconds(row.lease_left_ms) },
              { title: "Of", class: "num", cell: (row) => milliseconds(row.lease_ms) },
            ],
            leases,
          ),
    );
  }

  #hot_keys({ storms }) {
    const all = storms.keys.filter((row) => row.storm || row.retries >= kHotRetries);
    const hot = all.slice(0, kHotShown);
    return panel(
      "Hot keys",
      { aside: el("span", { class: "quiet" }, `retries within ${storms.within_seconds} s`) },
      hot.length === 0
        ? empty("No key is retried often at the moment.")
        : table(
            "Hot keys",
            [
              { title: "Key", cell: (row) => el("a", { href: `#/keys/${row.id}` }, el("code", {}, short_id(row.id))) },
              { title: "Route", cell: (row) => el("code", {}, row.route) },
              { title: "Retries", class: "num", cell: (row) => number(row.retries) },
              { title: "Storm", cell: (row) => (row.storm ? el("span", { class: "badge warn" }, "storm") : null) },
            ],
            hot,
          ),
      all.length > hot.length ? el("p", { class: "quiet note" }, `The ${kHotShown} that are retried most.`) : null,
    );
  }

  #deliveries({ jobs }) {
    return panel(
      "Deliveries",
      { aside: el("a", { href: "#/jobs" }, "All jobs") },
      jobs.destinations.length === 0
        ? empty(
            "There are no webhooks and no outbox.",
            "Messages show here once [[webhook]] or [outbox] is configured.",
          )
        : backlog_table("Deliveries", jobs.destinations),
    );
  }

  #limits(overview) {
    const { store, memory, disk, connections, in_flight } = overview;
    const of_limit = (name, used, max, text) =>
      max > 0
        ? [meter(name, used / max, `${text(used)} of ${text(max)}`), el("span", {}, `${text(used)} of ${text(max)}`)]
        : `${text(used)}, no limit set`;
    return panel(
      "Store and limits",
      {},
      facts([
        ["Store", el("code", {}, store.url)],
        ["Durability", [store.durability, el("span", { class: "quiet" }, ` ${kDurability[store.durability] ?? ""}`)]],
        [
          "Health",
          store.healthy
            ? el("span", { class: "badge good" }, "healthy")
            : el("span", { class: "badge bad" }, store.fault ?? "not healthy"),
        ],
        ["Room for new keys", store.room ? "yes" : el("span", { class: "badge bad" }, store.shortage ?? "no")],
        ["Records, about", number(store.records)],
        ["Store size", of_limit("Store size", store.bytes, store.bytes_max, bytes)],
        ["Disk", disk ? of_limit("Disk", disk.size_bytes - disk.free_bytes, disk.size_bytes, bytes) : null],
        ["Bodies under way", of_limit("Bodies under way", memory.buffered_bytes, memory.buffered_bytes_max, bytes)],
        ["Process memory", of_limit("Process memory", memory.rss_bytes, memory.limit_bytes, bytes)],
        ["Connections", of_limit("Connections", connections.open, connections.max, number)],
        ["Calls in flight", of_limit("Calls in flight", in_flight.now, in_flight.max, number)],
        ["WebSockets", overview.tunnels > 0 ? number(overview.tunnels) : null],
        ["Client gone, call goes on", overview.detached > 0 ? plural(overview.detached, "call") : null],
      ]),
    );
  }

  #gateways({ gateways, gateways_shared }) {
    return panel(
      "Gateways on this store",
      {},
      table(
        "Gateways on this store",
        [
          {
            title: "Gateway",
            cell: (row) => [row.name, row.this ? el("span", { class: "quiet" }, " (this one)") : null],
          },
          { title: "State", cell: (row) => badge_of_gateway(row.state) },
          { title: "Seen", cell: (row) => time(row.last_seen) },
          { title: "Up since", class: "wide", cell: (row) => time(row.started) },
          { title: "Version", class: "wide", cell: (row) => row.version },
        ],
        gateways,
        { key: (row) => `${row.name} ${row.started}` },
      ),
      gateways_shared ? null : el("p", { class: "quiet note" }, "An embedded store belongs to one gateway."),
    );
  }

  #upstreams({ upstreams }) {
    return panel(
      "APIs behind it",
      {},
      upstreams.length === 0
        ? empty("No API is configured.")
        : table(
            "APIs behind it",
            [
              { title: "Upstream", cell: (row) => el("code", { class: "long" }, row.name) },
              { title: "Connections", class: "num", cell: (row) => number(row.connections) },
              {
                title: "Circuit breaker",
                cell: (row) =>
                  row.breaker_open
                    ? el("span", { class: "badge bad" }, "open")
                    : el("span", { class: "badge good" }, "closed"),
              },
            ],
            upstreams,
            { key: (row) => row.name },
          ),
    );
  }
}

const kDurability = {
  power: "survives a power cut",
  process: "survives a crash of the process",
  none: "keeps nothing over a restart",
};

function badge_of_gateway(state) {
  const tone = { ready: "good", draining: "warn", store: "bad", silent: "bad" }[state];
  return tone ? el("span", { class: `badge ${tone}` }, state === "store" ? "store fails" : state) : badge(state);
}

const last_of = (values) => values.findLast((value) => value !== null) ?? null;
const greatest_of = (values) =>
  values.reduce((most, value) => (value !== null && (most === null || value > most) ? value : most), null);
