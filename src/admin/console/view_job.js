// One message: where it goes, what each attempt was answered, why it died, and what a person can do.
import { ask_job_action } from "./dialogs.js";
import { el } from "./dom.js";
import { number } from "./format.js";
import { empty, facts, header_table, panel, table, time } from "./parts.js";
import { OneView } from "./view_one.js";

const kMissing = { title: "This message is not there", text: ["There is no job with this id.", "It may have expired."] };

export class JobView extends OneView {
  what = "the message";

  constructor(app, _params, id) {
    super(app, id, { room: "jobs", name: "Job", part: "message", missing: kMissing });
  }

  page(job, words) {
    const [tone, title, why] = verdict_of(job);
    return [
      this.head(job.key, "event id", job.state),
      this.answer(tone, "Was it delivered?", title, el("p", {}, why)),
      el(
        "div",
        { class: "columns" },
        el("div", {}, panel("Attempts", {}, this.#attempts(job)), this.#decisions(job), this.#message(job)),
        el(
          "div",
          {},
          this.actions(job, words, ask_job_action),
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
              ["Id", this.copied(job.id, "id")],
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

  #decisions(job) {
    if (job.decisions.length === 0 && !job.audit_back_to) return null;
    return panel("What operators did", {}, [
      job.decisions.length === 0
        ? el("p", {}, "Nothing.")
        : table(
            "What operators did",
            [
              { title: "When", class: "when", cell: (row) => time(row.at, { focusable: true }) },
              { title: "What", cell: (row) => `${row.action}: ${row.result}` },
              { title: "Who", cell: (row) => row.who },
              { title: "Reason", cell: (row) => row.reason },
            ],
            job.decisions,
            { key: (row) => `${row.at} ${row.action}` },
          ),
      this.how_far(job),
    ]);
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
    const message = this.hidden.shown ?? job.message;
    return panel(
      "Content",
      {},
      el("p", {}, el("code", { class: "long" }, `${message.method} ${message.target}`)),
      header_table("Headers of the message", message.headers),
      this.hidden.render(message.body_bytes),
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
