// main: the frame around the views. Login, navigation, the poll of GET /api/overview, and notices.
import { Api } from "./api.js";
import { drop_dialog, resume_dialog, suspend_dialog } from "./dialogs.js";
import { el, show } from "./dom.js";
import { clock, number, set_clock } from "./format.js";
import { field, let_tables_scroll, refresh_times } from "./parts.js";
import { AuditView } from "./view_audit.js";
import { JobView } from "./view_job.js";
import { JobsView } from "./view_jobs.js";
import { KeyView } from "./view_key.js";
import { KeysView, forget_search } from "./view_keys.js";
import { OverviewView } from "./view_overview.js";
import { View, heading } from "./view.js";

const kOverviewSeconds = 5;
const kHistoryRows = 720; // an hour
const kTickMs = 1000;
// A view is loaded again by itself only while a person is there: that keeps the session alive.
const kPersonMs = 5 * 60_000;

const place = (id) => document.getElementById(id);
const { theme } = globalThis; // theme.js

class NowhereView extends View {
  title = "Not found";
  render() {
    return [heading("There is no such page"), el("p", {}, el("a", { href: "#/" }, "To the overview"))];
  }
}

class App {
  session = null;
  overview = null;
  #view = null;
  #path = null;
  #abort = null;
  #words = null;
  #locked = false;
  #unreachable_since = null;
  #last_touch = Date.now();
  #loaded_at = 0;
  #asking_overview = false;
  #login = null;
  #notice_timer = null;

  constructor() {
    this.api = new Api((error) => this.#lock(error));
  }

  // Who it is.

  async start() {
    addEventListener("hashchange", () => this.#follow_hash());
    for (const kind of ["pointerdown", "pointermove", "keydown", "wheel", "touchstart"])
      addEventListener(
        kind,
        () => {
          this.#last_touch = Date.now();
        },
        { passive: true, capture: true },
      );
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden) this.#poll();
    });
    addEventListener("resize", () => let_tables_scroll(place("main")));
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => this.#view?.on_theme());
    place("skip").onclick = (event) => {
      event.preventDefault();
      place("main").focus();
    };
    setInterval(() => this.#tick(), kTickMs);
    setInterval(() => this.#poll(), kOverviewSeconds * 1000);
    if (await this.#use_code_in_hash()) return;
    await this.#resume_session();
  }

  // A reload finds its session by the cookie.
  async #resume_session(refused = null) {
    try {
      let session = await this.api.get("/api/session");
      // A client certificate is enough to read; acting from a page needs a session.
      if (session.by === "certificate") session = await this.api.post("/api/login", {});
      this.#logged_in(session);
    } catch (error) {
      if (error.status === undefined) throw error;
      this.#show_login(error.status === 401 ? refused : error);
    }
  }

  // The link of `oncekey console` ends in #code=…, which reaches no server and no log.
  async #use_code_in_hash() {
    const found = /^#code=([^&]+)/.exec(location.hash);
    if (!found) return false;
    history.replaceState(null, "", location.pathname + (this.#path === null ? "#/" : `#/${this.#path}`));
    try {
      this.#logged_in(await this.api.post("/api/login", { code: found[1] }));
    } catch (error) {
      if (error.status === undefined) throw error;
      // A link that was used before, in a browser that is logged in: that goes on.
      await this.#resume_session(error);
      if (this.session) this.announce(error.message);
    }
    return true;
  }

  #logged_in(session) {
    const same = this.session && this.session.role === session.role;
    this.session = session;
    this.api.use_session(session);
    this.#login?.remove();
    this.#login = null;
    place("main").hidden = false;
    place("header").hidden = false;
    if (this.#locked && same) {
      // Where the person was, with what was typed.
      this.#locked = false;
      resume_dialog();
      this.#poll();
      if (location.hash.slice(2) === this.#path) this.reload();
      else this.#follow_hash();
      return;
    }
    this.#locked = false;
    drop_dialog();
    this.#view?.leave();
    this.#view = null;
    this.#poll();
    this.#follow_hash();
  }

  // The session is over: nothing is shown any more, and nothing is lost.
  #lock(error) {
    if (this.#locked || !this.session) return;
    this.#locked = true;
    suspend_dialog();
    this.#show_login(error, true);
  }

  async #log_out() {
    try {
      await this.api.post("/api/logout", {});
    } catch (error) {
      if (error.status === undefined) throw error;
      if (error.status !== 401) {
        this.announce(`Not logged out: ${error.message}`);
        return;
      }
    }
    drop_dialog();
    this.#view?.leave();
    this.#view = null;
    this.session = null;
    this.overview = null;
    this.#words = null;
    this.#locked = false;
    this.api.use_session(null);
    forget_search();
    show(place("main"));
    history.replaceState(null, "", location.pathname + "#/");
    this.#show_login(null);
    this.announce("You are logged out.");
  }

  #show_login(error, over = false) {
    place("main").hidden = true;
    place("header").hidden = true;
    document.title = "Log in – Oncekey";
    const problem = el("div", { class: "form-error", role: "alert" });
    const token = el("input", {
      name: "token",
      type: "password",
      autocomplete: "current-password",
      required: true,
      spellcheck: "false",
    });
    const form = el(
      "form",
      {
        onsubmit: async (event) => {
          event.preventDefault();
          if (form.hasAttribute("aria-busy")) return; // the second click of a double click
          form.setAttribute("aria-busy", "true");
          show(problem);
          try {
            this.#logged_in(await this.api.post("/api/login", { token: token.value.trim() }));
          } catch (refused) {
            if (refused.status === undefined) throw refused;
            show(problem, el("p", {}, refused.message));
            token.select();
          } finally {
            form.removeAttribute("aria-busy");
          }
        },
      },
      field("Token", token, "The operators' token, or one that may only read."),
      problem,
      el("div", { class: "buttons" }, el("button", { type: "submit", class: "primary" }, "Log in")),
    );
    const said = error && error.code !== "login_required" && !over ? el("p", {}, error.message) : null;
    this.#login?.remove();
    this.#login = el(
      "main",
      { class: "login", id: "login" },
      el("p", { class: "brand" }, "Oncekey"),
      el("h1", { tabindex: "-1" }, over ? "Your session is over" : "Log in to the console"),
      over ? el("p", {}, "Log in again to go on where you were. What you have typed is still there.") : null,
      el(
        "p",
        {},
        "On the gateway's machine, run ",
        el("code", {}, "oncekey console"),
        " and open the link that it prints. It works once, for a minute. Or:",
      ),
      form,
    );
    document.body.insertBefore(this.#login, place("notice"));
    if (said) show(problem, said); // said by the alert once it is on the page
    token.focus();
  }

  // Where it is.

  async #follow_hash() {
    if (await this.#use_code_in_hash()) return;
    if (!this.session || this.#locked) return;
    const hash = location.hash;
    if (hash !== "" && !hash.startsWith("#/")) return; // a place on the same page
    const [path, search] = (hash.slice(2) || "").split("?");
    const params = new URLSearchParams(search ?? "");
    const [room, id] = path.split("/");
    const views = { "": OverviewView, keys: id ? KeyView : KeysView, jobs: id ? JobView : JobsView, audit: AuditView };
    const Kind = id && room !== "keys" && room !== "jobs" ? NowhereView : (views[room] ?? NowhereView);
    const stays = this.#view?.constructor === Kind && this.#path?.split("?")[0] === path;
    this.#path = hash.slice(2);
    drop_dialog();
    this.#view?.leave();
    this.#view = new Kind(this, params, id);
    if (!stays) show(place("main"));
    this.paint();
    document.querySelector(".tabs [aria-current]")?.scrollIntoView({ block: "nearest", inline: "nearest" });
    if (!stays) {
      scrollTo(0, 0);
      if (this.#loaded_at !== 0) document.querySelector("#main h1")?.focus({ preventScroll: true });
    }
    this.reload();
  }

  go(hash) {
    if (location.hash === hash) this.#follow_hash();
    else location.hash = hash;
  }

  reload() {
    this.#abort?.abort();
    this.#abort = new AbortController();
    this.#loaded_at = Date.now();
    return this.#view?.refresh(this.#abort.signal);
  }

  // What everything shares.

  async #poll() {
    if (!this.session || this.#locked || this.#asking_overview || document.hidden) return;
    this.#asking_overview = true;
    try {
      const known = this.overview?.history;
      let overview = await this.api.get(`/api/overview${known ? `?since=${known.next}` : ""}`);
      // The gateway was started again, or this tab has slept for longer than an hour.
      if (overview.history.gap) overview = await this.api.get("/api/overview");
      else if (known) overview.history.rows = [...known.rows, ...overview.history.rows].slice(-kHistoryRows);
      set_clock(overview.now);
      this.overview = overview;
      this.#unreachable_since = null;
      this.#view?.on_overview();
    } catch (error) {
      if (error.status === undefined) throw error;
      if (error.status !== 401) this.#unreachable_since ??= { at: Date.now() / 1000, why: error.message };
    } finally {
      this.#asking_overview = false;
    }
    if (this.session && !this.#locked) this.paint();
  }

  #tick() {
    if (!this.session || this.#locked || document.hidden) return;
    refresh_times(place("main"));
    const every = this.#view?.every_seconds ?? 0;
    const person_is_there = Date.now() - this.#last_touch < kPersonMs;
    if (every > 0 && person_is_there && Date.now() - this.#loaded_at >= every * 1000) this.reload();
  }

  // The explanations of all actions.
  async words() {
    this.#words ??= await this.api.get("/api/actions");
    return this.#words;
  }

  // Said once, politely, and shown for a while.
  announce(text) {
    clearTimeout(this.#notice_timer);
    // In an open dialog, where it can be seen and is not inert.
    const notice = document.querySelector("dialog[open] .form-error") ?? place("notice");
    show(notice, el("p", {}, text));
    this.#notice_timer = setTimeout(() => show(place("notice")), 6000);
  }

  paint() {
    if (!this.#view) return;
    document.title = `${this.#view.title} – Oncekey`;
    this.#paint_header();
    show(
      place("main"),
      this.#unreachable_since
        ? el(
            "p",
            { class: "stale", role: "status", "data-key": "unreachable" },
            `No answer from the gateway since ${clock(this.#unreachable_since.at)}: ${this.#unreachable_since.why} Trying again.`,
          )
        : null,
      this.#view.render(),
    );
    let_tables_scroll(place("main"));
  }

  #paint_header() {
    const room = this.#path?.split(/[/?]/)[0] ?? "";
    const keys = this.overview?.keys;
    const waiting = keys ? keys.indeterminate + keys.abandoned : 0;
    const dead = this.overview?.jobs.dead ?? 0;
    const link = (name, text, count, what) =>
      el(
        "li",
        {},
        el(
          "a",
          { href: `#/${name}`, "aria-current": room === name ? "page" : null },
          text,
          count > 0 ? el("span", { class: "count" }, number(count), el("span", { class: "away" }, ` ${what}`)) : null,
        ),
      );
    show(
      place("header"),
      el(
        "div",
        { class: "bar" },
        el("a", { class: "brand", href: "#/" }, "Oncekey"),
        el("span", { class: "gateway quiet" }, this.session.gateway),
        el(
          "nav",
          { "aria-label": "Console" },
          el(
            "ul",
            {},
            link("", "Overview"),
            link("keys", "Keys", waiting, "wait"),
            link("jobs", "Jobs", dead, "dead letters"),
            link("audit", "Audit"),
          ),
        ),
        el(
          "div",
          { class: "who" },
          el(
            "span",
            { class: "quiet role", title: this.session.name },
            this.session.role === "operator" ? "operator" : "read only",
          ),
          this.#theme_choice(),
          el("button", { type: "button", onclick: () => this.#log_out() }, "Log out"),
        ),
      ),
    );
  }

  #theme_choice() {
    return el(
      "select",
      {
        "aria-label": "Colours",
        id: "theme",
        onchange: (event) => {
          theme.choose(event.target.value);
          this.#view?.on_theme();
        },
      },
      [
        ["", "System"],
        ["light", "Light"],
        ["dark", "Dark"],
      ].map(([value, text]) => el("option", { value, selected: value === theme.chosen() }, text)),
    );
  }
}

new App().start();
