// Before the page is drawn, so that it does not flash in the other colours.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("watcherml-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // Storage may be switched off; then the system's setting counts.
  }
})();
