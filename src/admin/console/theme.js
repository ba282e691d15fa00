// Sets the colours before the first paint: those that a person has chosen, or else the system's. A plain script: modules
// run too late for that.
"use strict";
(function () {
  const kPlace = "oncekey-theme";
  const system = matchMedia("(prefers-color-scheme: dark)");
  const is_one = (theme) => theme === "light" || theme === "dark";
  let chosen = "";
  try {
    const kept = localStorage.getItem(kPlace);
    if (is_one(kept)) chosen = kept;
  } catch {
    // Storage is switched off: the system's colours it is.
  }
  const apply = () => {
    document.documentElement.dataset.theme = chosen || (system.matches ? "dark" : "light");
  };
  apply();
  system.addEventListener("change", apply);

  // For the page. An empty choice is the system's.
  globalThis.theme = {
    chosen: () => chosen,
    choose(theme) {
      chosen = is_one(theme) ? theme : "";
      apply();
      try {
        localStorage.setItem(kPlace, chosen);
      } catch {
        // It holds until the page is left.
      }
    },
  };
})();
