// One key: what happened, what a retry gets now, and what a person can do.
import { ask_key_action } from "./dialogs.js";
import { el } from "./dom.js";
import { bytes, moment, number } from "./format.js";
import { copy_button, empty, facts, header_table, in_the_past, panel, state_of, time } from "./parts.js";
import { activity_text, verdict_of } from "./verdict.js";
import { OneView } from "./view_one.js";

const kMissing = {
  title: "This key is not there",
  text: [
    "There is no record with this id.",
    "It may have expired, or was released: then the next request with the key is a first one.",
  ],
};

export class KeyView extends OneView {
  what = "the key";

  constructor(app, _params, id) {
    super(app, id, { room: "keys", name: "Key", part: "response", missing: kMissing });
  }

  page(record, words) {
    const verdict = verdict_of(record, this.app.overview);
    return [
      this.head(record.key, "key", state_of(record)),
      this.answer(
        verdict.tone,
        "Was it executed?",
        verdict.title,
        el("p", {}, verdict.why),
        el("p", {}, verdict.retry),
        record.activity
          ? el(
              "p",
              { class: "quiet" },
              `Seen by gateway ${record.activity.gateway}: ${activity_text(record.activity)}`,
              record.activity.last_at ? [", the last ", time(record.activity.last_at)] : null,
              ".",
            )
          : null,
      ),
      el(
        "div",
        { class: "columns" },
        el("div", {}, panel("Timeline", {}, this.#timeline(record)), this.#response(record)),
        el(
          "div",
          {},
          this.actions(record, words, ask_key_action),
          panel(
            "Request",
            {},
            facts([
              ["Request", el("code", { class: "long" }, `${record.method} ${record.target}`)],
              ["Route", el("code", {}, record.route)],
              ["Received", time(record.first_received, { focusable: true })],
              ["Expires", time(record.expires_at, { focusable: true })],
              ["Gateway", record.gateway],
              ["Fence", record.fence],
              ["Trace", record.trace ? this.copied(record.trace, "trace id") : null],
              ["Id", this.copied(record.id, "id")],
            ]),
          ),
        ),
      ),
    ];
  }

  #timeline(record) {
    return [
      el(
        "ol",
        { class: "timeline" },
        record.timeline.map((entry, at) =>
          el(
            "li",
            {
              "data-key": `${at}`,
              class: `${entry.event} ${entry.at && !in_the_past(entry.at) ? "future" : ""}`,
            },
            el(
              "p",
              { class: "what" },
              entry.event === "expires" ? "the key expires, and is free from then on" : entry.text,
              entry.until ? [" (ends ", time(entry.until), " unless it is renewed)"] : null,
            ),
            el(
              "p",
              { class: "quiet" },
              [
                entry.at && entry.event !== "lease" ? moment(entry.at) : null,
                entry.event === "lease" ? "now" : entry.at ? time(entry.at, { focusable: true }) : "time not recorded",
                entry.count ? `${number(entry.count)} in all` : null,
                entry.gateway ? `gateway ${entry.gateway}` : null,
                entry.fence ? `fence ${entry.fence}` : null,
                entry.trace
                  ? el(
                      "span",
                      { class: "id" },
                      `trace ${entry.trace.slice(0, 8)}…`,
                      copy_button(entry.trace, "trace id", this.say),
                    )
                  : null,
                entry.who ? `by ${entry.who}` : null,
              ]
                .filter(Boolean)
                .flatMap((part, index) => (index > 0 ? [" · ", part] : [part])),
            ),
            entry.reason ? el("p", { class: "reason" }, `“${entry.reason}”`) : null,
          ),
        ),
      ),
      record.audit === "memory"
        ? el(
            "p",
            { class: "quiet note" },
            "Actions of operators and counts of retries are those since this gateway's start. The log has all.",
          )
        : this.how_far(record),
    ];
  }

  #response(record) {
    const response = this.hidden.shown ?? record.response;
    if (!response) {
      return panel(
        "Answer",
        {},
        empty(
          record.state === "indeterminate" ? "There is no answer." : "There is no answer yet.",
          record.state === "indeterminate"
            ? "None came back whole, or it could not be kept."
            : "It is recorded here, before the client sees it, once the API has answered.",
        ),
      );
    }
    return panel("Answer", {}, [
      el(
        "p",
        {},
        el("span", { class: "status" }, `${response.status} ${response.reason ?? ""}`),
        " ",
        record.settled_at ? ["recorded ", time(record.settled_at, { focusable: true })] : null,
        response.stream ? ` · a stream, ${response.stream}` : null,
      ),
      response.sealed
        ? el(
            "p",
            {},
            `Headers and body are encrypted with key ${response.sealed.key_id}, which this gateway does not have.`,
          )
        : null,
      response.omitted
        ? el(
            "p",
            {},
            `The body was too long to keep: ${bytes(response.omitted.length)}${response.omitted.whole ? "" : ", and it did not arrive whole"}.`,
          )
        : null,
      response.headers ? header_table("Headers of the answer", response.headers) : null,
      response.sealed || response.omitted ? null : this.hidden.render(response.body_bytes),
    ]);
  }
}
