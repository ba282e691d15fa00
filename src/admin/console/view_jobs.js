// Jobs: messages of webhooks and the outbox. The backlog, dead letters with why each died, retrying or dropping many.
import { query } from "./api.js";
import { ask_bulk_action } from "./dialogs.js";
import { el } from "./dom.js";
import { number, plural } from "./format.js";
import { badge, choice, empty, field, meter, panel, table, time } from "./parts.js";
import { View, heading } from "./view.js";

const kPage = 100;
const kMost = 10_000;
const kRunSeconds = 1;
const kStates = [
  ["dead", "Dead letters"],
  ["waiting", "Waiting"],
  ["taken", "Being delivered"],
  ["delivered", "Delivered"],
  ["dropped", "Dropped"],
  ["", "All"],
];
const kAges = [
  ["", "Any age"],
  ["newer_than=1h", "Newer than an hour"],
  ["newer_than=1d", "Newer than a day"],
  ["older_than=1h", "Older than an hour"],
  ["older_than=1d", "Older than a day"],
];

export class JobsView extends View {
  title = "Jobs";
  what = "the jobs";
  every_seconds = 5;
  #chosen = new Map(); // by id: the version of the job that was shown
  #runs = [];
  #run_timer = null;
  #asking = false;

  constructor(app, params) {
    super(app);
    const value = (name) => params.get(name) ?? "";
    this.filter = {
      state: params.has("state") ? value("state") : "dead",
      destination: value("destination"),
      older_than: value("older_than"),
      newer_than: value("newer_than"),
    };
    this.limit = Math.min(kMost, Number(value("limit")) || kPage);
  }

  leave() {
    clearTimeout(this.#run_timer);
  }

  async load(signal) {
    const [page, words, runs] = await Promise.all([
      this.app.api.get(`/api/jobs${query({ ...this.filter, limit: this.limit })}`, signal),
      this.app.words(),
      this.app.api.get("/api/jobs/runs", signal),
    ]);
    this.#runs = runs.runs;
    if (this.#runs.some((run) => run.state === "running")) this.#follow_run();
    const chosen = page.jobs.filter((job) => this.#chosen.has(job.id));
    this.#chosen = new Map(chosen.map((job) => [job.id, job.version]));
    return { ...page, words: words.jobs };
  }

  render() {
    return [
      heading("Jobs"),
      this.#backlog(),
      this.#run_panel(),
      this.#form(),
      el(
        "section",
        { "aria-label": "Jobs found", "data-key": "found" },
        this.with_data((data) => this.#found(data)),
      ),
    ];
  }

  // `values`: what is different there, of the filter or `limit`.
  #link(values) {
    const wanted = { ...this.filter, ...values };
    return `#/jobs${query(wanted)}${wanted.state === "" ? (query(wanted) ? "&state=" : "?state=") : ""}`;
  }

  #backlog() {
    const destinations = this.app.overview?.jobs.destinations ?? [];
    return destinations.length === 0 ? null : panel("Backlog", {}, backlog_table("Backlog", destinations));
  }

  #form() {
    const destinations = (this.app.overview?.jobs.destinations ?? []).map(({ destination }) => destination);
    if (this.filter.destination && !destinations.includes(this.filter.destination))
      destinations.push(this.filter.destination);
    const age = this.filter.older_than
      ? `older_than=${this.filter.older_than}`
      : this.filter.newer_than
        ? `newer_than=${this.filter.newer_than}`
        : "";
    const apply = (event) => {
      const form = new FormData(event.target.form);
      const [kind, length] = form.get("age").split("=");
      this.app.go(
        this.#link({
          destination: form.get("destination"),
          older_than: "",
          newer_than: "",
          ...(kind ? { [kind]: length } : {}),
        }),
      );
    };
    const counts = this.app.overview?.jobs ?? {};
    return el(
      "div",
      { class: "filters", "data-key": "filters" },
      el(
        "nav",
        { "aria-label": "States of jobs", class: "tabs" },
        el(
          "ul",
          {},
          kStates.map(([state, text]) =>
            el(
              "li",
              {},
              el(
                "a",
                { href: this.#link({ state }), "aria-current": this.filter.state === state ? "true" : null },
                text,
                counts[state] > 0
                  ? el("span", { class: `count ${state === "dead" ? "bad" : ""}` }, number(counts[state]))
                  : null,
              ),
            ),
          ),
        ),
      ),
      el(
        "form",
        {
          class: "row",
          "aria-label": "Filters",
          "data-key": `filters ${JSON.stringify(this.filter)}`, // the way back in the browser changes what is chosen too
          onsubmit: (event) => event.preventDefault(),
        },
        field(
          "Destination",
          el(
            "select",
            { name: "destination", id: "choice-destination", onchange: apply },
            [["", "Any destination"], ...destinations.map((name) => [name, name])].map(([value, text]) =>
              el("option", { value, selected: value === this.filter.destination }, text),
            ),
          ),
        ),
        field("Age", Object.assign(choice("age", kAges, age), { onchange: apply })),
      ),
    );
  }

  #found(data) {
    if (data.jobs.length === 0) {
      if (!data.whole) return empty("None was found, but not all messages were looked at.", this.#narrower());
      if (this.filter.destination || this.filter.older_than || this.filter.newer_than)
        return empty("No message fits these filters.");
      const none = {
        dead: ["There are no dead letters.", "Every message was delivered, or is still being tried."],
        waiting: ["Nothing waits to be delivered."],
        taken: ["Nothing is being delivered at this moment."],
        delivered: ["No delivered messages are remembered."],
        dropped: ["No message was dropped."],
      }[this.filter.state] ?? ["There are no messages.", "Webhooks and the outbox put their messages here."];
      return empty(...none);
    }
    return [
      this.#tools(),
      table("Jobs", this.#columns(data), data.jobs, { cards: true }),
      el(
        "p",
        { class: "quiet note", role: "status", "data-key": "how-far" },
        !data.whole
          ? `${plural(data.jobs.length, "job")}, and not all were looked at: newer ones may fit too. Choose a state or a destination to see them.`
          : data.more
            ? `The newest ${number(data.jobs.length)} are shown; there are more.`
            : `${plural(data.jobs.length, "job")}: all that fit.`,
      ),
      data.more && this.limit < kMost
        ? el(
            "nav",
            { class: "pages", "aria-label": "Pages" },
            el("a", { href: this.#link({ limit: Math.min(kMost, this.limit * 5) }) }, "Show more"),
          )
        : null,
    ];
  }

  // What to do where more messages are there than are looked at. A state and a destination are found by an index; the age
  // is compared afterwards.
  #narrower() {
    const { state, destination } = this.filter;
    if (state === "" && destination === "") return "Choose a state or a destination to look at fewer.";
    if (state === "") return "Choose a state to look at fewer.";
    if (destination === "") return "Choose a destination to look at fewer.";
    return "Choose another age, or deal with those of any age first.";
  }

  #columns(data) {
    const can = data.jobs.filter(selectable);
    const all = can.length > 0 && can.every((job) => this.#chosen.has(job.id));
    return [
      {
        class: "check",
        heading: () =>
          can.length === 0
            ? el("span", { class: "away" }, "Select")
            : el("input", {
                type: "checkbox",
                "aria-label": "Select all shown",
                checked: all,
                indeterminate: !all && this.#chosen.size > 0,
                onchange: (event) => {
                  for (const job of can) this.#choose(job, event.target.checked);
                  this.app.paint();
                },
              }),
        cell: (job) =>
          selectable(job)
            ? el("input", {
                type: "checkbox",
                "aria-label": `Select ${job.key}`,
                checked: this.#chosen.has(job.id),
                onchange: (event) => {
                  this.#choose(job, event.target.checked);
                  this.app.paint();
                },
              })
            : null,
      },
      { title: "State", class: "what", cell: (job) => badge(job.state) },
      {
        title: "Event",
        class: "main",
        cell: (job) => [
          el(
            "span",
            { class: "key-line" },
            el("a", { href: `#/jobs/${job.id}`, class: "key", title: job.key }, job.key),
          ),
          el("span", { class: "under quiet" }, job.destination),
        ],
      },
      { title: "What happened", class: "line", cell: (job) => this.#happened(job) },
      { title: "Attempts", class: "num wide", cell: (job) => number(job.attempts) },
      { title: "Received", class: "when", cell: (job) => time(job.received) },
    ];
  }

  #happened(job) {
    if (job.state === "dead")
      return [
        job.why_dead,
        job.last && !job.why_dead?.includes(job.last)
          ? el("span", { class: "under quiet" }, `last: ${job.last}`)
          : null,
      ];
    if (job.state === "waiting") {
      return [
        job.attempts > 0 ? `${job.last}; again ` : "first attempt ",
        time(job.next_attempt),
        job.ordered ? el("span", { class: "under quiet" }, "in order, behind earlier ones") : null,
      ];
    }
    if (job.ended) return [job.last ? `${job.last}, ` : "", time(job.ended)];
    return job.last ?? "first attempt under way";
  }

  #choose(job, chosen) {
    if (chosen) this.#chosen.set(job.id, job.version);
    else this.#chosen.delete(job.id);
  }

  #tools() {
    const reader = this.app.session.role !== "operator";
    const busy = this.#runs.some((run) => run.state === "running");
    const why_not = reader
      ? "You are logged in to read only. An operator can retry and drop."
      : busy
        ? "A run is under way."
        : null;
    const matching = this.filter.state === "dead" || this.filter.state === "waiting";
    const button = (action, which, text, usable = true) =>
      el(
        "button",
        {
          type: "button",
          "aria-disabled": why_not || !usable ? "true" : null,
          "aria-describedby": why_not ? "why-no-bulk" : null,
          onclick: () =>
            why_not
              ? this.app.announce(why_not)
              : usable
                ? this.#ask(action, which())
                : this.app.announce("Select messages first."),
        },
        text,
      );
    const ids = () => ({ ids: [...this.#chosen].map(([id, version]) => ({ id, version })) });
    const filter = () => ({
      filter: Object.fromEntries(Object.entries(this.filter).filter(([, value]) => value !== "")),
    });
    if (!matching && this.filter.state !== "") return null;
    return el(
      "div",
      { class: "tools", "data-key": "tools", role: "group", "aria-label": "Actions on many" },
      el("span", { role: "status" }, this.#chosen.size > 0 ? `${number(this.#chosen.size)} selected` : "None selected"),
      button("retry", ids, "Retry selected…", this.#chosen.size > 0),
      button("drop", ids, "Drop selected…", this.#chosen.size > 0),
      matching
        ? [
            el("span", { class: "divider" }),
            button("retry", filter, "Retry all that match…"),
            button("drop", filter, "Drop all that match…"),
          ]
        : null,
      why_not ? el("span", { id: "why-no-bulk", class: "quiet" }, why_not) : null,
    );
  }

  async #ask(action, which) {
    if (this.#asking) return; // the second click of a double click
    this.#asking = true;
    try {
      const trial = await this.app.api.post(`/api/jobs/${action}`, { ...which, dry_run: true });
      if (trial.count === 0) {
        this.app.announce(
          trial.capped
            ? `None was found, but not all messages were looked at. ${this.#narrower()}`
            : "No message fits any more.",
        );
        this.app.reload();
        return;
      }
      const words = this.data.words.find((each) => each.action === action);
      ask_bulk_action(this.app, which, words, trial, (run) => {
        this.#chosen.clear();
        this.#runs = [run, ...this.#runs];
        this.app.announce(`${words.title}: ${plural(run.total, "message")} under way.`);
        this.app.paint();
        this.#follow_run();
      });
    } catch (error) {
      if (error.status === undefined) throw error;
      this.app.announce(error.message);
    } finally {
      this.#asking = false;
    }
  }

  // Progress comes every second; the list when the run has ended.
  #follow_run() {
    clearTimeout(this.#run_timer);
    this.#run_timer = setTimeout(async () => {
      try {
        const current = this.#runs.find((run) => run.state === "running");
        if (!current) return;
        const now = await this.app.api.get(`/api/jobs/runs/${current.id}`);
        this.#runs = this.#runs.map((run) => (run.id === now.id ? now : run));
        this.app.paint();
        if (now.state === "running") {
          this.#follow_run();
        } else {
          this.app.announce(run_text(now));
          this.app.reload();
        }
      } catch (error) {
        if (error.status === undefined) throw error;
        if (error.status === 0) this.#follow_run();
      }
    }, kRunSeconds * 1000);
  }

  #run_panel() {
    if (this.#runs.length === 0) return null;
    const [latest, ...others] = this.#runs;
    return panel(
      "Runs",
      {},
      this.#run(latest),
      others.length > 0
        ? el(
            "details",
            { "data-key": "others" },
            el("summary", {}, `${plural(others.length, "earlier run")}`),
            el(
              "ul",
              { class: "plain-list" },
              others.map((run) =>
                el(
                  "li",
                  {},
                  run_text(run),
                  " ",
                  el("span", { class: "quiet" }, "Begun ", time(run.started), ` by ${run.who}: “${run.reason}”`),
                ),
              ),
            ),
          )
        : null,
    );
  }

  #run(run) {
    const handled = run.done + run.left_alone + run.failed;
    return el(
      "div",
      { class: "run", "data-key": run.id },
      el(
        "p",
        {},
        run_text(run),
        " ",
        el("span", { class: "quiet" }, "Begun ", time(run.started), ` by ${run.who}: “${run.reason}”`),
      ),
      run.state === "running"
        ? el(
            "div",
            { class: "row middle" },
            meter(
              "Progress of the run",
              run.total > 0 ? handled / run.total : 1,
              `${number(handled)} of ${number(run.total)}`,
            ),
            el(
              "button",
              {
                type: "button",
                "aria-disabled": this.app.session.role === "operator" ? null : "true",
                onclick: () => this.#stop(run),
              },
              "Stop",
            ),
          )
        : null,
      (run.left_alone_why ?? []).length > 0
        ? el(
            "ul",
            { class: "plain-list quiet" },
            run.left_alone_why.map((each) => el("li", {}, `${number(each.count)} left alone: ${each.why}`)),
          )
        : null,
      run.last_fault ? el("p", { class: "form-error" }, run.last_fault) : null,
    );
  }

  async #stop(run) {
    try {
      // A run is stopped once, however often the button is pressed.
      const key = `stop-${run.id}`;
      await this.app.api.post(`/api/jobs/runs/${run.id}/stop`, { reason: "stopped in the console" }, { key });
      this.app.announce("The run stops.");
      this.#follow_run();
    } catch (error) {
      if (error.status === undefined) throw error;
      this.app.announce(error.message);
    }
  }
}

// What waits for each destination, with links to it.
export function backlog_table(caption, destinations) {
  const count = (row, state) =>
    row[state] > 0
      ? el("a", { href: `#/jobs${query({ state, destination: row.destination })}` }, number(row[state]))
      : "0";
  const columns = [
    {
      title: "Destination",
      cell: (row) => [
        row.destination,
        row.configured ? null : [" ", el("span", { class: "badge bad" }, "not configured")],
      ],
    },
    { title: "Waiting", class: "num", cell: (row) => count(row, "waiting") },
    { title: "Taken", class: "num", cell: (row) => count(row, "taken") },
    { title: "Dead", class: "num", cell: (row) => count(row, "dead") },
  ];
  return table(caption, columns, destinations, { key: (row) => row.destination });
}

const selectable = (job) => job.state === "dead" || job.state === "waiting";

function run_text(run) {
  const verb = run.action === "retry" ? "Retry" : "Drop";
  const state = { running: "runs", done: "is done", stopped: "was stopped" }[run.state] ?? run.state;
  const parts = [
    `${number(run.done)} of ${number(run.total)} ${run.action === "retry" ? "put up for delivery" : "dropped"}`,
  ];
  if (run.left_alone > 0) parts.push(`${number(run.left_alone)} left alone`);
  if (run.failed > 0) parts.push(`${number(run.failed)} failed`);
  return `${verb} ${state}: ${parts.join(", ")}.`;
}
