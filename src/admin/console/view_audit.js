// The audit trail: who did what, and when. To be read; nothing here changes it.
import { query } from "./api.js";
import { el } from "./dom.js";
import { moment, plural, short_id } from "./format.js";
import { copy_button, empty, field, table, time } from "./parts.js";
import { View, heading } from "./view.js";

const kLines = 100;
// Lines of operators may stand far apart, between decisions about requests. An answer looks at some megabytes of the log; a
// page asks so often before it says that it has found nothing yet.
const kAsksMax = 8;
const kRefreshSeconds = 10;

export class AuditView extends View {
  title = "Audit";
  what = "the audit trail";
  #wanted = "";

  constructor(app, params) {
    super(app);
    this.before = params.get("before") ?? "";
    this.day = params.get("day") ?? "";
    // What was done since then is on the first page alone.
    this.every_seconds = this.before || this.day ? 0 : kRefreshSeconds;
  }

  async load(signal) {
    const found = { lines: [], next: this.before, looked: 0, back_to: null };
    for (let asks = 0; asks < kAsksMax && found.lines.length < kLines; ++asks) {
      const asked = { limit: kLines - found.lines.length, before: found.next, until: end_of(this.day) };
      const { lines, next, looked, back_to, from } = await this.app.api.get(`/api/audit${query(asked)}`, signal);
      found.lines.push(...lines);
      found.looked += looked;
      Object.assign(found, { next, from, back_to: back_to ?? found.back_to });
      if (next === null) break;
    }
    return found;
  }

  render() {
    if (this.error?.status === 404) {
      return [
        heading("Audit trail"),
        empty(
          "This gateway has no audit trail to show.",
          "Its log has a line operator_action for each action. ",
          this.error.message,
        ),
      ];
    }
    return [
      heading("Audit trail"),
      this.#filters(),
      el(
        "section",
        { "aria-label": "Lines found", "data-key": "found" },
        this.with_data((data) => this.#found(data)),
      ),
    ];
  }

  #filters() {
    return el(
      "form",
      {
        class: "filters",
        "aria-label": "Filters",
        "data-key": `filters ${this.day}`, // another day in the address is another one in the field
        onsubmit: (event) => event.preventDefault(),
      },
      el(
        "div",
        { class: "row" },
        field(
          "Up to this day",
          el("input", {
            id: "audit-day",
            type: "date",
            value: this.day,
            onchange: (event) => this.app.go(`#/audit${query({ day: event.target.value })}`),
          }),
        ),
        field(
          "Find in what is shown",
          el("input", {
            id: "audit-find",
            type: "search",
            autocomplete: "off",
            oninput: (event) => {
              this.#wanted = event.target.value.toLowerCase();
              this.app.paint();
            },
          }),
        ),
      ),
    );
  }

  #found(data) {
    const fits = (line) =>
      this.#wanted === "" ||
      [line.who, line.action, line.id, line.result, line.reason].some((text) =>
        (text ?? "").toLowerCase().includes(this.#wanted),
      );
    const lines = data.lines.filter(fits);
    return [
      data.lines.length === 0 ? this.#nothing(data) : lines.length === 0 ? empty("No line here has this text.") : null,
      lines.length > 0 ? this.#table(lines) : null,
      this.#how_far(data, lines.length),
      this.#pages(data),
    ];
  }

  #table(lines) {
    return table(
      "Audit trail",
      [
        {
          title: "When",
          class: "when",
          cell: (line) => [time(line.at, { focusable: true }), el("span", { class: "under quiet moment" }, moment(line.at))],
        },
        { title: "Who", class: "line whole", cell: (line) => line.who },
        { title: "What", class: "what", cell: (line) => el("strong", {}, line.action) },
        { title: "Result", class: "what", cell: (line) => result_of(line.result ?? "") },
        { title: "On", class: "line", cell: (line) => this.#object(line) },
        { title: "Reason", class: "line rest", cell: (line) => line.reason },
      ],
      lines,
      { cards: true, key: (line) => line.n },
    );
  }

  #nothing(data) {
    if (data.next !== null) return empty("No operator has acted in this part of the log.", "Look further back.");
    if (this.before || this.day) return empty("There is nothing older.");
    return empty("Nothing was done yet.", "Actions of operators, logins and refusals show here.");
  }

  #how_far(data, shown) {
    const where = data.from === "memory" ? "in memory" : "of the log";
    return el(
      "p",
      { class: "quiet note", role: "status", "data-key": "how-far" },
      `${plural(shown, "line")}, newest first. `,
      data.looked > 0 ? [`Looked at ${plural(data.looked, "line")} ${where}, back to `, time(data.back_to)] : null,
      data.looked > 0 ? (data.next === null ? ": that is all. " : "; there are older ones. ") : null,
      data.from === "memory" ? "They are those since this gateway's start; its log has all, as operator_action." : null,
    );
  }

  #pages(data) {
    if (data.next === null && !this.before) return null;
    const { day } = this;
    return el(
      "nav",
      { class: "pages", "aria-label": "Pages", "data-key": "pages" },
      this.before ? el("a", { href: `#/audit${query({ day })}` }, "Newest") : null,
      data.next === null ? null : el("a", { href: `#/audit${query({ day, before: data.next })}` }, "Older"),
    );
  }

  #object(line) {
    if (!line.id) return null;
    const whole = /^[0-9a-f]{64}$/.test(line.id);
    const room = line.action === "retry" || line.action === "drop" ? "jobs" : "keys";
    return whole
      ? el(
          "span",
          { class: "id" },
          room === "jobs" ? "job " : "key ",
          el("a", { href: `#/${room}/${line.id}` }, el("code", {}, short_id(line.id))),
          copy_button(line.id, "id", (text) => this.app.announce(text)),
        )
      : el("code", {}, line.id);
  }
}

// The end of a day where the browser is, as the API takes it; nothing without a day.
function end_of(day) {
  const [year, month, date] = day.split("-").map(Number);
  const end = new Date(year, month - 1, date + 1);
  return Number.isNaN(end.getTime()) ? "" : end.toISOString();
}

// One word stands out, and so does a refusal; others are sentences.
function result_of(result) {
  if (result.includes(" ") && !/^(refused|wrong|fault)/.test(result)) return result;
  return el("span", { class: `badge ${result === "done" ? "good" : "warn"}` }, result);
}
