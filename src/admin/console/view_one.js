// view_one: what the pages about one key and one message have in common.
import { el } from "./dom.js";
import { short_id } from "./format.js";
import { HiddenBody } from "./hidden_body.js";
import { badge, copy_button, empty, kNoKey, panel, time } from "./parts.js";
import { View, action_list, heading } from "./view.js";

// Found by its id, and loaded again while a person looks at it. `page(one, words)` renders what was found.
export class OneView extends View {
  every_seconds = 5;

  // `room` is "keys" or "jobs", and `part` the member that has a body. `missing` are the words for an id that is not there.
  constructor(app, id, { room, name, part, missing }) {
    super(app);
    Object.assign(this, { id, room, name, missing });
    this.title = `${name} ${short_id(id)}`;
    this.hidden = new HiddenBody(app, async () => (await app.api.get(`/api/${room}/${id}?body=1`))[part]);
  }

  async load(signal) {
    const [one, words] = await Promise.all([
      this.app.api.get(`/api/${this.room}/${encodeURIComponent(this.id)}`, signal),
      this.app.words(),
    ]);
    return { one, words: words[this.room] };
  }

  render() {
    const back = el("p", { class: "back", "data-key": "back" }, el("a", { href: `#/${this.room}` }, `${this.name}s`));
    if (this.error?.status === 404) return [back, heading(this.missing.title), empty(...this.missing.text)];
    if (this.data === null) return [back, heading(this.title), this.with_data(() => null)];
    return [back, this.with_data(({ one, words }) => this.page(one, words))];
  }

  say = (text) => this.app.announce(text);

  // The key on top, and below it the answer to the question that brings people here.
  head(key, what, state) {
    return el(
      "div",
      { class: "heading", "data-key": "heading" },
      el("h1", { tabindex: "-1", class: "key" }, key || kNoKey),
      key ? copy_button(key, what, this.say) : null,
      badge(state),
    );
  }
  answer(tone, question, title, ...more) {
    return el(
      "section",
      { class: `answer ${tone}`, "aria-labelledby": "verdict", "data-key": "answer" },
      el("h2", { id: "verdict" }, el("span", { class: "question" }, `${question} `), title),
      more,
    );
  }

  // `ask(app, one, said, done)` opens the dialog of an action.
  actions(one, words, ask) {
    return panel(
      "What you can do",
      {},
      action_list(this.app, one.actions, words, (said) =>
        ask(this.app, one, said, () => {
          this.say(`${said.title}: done.`);
          this.app.reload();
        }),
      ),
    );
  }

  // How far the audit log was looked at, where it was not looked at whole.
  how_far(one) {
    return one.audit_back_to
      ? el(
          "p",
          { class: "quiet note" },
          "The audit log was looked at back to ",
          time(one.audit_back_to, { focusable: true }),
          ". For what is older: ",
          el("code", { class: "long" }, `oncekey audit show --record ${one.id}`),
        )
      : null;
  }

  // A long id with its button.
  copied(id, what) {
    return el("span", { class: "id" }, el("code", { class: "long" }, id), copy_button(id, what, this.say));
  }
}
