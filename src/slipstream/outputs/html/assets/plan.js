// Puts a plan's page together: its views, the bar of machine, filters and selection, the address.
//
// The part of the address after `#` is a section, the machine, and the selected candidates:
// `#steps&on=1&c=10,25`. It can be sent to a colleague.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { element, Tip } = window.SlipstreamPlanDrawing;
  const { bytes } = window.SlipstreamNumbers;
  const state = new window.SlipstreamPlanState(data);
  const tip = new Tip(state);
  const byId = (id) => document.getElementById(id);
  const views = [];

  function mount(id, make) {
    const place = byId(id);
    if (place) views.push(make(place));
  }

  mount("axes", (place) => new window.SlipstreamPlanAxes(place, state, tip));
  mount("matrix-part", (part) => new window.SlipstreamPlanMatrix(part, state));
  mount("front-plot", (place) => new window.SlipstreamPlanFront(place, state, tip));
  mount("steps-view", (place) => new window.SlipstreamPlanSteps(place, byId("steps-tools"), state));
  mount("scaling-plot", (place) => new window.SlipstreamPlanScaling(place, state));
  mount("plan-table", (table) => new window.SlipstreamPlanTable(table, state));

  // ---- the bar --------------------------------------------------------------------------------

  const bar = element("div", { class: "planbar" });
  const machines = element("div", { class: "choice", role: "group", "aria-label": "Machine" });
  const filters = element("div", { class: "planbar-part", role: "status" });
  const selection = element("div", { class: "planbar-part" });
  bar.append(machines, filters, selection);
  document.querySelector("main > section").before(bar);

  function filterTexts() {
    const texts = [];
    if (state.hidesFailed) texts.push("only those that fit");
    for (const [axis, wanted] of state.filters) {
      if (axis === "rate" && wanted.groups) texts.push([...wanted.groups].join(", "));
      else if (axis === "rate" || axis === "memory") {
        const shown = axis === "memory" ? bytes : window.SlipstreamPlanDrawing.amount;
        texts.push(`${axis === "rate" ? `${data.unit}/s` : axis} ${shown(wanted.low)} … ${shown(wanted.high)}`);
      } else texts.push(`${data.names[axis]} ${[...wanted].map((value) => state.machine.values[axis][value]).join(", ")}`);
    }
    return texts;
  }

  function button(text, label, run) {
    const made = element("button", { type: "button", class: "button", "aria-label": label }, text);
    made.addEventListener("click", run);
    return made;
  }

  function showBar() {
    const texts = filterTexts();
    filters.replaceChildren(...(texts.length
      ? [`${state.visible.length} of ${state.candidates.length}: ${texts.join(" · ")} `, button("Clear", "Clear filters", () => state.clearFilters())]
      : []));
    selection.replaceChildren(...(state.selected.length
      ? ["Selected ", ...state.selected.map((number) => button(`${number} ×`, `Deselect candidate ${number}`, () => state.toggle(number))),
        button("Clear", "Clear the selection", () => state.select([]))]
      : []));
    machines.hidden = data.machines.length < 2;
    bar.hidden = machines.hidden && !texts.length && !state.selected.length;
    document.documentElement.style.scrollPaddingTop = bar.hidden ? "" : `${bar.offsetHeight + 12}px`;
  }

  function showMachine(at) {
    state.showMachine(at);
    for (const panel of document.querySelectorAll("[data-machine]")) panel.hidden = Number(panel.dataset.machine) !== at;
    [...machines.children].forEach((one, i) => one.setAttribute("aria-pressed", String(i === at)));
    state.tell("machine");
  }

  data.machines.forEach((machine, at) => {
    const made = element("button", { type: "button", "aria-pressed": String(at === data.first) }, machine.name);
    made.addEventListener("click", () => showMachine(at));
    machines.append(made);
  });

  // ---- the address ----------------------------------------------------------------------------

  let section = "";

  function write() {
    const parts = [section, state.at !== data.first ? `on=${state.at}` : "", state.selected.length ? `c=${state.selected.join(",")}` : ""];
    const hash = parts.filter(Boolean).join("&");
    history.replaceState(null, "", hash ? `#${hash}` : location.pathname + location.search);
  }

  function read() {
    const parts = location.hash.slice(1).split("&").filter(Boolean);
    const value = (key) => parts.find((one) => one.startsWith(`${key}=`))?.slice(key.length + 1);
    section = parts.find((one) => !one.includes("=")) || "";
    const at = Number(value("on") ?? data.first);
    if (at !== state.at && data.machines[at]) showMachine(at);
    const numbers = (value("c") || "").split(",").filter(Boolean).map(Number);
    if (numbers.length || value("on") !== undefined) state.select(numbers);
    const place = section && byId(section);
    if (place && parts.length > 1) place.scrollIntoView({ block: "start", behavior: "instant" });
  }

  document.querySelector(".side nav").addEventListener("click", (event) => {
    const link = event.target.closest("a");
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    section = link.getAttribute("href").slice(1);
    write();
    byId(section).scrollIntoView({ block: "start" });
  });

  document.addEventListener("click", (event) => {
    const picked = event.target.closest("[data-pick]");
    if (picked) state.toggle(Number(picked.dataset.pick));
  });

  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("input, select, textarea, dialog");
    if (busy || event.ctrlKey || event.metaKey || event.altKey) return;
    const search = byId("plan-search");
    if (event.key === "/" && search) {
      event.preventDefault();
      search.focus();
      search.scrollIntoView({ block: "center" });
    } else if (event.key === "Escape" && state.selected.length) state.select([]);
  });

  state.listen((what) => {
    for (const view of views) view.changed(what);
    if (what !== "hover") showBar();
    if (what === "machine" || what === "selection") write();
    for (const picked of document.querySelectorAll("[data-pick]")) {
      picked.setAttribute("aria-pressed", String(state.selected.includes(Number(picked.dataset.pick))));
    }
  });
  for (const view of views) view.changed("machine");
  showBar();
  read();
  window.addEventListener("hashchange", read);
  window.SlipstreamPlan = { state, views };
  document.documentElement.dataset.ready = "true";
})();
