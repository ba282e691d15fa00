// Keys: those that need a person first, and the search for one.
import { query } from "./api.js";
import { el } from "./dom.js";
import { number, plural } from "./format.js";
import { badge, choice, copy_button, empty, field, id_of, in_the_past, kNoKey, state_of, table, time } from "./parts.js";
import { View, heading } from "./view.js";

const kPage = 50;
const kNoSearch = { key: "", principal: "", method: "", path: "", headers: "" };
// What was typed. Kept in memory alone: an account's credential belongs into no URL, and a key into no history.
let search = { ...kNoSearch };
export function forget_search() {
  search = { ...kNoSearch };
}

const kStates = [
  ["", "Any state"],
  ["waiting", "Waiting (abandoned or indeterminate)"],
  ["indeterminate", "Indeterminate"],
  ["abandoned", "Abandoned"],
  ["in_progress", "In progress"],
  ["completed", "Completed"],
];
const kAges = [
  ["", "Any age"],
  ["newer_than=10m", "Newer than 10 minutes"],
  ["newer_than=1h", "Newer than an hour"],
  ["newer_than=1d", "Newer than a day"],
  ["older_than=10m", "Older than 10 minutes"],
  ["older_than=1h", "Older than an hour"],
  ["older_than=1d", "Older than a day"],
];

const kGroups = { operator: "Need a person", retry: "Wait for a retry", null: "All others" };
const kRanks = { operator: 0, retry: 1, null: 2 };

export class KeysView extends View {
  title = "Keys";
  what = "the keys";

  constructor(app, params) {
    super(app);
    const value = (name) => params.get(name) ?? "";
    this.filter = {
      state: value("state"),
      route: value("route"),
      older_than: value("older_than"),
      newer_than: value("newer_than"),
    };
    this.after = value("after");
  }

  get searching() {
    return search.key !== "" || search.principal !== "";
  }

  async load(signal) {
    if (!this.searching)
      return this.app.api.get(`/api/keys${query({ ...this.filter, limit: kPage, after: this.after })}`, signal);
    const asked = Object.fromEntries(
      Object.entries({ ...search, ...this.filter, headers: header_pairs(search.headers) }).filter(
        ([, value]) => value !== "" && value.length > 0,
      ),
    );
    return this.app.api.post("/api/keys/find", { ...asked, limit: kPage }, { signal });
  }

  render() {
    return [
      heading("Keys"),
      this.#form(),
      el(
        "section",
        { "aria-label": "Keys found", "data-key": "found" },
        this.with_data((data) => this.#found(data)),
      ),
    ];
  }

  #form() {
    const text = (name, label, hint, more) =>
      field(
        label,
        el("input", {
          name,
          id: `search-${name}`,
          value: search[name],
          autocomplete: "off",
          autocapitalize: "off",
          spellcheck: "false",
          ...more,
        }),
        hint,
      );
    const age = this.filter.older_than
      ? `older_than=${this.filter.older_than}`
      : this.filter.newer_than
        ? `newer_than=${this.filter.newer_than}`
        : "";
    const known = [
      ...new Set([
        ...(this.app.overview?.routes ?? []),
        ...(this.data?.keys ?? []).map(({ route }) => route),
        this.filter.route,
      ]),
    ]
      .filter((name) => name !== "")
      .sort();
    return el(
      "form",
      {
        class: "panel search",
        role: "search",
        "aria-label": "Search keys",
        "data-key": `search ${JSON.stringify(this.filter)}`, // the way back in the browser changes what is chosen too
        onsubmit: (event) => this.#search(event),
      },
      el(
        "div",
        { class: "row" },
        text("key", "Key", "As the client sent it."),
        text(
          "principal",
          "Account",
          "As the client sends it, such as Bearer sk_live_… It goes into no URL and no log.",
        ),
      ),
      el(
        "div",
        { class: "row" },
        field("State", choice("state", kStates, this.filter.state)),
        field("Age", choice("age", kAges, age)),
        field("Route", choice("route", [["", "Any route"], ...known.map((name) => [name, name])], this.filter.route)),
      ),
      el(
        "details",
        { "data-key": "more", open: search.method || search.path || search.headers ? true : null },
        el("summary", {}, "More, to name one record exactly"),
        el(
          "div",
          { class: "row" },
          text("method", "Method", "POST"),
          text("path", "Path", "/v1/charges"),
          field(
            "Other headers of the scope",
            el("textarea", {
              name: "headers",
              id: "search-headers",
              rows: 2,
              class: "code",
              spellcheck: "false",
              value: search.headers,
            }),
            "One a line: Stripe-Account: acct_1",
          ),
        ),
      ),
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "submit", class: "primary", id: "search-go" }, "Search"),
        el("button", { type: "button", onclick: (event) => this.#clear(event) }, "Clear"),
      ),
    );
  }

  #search(event) {
    event.preventDefault();
    const form = new FormData(event.target);
    for (const name of Object.keys(kNoSearch)) search[name] = form.get(name).trim();
    const [age, length] = form.get("age").split("=");
    this.app.go(
      `#/keys${query({ state: form.get("state"), route: form.get("route"), ...(age ? { [age]: length } : {}) })}`,
    );
  }

  #clear(event) {
    forget_search();
    const { form } = event.target;
    for (const control of form.elements) if (control.name) control.value = "";
    this.app.go("#/keys");
  }

  #found(data) {
    const rows = [...data.keys].sort((a, b) => kRanks[a.waits_for] - kRanks[b.waits_for]);
    const grouped = [];
    for (const row of rows) {
      if (grouped.length === 0 || grouped.at(-1).waits_for !== row.waits_for)
        grouped.push({ group: kGroups[row.waits_for] });
      grouped.push(row);
    }
    return [
      // Logs name a key by the first digits of its record's id.
      /^[0-9a-f]{8,64}$/.test(search.key)
        ? el(
            "p",
            { "data-key": "by-id" },
            "This may be an id, as logs show it: ",
            el("a", { href: `#/keys/${search.key}` }, `open the record ${search.key.slice(0, 12)}`),
            ".",
          )
        : null,
      rows.length === 0
        ? this.#nothing(data)
        : table("Keys", this.#columns(), rows.some((row) => row.waits_for) ? grouped : rows, { cards: true }),
      this.#how_far(data),
      this.#pages(data),
    ];
  }

  #columns() {
    return [
      { title: "State", class: "what", cell: (row) => badge(state_of(row)) },
      {
        title: "Key",
        class: "main",
        cell: (row) => [
          el(
            "span",
            { class: "key-line" },
            el("a", { href: `#/keys/${row.id}`, class: "key", title: row.key }, row.key || kNoKey),
            row.key ? copy_button(row.key, "key", (text) => this.app.announce(text)) : null,
          ),
          el("span", { class: "under quiet" }, `${row.method} ${row.target}`),
        ],
      },
      { title: "Now", class: "line", cell: (row) => this.#now(row) },
      { title: "Received", class: "when", cell: (row) => time(row.first_received) },
      { title: "Route", class: "wide", cell: (row) => el("code", {}, row.route) },
      { title: "Gateway", class: "wide", cell: (row) => row.gateway },
      { title: "Id", class: "wide", cell: (row) => id_of(row.id, "id", (text) => this.app.announce(text)) },
    ];
  }

  #now(row) {
    if (row.state === "completed") return ["answered ", el("span", { class: "num" }, row.status)];
    if (row.state === "indeterminate") return ["unknown since ", time(row.indeterminate_since)];
    if (row.rerun) return "next retry executes";
    return [row.abandoned || in_the_past(row.lease_until) ? "lease ended " : "lease ends ", time(row.lease_until)];
  }

  #nothing(data) {
    if (this.searching) {
      return data.exact
        ? empty(
            "There is no such key.",
            "The gateway has asked for exactly this record: it was never claimed, was released, or has expired.",
          )
        : empty("No key was found.", data.missing ? `To be sure, add: ${data.missing}.` : null);
    }
    const narrowed = Object.values(this.filter).some((value) => value !== "");
    if (this.filter.state === "waiting" || this.filter.state === "indeterminate" || this.filter.state === "abandoned")
      return empty("No key waits.", "Nothing here needs a person.");
    return narrowed
      ? empty("No key fits these filters.")
      : empty("There are no keys yet.", "A key shows here with its first request.");
  }

  #how_far(data) {
    let text;
    if (this.searching && data.exact) text = "Found by its exact id; nothing else had to be looked at.";
    else if (data.whole) text = `Looked at ${plural(data.looked, "record")}: all there are.`;
    else if (data.next) text = `Looked at ${plural(data.looked, "record")} so far; there are more.`;
    else
      text = `Looked at the newest ${plural(data.looked, "record")}, not at all: older ones may fit too. Narrow the search to see them.`;
    if (data.missing) text += ` To name the record exactly, add: ${data.missing}.`;
    if (data.more) text += ` Only the first ${number(kPage)} are shown.`;
    return el("p", { class: "quiet note", role: "status", "data-key": "how-far" }, text);
  }

  #pages(data) {
    if (!data.next && !this.after) return null;
    return el(
      "nav",
      { class: "pages", "aria-label": "Pages", "data-key": "pages" },
      this.after ? el("a", { href: `#/keys${query(this.filter)}` }, "First page") : null,
      data.next ? el("a", { href: `#/keys${query({ ...this.filter, after: data.next })}` }, "Next page") : null,
    );
  }
}

function header_pairs(text) {
  return text
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => line !== "")
    .map((line) => {
      const colon = line.indexOf(":");
      return colon < 0 ? [line, ""] : [line.slice(0, colon).trim(), line.slice(colon + 1).trim()];
    });
}
