// hidden_body: a body, and headers such as cookies, that are fetched and shown when an operator asks for them.
import { el } from "./dom.js";
import { bytes } from "./format.js";
import { body_text } from "./parts.js";

export class HiddenBody {
  shown = null; // the answer or message with all of it, once asked for
  #error = null;

  // `fetch_whole` gives the answer or message with its body.
  constructor(app, fetch_whole) {
    this.app = app;
    this.fetch_whole = fetch_whole;
  }

  render(body_bytes) {
    const may_see = this.app.session.role === "operator";
    return [
      el(
        "div",
        { class: "buttons start" },
        el(
          "button",
          {
            type: "button",
            "aria-expanded": this.shown ? "true" : "false",
            "aria-disabled": may_see ? null : "true",
            "aria-describedby": may_see ? null : "why-no-body",
            onclick: () => (may_see ? this.#toggle() : this.app.announce("Only operators see bodies.")),
          },
          this.shown ? "Hide the body" : `Show the body (${bytes(body_bytes)})`,
        ),
        may_see
          ? null
          : el("span", { id: "why-no-body", class: "quiet" }, "You are logged in to read only: operators see bodies."),
      ),
      this.#error ? el("p", { class: "form-error", role: "alert" }, this.#error) : null,
      this.shown ? body_text(this.shown) : null,
    ];
  }

  async #toggle() {
    this.#error = null;
    if (this.shown) {
      this.shown = null;
    } else {
      try {
        this.shown = await this.fetch_whole();
      } catch (error) {
        if (error.status === undefined) throw error;
        this.#error = error.message;
      }
    }
    this.app.paint();
  }
}
