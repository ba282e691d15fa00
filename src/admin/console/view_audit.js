// The audit trail: who did what, and when. To be read; nothing here changes it.
import { el } from "./dom.js";
import { plural, short_id } from "./format.js";
import { copy_button, empty, field, table, time } from "./parts.js";
import { View, heading } from "./view.js";

const kLines = 500;

export class AuditView extends View {
  title = "Audit";
  what = "the audit trail";
  every_seconds = 10;
  #wanted = "";

  async load(signal) {
    return this.app.api.get(`/api/audit?limit=${kLines}`, signal);
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
      el(
        "div",
        { class: "filters", "data-key": "filters" },
        el(
          "div",
          { class: "row" },
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
      ),
      this.with_data((data) => this.#lines(data)),
    ];
  }

  #lines(data) {
    const fits = (line) =>
      this.#wanted === "" ||
      [line.who, line.action, line.id, line.result, line.reason].some((text) =>
        (text ?? "").toLowerCase().includes(this.#wanted),
      );
    const lines = data.lines.map((line, at) => ({ ...line, at_index: at })).filter(fits);
    if (data.lines.length === 0)
      return empty("Nothing was done yet.", "Actions of operators, logins and refusals show here.");
    return [
      lines.length === 0
        ? empty("No line has this text.")
        : table(
            "Audit trail",
            [
              { title: "When", class: "when", cell: (line) => time(line.at, { focusable: true }) },
              { title: "Who", class: "line whole", cell: (line) => line.who },
              { title: "What", class: "what", cell: (line) => el("strong", {}, line.action) },
              { title: "Result", class: "what", cell: (line) => result_of(line.result) },
              { title: "On", class: "line", cell: (line) => this.#object(line) },
              { title: "Reason", class: "line rest", cell: (line) => line.reason },
            ],
            lines,
            { cards: true, key: (line) => `${line.at} ${line.action} ${line.id} ${line.at_index - data.lines.length}` },
          ),
      el(
        "p",
        { class: "quiet note", role: "status" },
        `${plural(lines.length, "line")}, newest first. `,
        data.from === "memory"
          ? "They are those since this gateway's start; its log has all, as operator_action."
          : "From the audit log.",
      ),
    ];
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

// One word stands out, and so does a refusal; others are sentences.
function result_of(result) {
  if (result.includes(" ") && !/^(refused|wrong|fault)/.test(result)) return result;
  return el("span", { class: `badge ${result === "done" ? "good" : "warn"}` }, result);
}
