// parts: the small pieces that views are made of.
import { el } from "./dom.js";
import { exact, now_ms, relative, short_id, utc } from "./format.js";

// State words, with the tone they have on every page.
const kStates = {
  in_progress: ["in progress", "busy"],
  completed: ["completed", "good"],
  indeterminate: ["indeterminate", "bad"],
  abandoned: ["abandoned", "warn"],
  rerun: ["rerun allowed", "warn"],
  waiting: ["waiting", "busy"],
  taken: ["taken", "busy"],
  delivered: ["delivered", "good"],
  dropped: ["dropped", "calm"],
  dead: ["dead", "bad"],
};

// A record's state with what makes it special.
export function state_of(record) {
  if (record.rerun) return "rerun";
  return record.abandoned ? "abandoned" : record.state;
}

// Where the policy makes keys out of the request, records have none of a client.
export const kNoKey = "no key: known by its content";

export function badge(state) {
  const [text, tone] = kStates[state] ?? [state, "calm"];
  return el("span", { class: `badge ${tone}` }, text);
}

// Relative on the page; exact under the pointer and with the focus. `refresh_times` keeps it true.
export function time(text, { focusable = false } = {}) {
  if (!text) return el("span", { class: "quiet" }, "–");
  return el(
    "time",
    {
      datetime: text,
      title: `${exact(text)}\n${utc(text)}`,
      "data-exact": exact(text),
      tabindex: focusable ? "0" : null,
    },
    relative(text),
  );
}

// A table that is wider than its place scrolls, and must do so by keyboard too.
export function let_tables_scroll(place) {
  for (const node of place.querySelectorAll(".table")) {
    const scrolls = node.scrollWidth > node.clientWidth;
    if (scrolls !== node.hasAttribute("tabindex"))
      scrolls ? node.setAttribute("tabindex", "0") : node.removeAttribute("tabindex");
  }
}

export function refresh_times(place) {
  for (const node of place.querySelectorAll("time[datetime]")) {
    const text = relative(node.dateTime);
    if (node.textContent !== text) node.textContent = text;
  }
}

export const in_the_past = (text) => Date.parse(text) <= now_ms();

// `what` is for people who do not see it: "Copy key".
export function copy_button(text, what, announce) {
  return el(
    "button",
    {
      type: "button",
      class: "copy",
      "aria-label": `Copy ${what}`,
      title: `Copy ${what}`,
      onclick: async () =>
        announce((await copy(text)) ? `Copied ${what}.` : `The browser did not allow copying ${what}.`),
    },
    "copy",
  );
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    // Not there on a page without TLS.
    const area = el("textarea", { class: "away", "aria-hidden": "true" });
    area.value = text;
    const focused = document.activeElement;
    (document.querySelector("dialog[open]") ?? document.body).append(area);
    area.select();
    const done = document.execCommand("copy");
    area.remove();
    focused?.focus();
    return done;
  }
}

// An id, short, with the whole of it to copy.
export function id_of(id, what, announce) {
  return el("span", { class: "id" }, el("code", { title: id }, short_id(id)), copy_button(id, what, announce));
}

export function panel(title, attributes, ...children) {
  const id = `panel-${title.toLowerCase().replace(/[^a-z]+/g, "-")}`;
  const { aside = null, class: more = "", ...rest } = attributes ?? {};
  return el(
    "section",
    { class: `panel ${more}`, "aria-labelledby": id, "data-key": id, ...rest },
    el("div", { class: "panel-head" }, el("h2", { id }, title), aside),
    children,
  );
}

// What stands in place of content.
export const loading = (what) =>
  el("p", { class: "state", "data-key": "loading", "aria-busy": "true" }, `Loading ${what}…`);
export function empty(title, ...text) {
  return el(
    "div",
    { class: "state", "data-key": "empty" },
    el("p", { class: "state-title" }, title),
    text.length > 0 ? el("p", {}, text) : null,
  );
}
export function failure(error, what, again) {
  return el(
    "div",
    { class: "state bad", role: "alert", "data-key": "failure" },
    el("p", { class: "state-title" }, `${what} cannot be shown`),
    el("p", {}, error.message),
    again ? el("p", {}, el("button", { type: "button", onclick: again }, "Try again")) : null,
  );
}

// Columns: {title or heading(), cell(row), class}. A row may be {group}: a heading over those below it. A column of class "wide" is left out on a phone.
// `cards`: on a phone each row becomes a block. The roles are written out, because that takes them away otherwise.
export function table(caption, columns, rows, { key = (row) => row.id, cards = false } = {}) {
  return el(
    "div",
    { class: `table ${cards ? "cards" : ""}`, role: "group", "aria-label": caption },
    el(
      "table",
      { role: "table" },
      el("caption", { class: "away" }, caption),
      el(
        "thead",
        { role: "rowgroup" },
        el(
          "tr",
          { role: "row" },
          columns.map((column) =>
            el(
              "th",
              { role: "columnheader", scope: "col", class: column.class },
              column.heading ? column.heading() : column.title,
            ),
          ),
        ),
      ),
      el(
        "tbody",
        { role: "rowgroup" },
        rows.map((row) =>
          row.group
            ? el(
                "tr",
                { role: "row", class: "group", "data-key": `group-${row.group}` },
                el("th", { role: "rowheader", colspan: columns.length, scope: "rowgroup" }, row.group),
              )
            : el(
                "tr",
                { role: "row", "data-key": key(row) },
                columns.map((column) => el("td", { role: "cell", class: column.class }, column.cell(row))),
              ),
        ),
      ),
    ),
  );
}

// Names and values. A pair without a value is left out.
export function facts(pairs) {
  return el(
    "dl",
    { class: "facts" },
    pairs
      .filter(([, value]) => value !== null && value !== undefined && value !== "")
      .map(([name, value]) => el("div", {}, el("dt", {}, name), el("dd", {}, value))),
  );
}

// How much of a limit is used, from 0 to 1.
export function meter(name, used, words) {
  const percent = Math.round(100 * Math.min(1, Math.max(0, used)));
  const bar = el(
    "span",
    {
      class: `meter ${used >= 0.9 ? "bad" : used >= 0.75 ? "warn" : "good"}`,
      role: "meter",
      "aria-label": name,
      "aria-valuemin": 0,
      "aria-valuemax": 100,
      "aria-valuenow": percent,
      "aria-valuetext": words,
      "data-key": `meter-${percent}`,
    },
    el("span", { class: "meter-used" }),
  );
  bar.firstChild.style.width = `${Math.max(percent, used > 0 ? 1 : 0)}%`;
  return bar;
}

let fields = 0;
// A labelled control; `hint` is read out with it.
export function field(label, control, hint) {
  const id = control.id || `field-${++fields}`;
  control.id = id;
  if (hint) control.setAttribute("aria-describedby", `${id}-hint`);
  return el(
    "div",
    { class: "field" },
    el("label", { for: id }, label),
    control,
    hint ? el("p", { class: "hint", id: `${id}-hint` }, hint) : null,
  );
}

export function choice(name, options, chosen) {
  return el(
    "select",
    { name, id: `choice-${name}` },
    options.map(([value, text]) => el("option", { value, selected: value === chosen }, text)),
  );
}

// Header fields of a request or an answer; a hidden value is null.
export function header_table(caption, headers) {
  if (headers.length === 0) return el("p", { class: "quiet" }, "It has no headers.");
  return table(
    caption,
    [
      { title: "Header", class: "name", cell: (header) => el("code", {}, header.name) },
      {
        title: "Value",
        cell: (header) =>
          header.value === null
            ? el("span", { class: "quiet" }, "hidden until the body is shown")
            : el("code", { class: "long" }, header.value),
      },
    ],
    headers.map(([name, value], at) => ({ id: `${at}`, name, value })),
  );
}

// A body as the API gives it.
export function body_text({ body, body_encoding }) {
  if (body === "") return el("p", { class: "quiet" }, "The body is empty.");
  return [
    body_encoding === "base64" ? el("p", { class: "quiet" }, "Not text: these bytes are shown in base64.") : null,
    el("pre", { class: "body", tabindex: "0", role: "region", "aria-label": "Body" }, pretty(body, body_encoding)),
  ];
}

// JSON over several lines, but only where that adds nothing but space: a number of twenty digits must stay as it is.
function pretty(body, encoding) {
  if (encoding === "base64" || !/^[[{]/.test(body)) return body;
  try {
    const value = JSON.parse(body);
    return JSON.stringify(value) === body ? JSON.stringify(value, null, 2) : body;
  } catch {
    return body;
  }
}
