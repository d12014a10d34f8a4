// What every page does: theme, contents that follow, keys, tables that sort, texts to copy.
(() => {
  "use strict";
  const root = document.documentElement;
  const systemDark = window.matchMedia("(prefers-color-scheme: dark)");
  const all = (selector, within) => [...(within || document).querySelectorAll(selector)];

  // ---- theme --------------------------------------------------------------------------------

  const isDark = () => (root.dataset.theme ? root.dataset.theme === "dark" : systemDark.matches);

  function showTheme() {
    for (const button of all(".button.theme")) {
      button.textContent = isDark() ? "Light" : "Dark";
      button.setAttribute("aria-label", isDark() ? "Light colours" : "Dark colours");
    }
  }

  function toggleTheme() {
    root.dataset.theme = isDark() ? "light" : "dark";
    try {
      localStorage.setItem("slipstream-theme", root.dataset.theme);
    } catch {
      // Not remembered, then.
    }
    showTheme();
  }

  // Paper is light; canvases are drawn anew for it.
  let before = null;
  window.addEventListener("beforeprint", () => {
    before = root.dataset.theme || "";
    root.dataset.theme = "light";
  });
  window.addEventListener("afterprint", () => {
    if (before) root.dataset.theme = before;
    else delete root.dataset.theme;
  });

  // ---- contents -----------------------------------------------------------------------------

  const links = new Map(all(".side nav a").map((a) => [a.getAttribute("href").slice(1), a]));
  const sections = all("main > section");

  function current() {
    const line = window.innerHeight * 0.3;
    const end = root.scrollHeight - window.innerHeight - window.scrollY < 4;
    const passed = sections.filter((one) => one.getBoundingClientRect().top <= line);
    return end && window.scrollY > 0 ? sections.at(-1) : passed.at(-1) || sections[0];
  }

  function follow() {
    const here = current();
    for (const [id, link] of links) {
      if (here && id === here.id) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }

  function go(by) {
    const at = sections.indexOf(current());
    const next = sections[Math.max(0, Math.min(at + by, sections.length - 1))];
    if (next) next.scrollIntoView({ block: "start" });
  }

  // ---- keys ---------------------------------------------------------------------------------

  const dialog = document.getElementById("keys");
  const KEYS = { j: () => go(1), k: () => go(-1), t: toggleTheme, "?": () => dialog.showModal() };

  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("input, select, textarea, [role=application], dialog");
    if (busy || event.ctrlKey || event.metaKey || event.altKey || event.defaultPrevented) return;
    const run = KEYS[event.key];
    if (!run) return;
    event.preventDefault();
    run();
  });

  // ---- tables -------------------------------------------------------------------------------

  const collator = new Intl.Collator("en", { numeric: true });

  function valueOf(row, column) {
    const cell = row.cells[column];
    return cell.dataset.v === undefined ? cell.textContent : Number(cell.dataset.v);
  }

  function compare(a, b) {
    if (typeof a === "number" && typeof b === "number") return a - b;
    return collator.compare(String(a), String(b));
  }

  /** Sort by a column; numbers begin with the largest, texts with the first. */
  function sort(button) {
    const head = button.closest("th");
    const table = head.closest("table");
    const column = head.cellIndex;
    const was = head.getAttribute("aria-sort");
    const descending = was ? was === "ascending" : head.classList.contains("n");
    for (const other of all("th[aria-sort]", table)) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", descending ? "descending" : "ascending");
    const body = table.tBodies[0];
    const limit = all("tr:not(.more)", body).length;
    const rows = [...body.rows];
    rows.sort((a, b) => compare(valueOf(a, column), valueOf(b, column)) * (descending ? -1 : 1));
    rows.forEach((row, i) => row.classList.toggle("more", i >= limit));
    body.append(...rows);
  }

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    if (button.matches("table.sortable th button")) sort(button);
    else if (button.matches(".showall[aria-controls]")) showAll(button);
    else if (button.matches(".theme")) toggleTheme();
    else if (button.matches(".keys")) dialog.showModal();
    else if (button.matches("[data-copy]")) copy(button);
  });

  function showAll(button) {
    const table = document.getElementById(button.getAttribute("aria-controls"));
    const shown = table.classList.toggle("all");
    button.setAttribute("aria-expanded", String(shown));
    button.textContent = shown ? "Show fewer" : button.dataset.text;
  }

  // ---- texts to copy ------------------------------------------------------------------------

  async function copy(button) {
    const text = document.getElementById(button.dataset.copy).textContent;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      window.getSelection().selectAllChildren(document.getElementById(button.dataset.copy));
      button.textContent = "Selected";
    }
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  }

  let waiting = 0;
  const soon = () => {
    waiting = waiting || requestAnimationFrame(() => { waiting = 0; follow(); });
  };
  window.addEventListener("scroll", soon, { passive: true });
  window.addEventListener("resize", soon, { passive: true });
  systemDark.addEventListener("change", showTheme);
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });
  showTheme();
  soon();
})();
