// view: what the pages of the console have in common.
import { el } from "./dom.js";
import { clock, now_ms } from "./format.js";
import { failure, loading } from "./parts.js";

// A view loads its data, again while a person is there, and renders from what it has. The frame stays on the page while
// data is on its way; data that could not be refreshed stays too, and says so.
export class View {
  title = "";
  what = ""; // "the keys": in "Loading …"
  every_seconds = 0; // how often it is loaded again; 0: when asked
  data = null;
  error = null;
  loaded_at = null;

  constructor(app) {
    this.app = app;
  }

  async load(_signal) {
    return {};
  }
  render() {
    return [];
  }
  on_overview() {} // a new answer of GET /api/overview is there
  on_theme() {}
  leave() {}

  async refresh(signal) {
    try {
      this.data = await this.load(signal);
      this.error = null;
      this.loaded_at = now_ms();
    } catch (error) {
      if (signal?.aborted) return;
      if (error.status === undefined) throw error;
      if (error.status === 401) return; // the login page is up
      if (error.status === 404) this.data = null;
      this.error = error;
    }
    this.app.paint();
  }

  // What `build` makes of the data, or what stands in its place.
  with_data(build) {
    if (this.data === null) {
      if (!this.error) return loading(this.what);
      return failure(this.error, this.what[0].toUpperCase() + this.what.slice(1), () => {
        this.error = null;
        this.app.paint();
        this.app.reload();
      });
    }
    return [
      this.error
        ? el(
            "p",
            { class: "stale", role: "status", "data-key": "stale" },
            `Not refreshed since ${clock(this.loaded_at / 1000)}: ${this.error.message}`,
          )
        : null,
      build(this.data),
    ];
  }
}

export const heading = (text, ...beside) => el("div", { class: "heading" }, el("h1", { tabindex: "-1" }, text), beside);

const kReadOnly = "you are logged in to read only; an operator can do this.";

// The buttons of what can be done to a record or job, each with what it means or why it is not possible.
export function action_list(app, actions, words, ask) {
  const reader = app.session.role !== "operator";
  const reasons = new Set(actions.map((each) => (reader ? kReadOnly : each.allowed ? null : each.why_not)));
  const shared = reasons.size === 1 ? [...reasons][0] : null;
  if (shared) {
    return [
      el("p", { id: "why-nothing", class: "quiet" }, `Not now: ${shared}`),
      el(
        "div",
        { class: "buttons start" },
        actions.map((each) =>
          el(
            "button",
            {
              type: "button",
              "aria-disabled": "true",
              "aria-describedby": "why-nothing",
              "data-key": each.action,
              onclick: () => app.announce(shared),
            },
            words.find((word) => word.action === each.action)?.title ?? each.action,
          ),
        ),
      ),
    ];
  }
  return el(
    "ul",
    { class: "actions" },
    actions.map((each) => {
      const said = words.find((word) => word.action === each.action);
      const why_not = each.allowed ? null : each.why_not;
      const id = `why-${each.action}`;
      return el(
        "li",
        { "data-key": each.action },
        el(
          "button",
          {
            type: "button",
            "aria-describedby": id,
            "aria-disabled": why_not ? "true" : null,
            onclick: () => (why_not ? app.announce(why_not) : ask(said)),
          },
          said?.title ?? each.action,
        ),
        el("p", { id, class: why_not ? "quiet" : null }, why_not ? `Not now: ${why_not}` : said?.meaning),
      );
    }),
  );
}
