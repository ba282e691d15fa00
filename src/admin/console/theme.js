// Sets the chosen colours before the first paint. A plain script: modules run too late for that.
"use strict";
(function () {
  let chosen = null;
  try {
    chosen = localStorage.getItem("oncekey-theme");
  } catch {
    // Storage is switched off: the system's colours it is.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
