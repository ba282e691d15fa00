// dom: builds and updates the page.
//
// Text goes in as text nodes and attribute values alone; nothing here parses markup, so that a key or a header that
// looks like HTML is shown as it is. Views render from scratch; `morph` brings what is on the page in line with that, so that
// focus, scrolling and typed text survive an update.

const kHandlers = ["onclick", "onsubmit", "onchange", "oninput", "onkeydown", "ontoggle"];
const kProperties = new Set(["value", "checked", "disabled", "selected", "readOnly", "indeterminate", ...kHandlers]);

// el("p", {class: "x", onclick: f}, "text", node, [more]). null, undefined and false are left out.
export function el(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined) continue;
    if (kProperties.has(name)) node[name] = value;
    else if (value !== false) node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

export function append(node, children) {
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    if (Array.isArray(child)) append(node, child);
    else node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
}

// Makes the children of `place` what `fresh` is.
export function show(place, ...fresh) {
  const holder = document.createElement(place.nodeName);
  append(holder, fresh);
  const focused = document.activeElement;
  morph_children(place, holder);
  if (!focused || focused === document.activeElement) return;
  // A node that was moved has lost the focus; of one that was replaced, the next with its id gets it.
  const next = place.contains(focused) ? focused : focused.id && document.getElementById(focused.id);
  if (next && place.contains(next)) next.focus({ preventScroll: true });
}

const key_of = (node) => (node.nodeType === Node.ELEMENT_NODE ? node.getAttribute("data-key") : null);
const alike = (a, b) => a.nodeType === b.nodeType && a.nodeName === b.nodeName && key_of(a) === key_of(b);

function morph_children(place, holder) {
  let at = place.firstChild;
  for (const fresh of [...holder.childNodes]) {
    let old = at;
    // A keyed node may have moved.
    if (key_of(fresh) !== null && !(old && alike(old, fresh))) {
      old = [...place.childNodes].find((node) => alike(node, fresh)) ?? null;
      if (old) place.insertBefore(old, at);
    }
    if (old && alike(old, fresh)) {
      morph(old, fresh);
      at = old.nextSibling;
    } else {
      place.insertBefore(fresh, at);
    }
  }
  while (at) {
    const next = at.nextSibling;
    at.remove();
    at = next;
  }
}

function morph(old, fresh) {
  if (old.nodeType !== Node.ELEMENT_NODE) {
    if (old.data !== fresh.data) old.data = fresh.data;
    return;
  }
  if (old.hasAttribute("data-keep")) return; // looks after itself: a plot
  for (const { name } of [...old.attributes]) {
    const own =
      (name === "open" && old.nodeName === "DETAILS") || (name === "tabindex" && old.classList.contains("table"));
    if (!own && !fresh.hasAttribute(name)) old.removeAttribute(name);
  }
  for (const { name, value } of fresh.attributes) {
    if (old.getAttribute(name) === value) continue;
    if (name === "style")
      old.style.cssText = value; // as an attribute the page's policy forbids it
    else old.setAttribute(name, value);
  }
  for (const handler of kHandlers) {
    if (old[handler] !== fresh[handler]) old[handler] = fresh[handler];
  }
  if (old.nodeName === "BUTTON" && old.disabled !== fresh.disabled) old.disabled = fresh.disabled;
  if (old.type === "checkbox") {
    old.checked = fresh.checked;
    old.indeterminate = fresh.indeterminate;
  }
  if (old.nodeName === "TEXTAREA") return; // its text is the person's
  const chosen = old.nodeName === "SELECT" ? old.value : null;
  morph_children(old, fresh);
  if (chosen !== null) old.value = chosen;
}
