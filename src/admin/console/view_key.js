// One key: what happened, what a retry gets now, and what a person can do.
import { ask_key_action } from "./dialogs.js";
import { el } from "./dom.js";
import { bytes, number, short_id } from "./format.js";
import { HiddenBody } from "./hidden_body.js";
import { badge, copy_button, empty, facts, header_table, in_the_past, panel, state_of, time } from "./parts.js";
import { activity_text, verdict_of } from "./verdict.js";
import { View, action_list, heading } from "./view.js";

export class KeyView extends View {
  what = "the key";
  every_seconds = 5;
  #hidden = new HiddenBody(this.app, async () => (await this.app.api.get(`/api/keys/${this.id}?body=1`)).response);

  constructor(app, _params, id) {
    super(app);
    this.id = id;
    this.title = `Key ${short_id(id)}`;
  }

  async load(signal) {
    const [record, words] = await Promise.all([
      this.app.api.get(`/api/keys/${encodeURIComponent(this.id)}`, signal),
      this.app.words(),
    ]);
    return { record, words: words.keys };
  }

  render() {
    const back = el("p", { class: "back", "data-key": "back" }, el("a", { href: "#/keys" }, "Keys"));
    if (this.error?.status === 404) {
      return [
        back,
        heading("This key is not there"),
        empty(
          "There is no record with this id.",
          "It may have expired, or was released: then the next request with the key is a first one.",
        ),
      ];
    }
    if (this.error && this.data === null)
      return [back, heading(`Key ${short_id(this.id)}`), this.with_data(() => null)];
    return [
      back,
      this.data ? null : heading(`Key ${short_id(this.id)}`),
      this.with_data(({ record, words }) => this.#page(record, words)),
    ];
  }

  #page(record, words) {
    const say = (text) => this.app.announce(text);
    const verdict = verdict_of(record, this.app.overview);
    return [
      el(
        "div",
        { class: "heading", "data-key": "heading" },
        el("h1", { tabindex: "-1", class: "key" }, record.key),
        copy_button(record.key, "key", say),
        badge(state_of(record)),
      ),
      el(
        "section",
        { class: `answer ${verdict.tone}`, "aria-labelledby": "verdict", "data-key": "answer" },
        el("h2", { id: "verdict" }, el("span", { class: "question" }, "Was it executed? "), verdict.title),
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
          panel(
            "What you can do",
            {},
            action_list(this.app, record.actions, words, (said) =>
              ask_key_action(this.app, record, said, () => this.#acted(said)),
            ),
          ),
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
              [
                "Trace",
                record.trace
                  ? el(
                      "span",
                      { class: "id" },
                      el("code", { class: "long" }, record.trace),
                      copy_button(record.trace, "trace id", say),
                    )
                  : null,
              ],
              [
                "Id",
                el(
                  "span",
                  { class: "id" },
                  el("code", { class: "long" }, record.id),
                  copy_button(record.id, "id", say),
                ),
              ],
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
                entry.event === "lease" ? "now" : entry.at ? time(entry.at, { focusable: true }) : "time not recorded",
                entry.count ? `${number(entry.count)} in all` : null,
                entry.gateway ? `gateway ${entry.gateway}` : null,
                entry.fence ? `fence ${entry.fence}` : null,
                entry.trace
                  ? el(
                      "span",
                      { class: "id" },
                      `trace ${entry.trace.slice(0, 8)}…`,
                      copy_button(entry.trace, "trace id", (text) => this.app.announce(text)),
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
        : null,
    ];
  }

  #response(record) {
    const response = this.#hidden.shown ?? record.response;
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
      response.sealed || response.omitted ? null : this.#hidden.render(response.body_bytes),
    ]);
  }

  #acted(said) {
    this.app.announce(`${said.title}: done.`);
    this.app.reload();
  }
}
