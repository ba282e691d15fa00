// One message: where it goes, what each attempt was answered, why it died, and what a person can do.
import { ask_job_action } from "./dialogs.js";
import { el } from "./dom.js";
import { number, short_id } from "./format.js";
import { HiddenBody } from "./hidden_body.js";
import { badge, copy_button, empty, facts, header_table, panel, table, time } from "./parts.js";
import { View, action_list, heading } from "./view.js";

export class JobView extends View {
  what = "the message";
  every_seconds = 5;
  #hidden = new HiddenBody(this.app, async () => (await this.app.api.get(`/api/jobs/${this.id}?body=1`)).message);

  constructor(app, _params, id) {
    super(app);
    this.id = id;
    this.title = `Job ${short_id(id)}`;
  }

  async load(signal) {
    const [job, words] = await Promise.all([
      this.app.api.get(`/api/jobs/${encodeURIComponent(this.id)}`, signal),
      this.app.words(),
    ]);
    return { job, words: words.jobs };
  }

  render() {
    const back = el("p", { class: "back", "data-key": "back" }, el("a", { href: "#/jobs" }, "Jobs"));
    if (this.error?.status === 404) {
      return [
        back,
        heading("This message is not there"),
        empty("There is no job with this id.", "It may have expired."),
      ];
    }
    if (this.data === null) return [back, heading(`Job ${short_id(this.id)}`), this.with_data(() => null)];
    return [back, this.with_data(({ job, words }) => this.#page(job, words))];
  }

  #page(job, words) {
    const say = (text) => this.app.announce(text);
    const [tone, title, why] = verdict_of(job);
    return [
      el(
        "div",
        { class: "heading", "data-key": "heading" },
        el("h1", { tabindex: "-1", class: "key" }, job.key),
        copy_button(job.key, "event id", say),
        badge(job.state),
      ),
      el(
        "section",
        { class: `answer ${tone}`, "aria-labelledby": "verdict", "data-key": "answer" },
        el("h2", { id: "verdict" }, el("span", { class: "question" }, "Was it delivered? "), title),
        el("p", {}, why),
      ),
      el(
        "div",
        { class: "columns" },
        el("div", {}, panel("Attempts", {}, this.#attempts(job)), this.#message(job)),
        el(
          "div",
          {},
          panel(
            "What you can do",
            {},
            action_list(this.app, job.actions, words, (said) =>
              ask_job_action(this.app, job, said, () => {
                say(`${said.title}: done.`);
                this.app.reload();
              }),
            ),
          ),
          panel(
            "Message",
            {},
            facts([
              ["Destination", job.destination],
              ["Received", time(job.received, { focusable: true })],
              ["Next attempt", job.next_attempt ? time(job.next_attempt, { focusable: true }) : null],
              ["Ended", job.ended ? time(job.ended, { focusable: true }) : null],
              ["Remembered until", time(job.remembered_until, { focusable: true })],
              ["Order", job.ordered ? "waits for earlier messages of the same order_by value" : null],
              [
                "Id",
                el("span", { class: "id" }, el("code", { class: "long" }, job.id), copy_button(job.id, "id", say)),
              ],
            ]),
          ),
        ),
      ),
    ];
  }

  #attempts(job) {
    const newest = job.newest_attempts;
    return [
      el(
        "p",
        {},
        job.attempts === 0
          ? "None was made yet."
          : [
              `${number(job.attempts)} made; the last: `,
              el("strong", {}, job.last),
              ", ",
              time(job.last_at, { focusable: true }),
              ".",
            ],
      ),
      newest.length > 0
        ? table(
            "Attempts",
            [
              { title: "Attempt", class: "num", cell: (row) => number(row.attempt) },
              { title: "When", cell: (row) => time(row.at, { focusable: true }) },
              { title: "Answer", cell: (row) => row.result },
              { title: "Gateway", cell: (row) => row.gateway },
            ],
            newest,
            { key: (row) => row.attempt },
          )
        : null,
      newest.length < job.attempts
        ? el("p", { class: "quiet note" }, `A job keeps its newest ${number(newest.length)} attempts.`)
        : null,
    ];
  }

  #message(job) {
    if (!job.message) {
      return panel(
        "Content",
        {},
        empty(
          "The message cannot be shown.",
          job.unreadable ?? "It was not kept: it was dropped, or keep_delivered = false.",
        ),
      );
    }
    const message = this.#hidden.shown ?? job.message;
    return panel(
      "Content",
      {},
      el("p", {}, el("code", { class: "long" }, `${message.method} ${message.target}`)),
      header_table("Headers of the message", message.headers),
      this.#hidden.render(message.body_bytes),
    );
  }
}

// A word of the store's as a sentence.
const sentence = (text) => `${text[0].toUpperCase()}${text.slice(1)}${text.endsWith(".") ? "" : "."}`;

function verdict_of(job) {
  switch (job.state) {
    case "delivered":
      return ["good", "Yes", `The receiver accepted it: ${job.last}. The same event is not delivered again.`];
    case "dead":
      return [
        "bad",
        "No, and it is not tried again",
        `${sentence(job.why_dead ?? "it was given up")} ${job.attempts > 0 ? `The last answer was: ${job.last}. ` : ""}Retry it once the receiver works, or drop it.`,
      ];
    case "dropped":
      return [
        "calm",
        "No: an operator dropped it",
        "It is not delivered. A message that was under way may have arrived before.",
      ];
    case "taken":
      return [
        "busy",
        "It is being delivered now",
        job.attempts > 0 ? `The attempt before ended with: ${job.last}.` : "This is the first attempt.",
      ];
    default:
      return [
        "busy",
        "Not yet",
        job.attempts > 0
          ? `The last attempt ended with: ${job.last}. It is tried again by itself.`
          : job.ordered
            ? "It waits for earlier messages of the same order."
            : "The first attempt comes by itself.",
      ];
  }
}
