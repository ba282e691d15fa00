// dialogs: questions before an action. The browser keeps the focus inside and closes them on Escape.
import { el, show } from "./dom.js";
import { random_key } from "./api.js";
import { field, kNoKey } from "./parts.js";
import { number, plural, short_id } from "./format.js";

let open_one = null;

// While somebody has to log in again the dialog waits, with what was typed.
export const suspend_dialog = () => open_one?.suspend();
export const resume_dialog = () => open_one?.resume();
export const drop_dialog = () => open_one?.close();

// A dialog with a form. `body` are the nodes between title and buttons; `act(form_data, key)` does it; its error is shown.
// An action has one idempotency key from when the dialog opens, so that it happens once however often it is sent.
class Ask {
  constructor({ title, body, button, tone, act }) {
    this.key = random_key();
    this.act = act;
    this.error = el("div", { class: "form-error", role: "alert" });
    this.submit = el("button", { type: "submit", class: tone === "bad" ? "danger" : "primary" }, button);
    this.form = el(
      "form",
      { method: "dialog", onsubmit: (event) => this.#send(event) },
      el("h2", { id: "dialog-title" }, title),
      body,
      this.error,
      el(
        "div",
        { class: "buttons" },
        el("button", { type: "button", onclick: () => this.close() }, "Cancel"),
        this.submit,
      ),
    );
    this.dialog = el("dialog", { "aria-labelledby": "dialog-title" }, this.form);
    this.suspended = false;
    this.back_to = document.activeElement;
    this.dialog.addEventListener("close", () => {
      if (!this.suspended) this.#gone();
    });
    document.body.append(this.dialog);
    open_one = this;
    this.dialog.showModal();
    (this.form.querySelector("[autofocus]") ?? this.form.querySelector("input, textarea, select"))?.focus();
  }

  close() {
    if (this.dialog.open) this.dialog.close();
    else this.#gone();
  }

  suspend() {
    this.suspended = true;
    this.dialog.close();
  }

  resume() {
    this.suspended = false;
    show(this.error);
    this.dialog.showModal();
  }

  #gone() {
    open_one = null;
    this.dialog.remove();
    if (this.back_to?.isConnected) this.back_to.focus();
    else document.querySelector("h1")?.focus();
  }

  async #send(event) {
    event.preventDefault();
    if (this.submit.disabled) return;
    this.submit.disabled = true;
    this.form.setAttribute("aria-busy", "true");
    show(this.error);
    try {
      await this.act(new FormData(this.form), this.key);
      this.close();
    } catch (error) {
      if (error.code === undefined) throw error;
      show(
        this.error,
        el("p", {}, error.message),
        error.status === 0 ? el("p", {}, "It is not known whether it was done. Send it again: it happens once.") : null,
      );
    } finally {
      this.submit.disabled = false;
      this.form.removeAttribute("aria-busy");
    }
  }
}

const reason_field = () =>
  field(
    "Reason",
    el("textarea", {
      name: "reason",
      rows: 2,
      required: true,
      maxlength: 1000,
      autofocus: true,
      autocomplete: "off",
    }),
    "For the audit trail: what you found out, or a ticket.",
  );

function confirm_field(word, what) {
  const input = el("input", {
    name: "confirm",
    required: true,
    autocomplete: "off",
    spellcheck: "false",
    pattern: word.replace(/[^0-9a-z]/gi, "\\$&"),
    title: `Type ${word}`,
  });
  return field(`To confirm, type ${word}`, input, what);
}

const explained = (words) => [
  el("p", {}, words?.meaning),
  words?.risk ? el("div", { class: "risk" }, el("strong", {}, "What it risks: "), words.risk) : null,
];

// `words` explains the action (GET /api/actions); `done(answer)` is called after it.
export function ask_key_action(app, record, words, done) {
  const complete = words.action === "complete";
  return new Ask({
    title: `${words.title}: this key`,
    button: words.title,
    tone: "bad",
    body: [
      el(
        "p",
        { class: "about" },
        el("code", {}, record.key || kNoKey),
        el("span", { class: "quiet" }, ` ${record.method} ${record.target}`),
      ),
      explained(words),
      complete
        ? el(
            "div",
            { class: "row" },
            field(
              "Status",
              el("input", { name: "status", type: "number", min: 200, max: 599, required: true, value: "200" }),
            ),
            field(
              "Content type",
              el("input", { name: "content_type", value: "application/json", autocomplete: "off" }),
            ),
          )
        : null,
      complete
        ? field(
            "Body",
            el("textarea", { name: "body", rows: 5, class: "code", spellcheck: "false" }),
            "Every retry gets exactly this.",
          )
        : null,
      reason_field(),
      confirm_field(short_id(record.id), "The first 8 digits of the key's id."),
    ],
    act: async (form, key) => {
      const body = { reason: form.get("reason"), confirm: form.get("confirm"), version: record.version };
      if (complete)
        Object.assign(body, {
          status: Number(form.get("status")),
          content_type: form.get("content_type"),
          body: form.get("body"),
        });
      await app.api.post(`/api/keys/${record.id}/${words.action}`, body, { key });
      done();
    },
  });
}

export function ask_job_action(app, job, words, done) {
  return new Ask({
    title: `${words.title}: this message`,
    button: words.title,
    tone: words.action === "drop" ? "bad" : null,
    body: [
      el("p", { class: "about" }, el("code", {}, job.key), el("span", { class: "quiet" }, ` to ${job.destination}`)),
      explained(words),
      reason_field(),
      confirm_field(short_id(job.id), "The first 8 digits of the message's id."),
    ],
    act: async (form, key) => {
      await app.api.post(
        `/api/jobs/${job.id}/${words.action}`,
        { reason: form.get("reason"), confirm: form.get("confirm"), version: job.version },
        { key },
      );
      done();
    },
  });
}

// Many at once: `which` is {ids} or {filter}; `trial` is the answer of a dry run of it.
export function ask_bulk_action(app, which, words, trial, done) {
  return new Ask({
    title: `${words.title}: ${plural(trial.count, "message")}`,
    button: `${words.title} ${number(trial.count)}`,
    tone: words.action === "drop" ? "bad" : null,
    body: [
      explained(words),
      el(
        "ul",
        { class: "plain-list" },
        trial.destinations.map((each) =>
          el("li", {}, el("span", { class: "num" }, number(each.count)), " to ", each.destination),
        ),
        (trial.skipped ?? []).map((each) =>
          el("li", { class: "quiet" }, `${number(each.count)} left alone: ${each.why}`),
        ),
      ),
      trial.capped
        ? el(
            "p",
            { class: "risk" },
            `More match; one run takes at most ${number(trial.cap)}. Run it again for the others.`,
          )
        : null,
      trial.takes_seconds > 1 && words.action === "retry"
        ? el(
            "p",
            { class: "quiet" },
            `The deliveries are spread over about ${trial.takes_seconds} s, so that the receiver is not flooded.`,
          )
        : null,
      reason_field(),
      confirm_field(String(trial.count), "The number of messages."),
    ],
    act: async (form, key) => {
      done(
        await app.api.post(
          `/api/jobs/${words.action}`,
          { ...which, reason: form.get("reason"), confirm: Number(form.get("confirm")) },
          { key },
        ),
      );
    },
  });
}
