// The colours that were chosen the last time, before anything is drawn.
(() => {
  "use strict";
  try {
    const chosen = localStorage.getItem("slipstream-theme");
    if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
  } catch {
    // A page that may not remember follows the system.
  }
})();
