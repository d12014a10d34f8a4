// All candidates in a table: sorted, searched, filtered by status.
(() => {
  "use strict";
  const { element, amount, signed, isBound } = window.SlipstreamPlanDrawing;
  const { time, bytes } = window.SlipstreamNumbers;
  const FIRST = 20;
  const MORE = 200;
  const collator = new Intl.Collator("en", { numeric: true });

  class Table {
    constructor(table, state) {
      Object.assign(this, { table, state, limit: FIRST });
      this.search = document.getElementById("plan-search");
      this.status = document.getElementById("plan-status");
      this.count = document.getElementById("plan-count");
      this.more = document.getElementById("plan-more");
      this.search.addEventListener("input", () => { this.limit = FIRST; this.draw(); });
      this.status.addEventListener("change", () => { this.limit = FIRST; this.draw(); });
      this.more.addEventListener("click", () => { this.limit += MORE; this.draw(); });
      table.tHead.addEventListener("click", (event) => this.sort(event.target.closest("[data-sort]")));
      table.tBodies[0].addEventListener("click", (event) => this.pick(event));
      table.tBodies[0].addEventListener("pointerover", (event) => {
        const row = event.target.closest("tr");
        state.hover(row ? Number(row.dataset.number) : null);
      });
      table.tBodies[0].addEventListener("pointerleave", () => state.hover(null));
      this.start();
    }

    start() {
      const { state } = this;
      const hasMeasured = state.candidates.some((one) => one.predicted !== undefined);
      const relative = (one) => (one.fits ? state.relative(one) : null);
      const number = (name, title, value, cell, wide) => ({ name, title, value, cell, classes: wide ? "n w" : "n" });
      this.columns = [
        number("number", "#", (one) => one.number, (one) => [element("button", { type: "button", class: "pick", "aria-label": `Select candidate ${one.number}` }, String(one.number))]),
        ...state.choices.map(({ name, index }) => ({
          name: `choice-${index}`, title: name, classes: "w v", value: (one) => one.values[index], cell: (one) => [state.value(one, index)], ascending: true,
        })),
        number("rate", `${state.data.unit}/s`, (one) => (one.fits ? one.rate : undefined), (one) => [one.rate === undefined ? "–" : isBound(one) ? `≤ ${amount(one.rate)}` : amount(one.rate)]),
        number("relative", "vs best", relative, (one) => [relative(one) === null ? "–" : one === state.best ? "best" : signed(relative(one))]),
        number("step", "Step", (one) => one.us, (one) => [one.us === undefined ? "–" : isBound(one) ? `≥ ${time(one.us)}` : this.step(one)], true),
        ...(hasMeasured ? [number("predicted", "Predicted", (one) => one.predicted, (one) => [this.predicted(one)])] : []),
        number("memory", "Memory", (one) => one.memory, (one) => [one.memory === undefined ? "–" : `${one.basis === "bound" ? "≥ " : ""}${bytes(one.memory)}`], true),
        { name: "status", title: "Status", classes: "why", value: (one) => one.status, cell: (one) => this.why(one), ascending: true },
      ];
      this.sorted = { by: "rate", descending: true };
      this.limit = FIRST;
      this.heads();
      const counts = new Map();
      for (const one of state.candidates) counts.set(one.status, (counts.get(one.status) || 0) + 1);
      this.status.replaceChildren(element("option", { value: "" }, "All statuses"),
        ...[...counts].map(([status, count]) => element("option", { value: status }, `${status} (${count})`)));
      this.draw();
    }

    heads() {
      const cells = this.columns.map((column) => element("th", { class: column.classes, scope: "col", "data-column": column.name },
        element("button", { type: "button", "data-sort": column.name }, column.title)));
      this.table.tHead.replaceChildren(element("tr", {}, ...cells));
    }

    // ---- cells --------------------------------------------------------------------------------

    step(one) {
      const spread = one.low && one.high ? element("small", {}, `${time(one.low)} … ${time(one.high)}`) : null;
      return element("span", {}, time(one.us), spread);
    }

    predicted(one) {
      if (one.predicted === undefined) return "–";
      return element("span", {}, time(one.predicted), element("small", {}, `${signed(one.predicted / one.us - 1)} off`));
    }

    why(one) {
      const { state } = this;
      const named = { ok: one.basis === "measured" ? "measured" : "fits" }[one.status] || one.status;
      const [first] = one.limits || [];
      const said = one.why || (first ? `${first[0]} ${Math.round(100 * first[1])}%${first[2] ? `, ${first[2]}` : ""}` : "");
      const text = one.same !== undefined ? `as candidate ${one.same}` : said;
      const choices = element("small", { class: "narrow" }, state.pairs(one).map((pair) => pair.join(" ")).join(" · "));
      return [element("span", { class: one.fits ? "" : "dim" }, named), state.machine.ties.includes(one.number) && state.machine.ties.length > 1 ? element("span", { class: "badge" }, "tie") : null,
        state.machine.pareto.includes(one.number) ? element("span", { class: "badge" }, "front") : null, text ? element("small", { class: "clamp", title: text }, text) : null, choices];
    }

    text(one) {
      const pairs = this.state.data.names.map((name, index) => `${name}=${this.state.value(one, index)}`);
      return [`#${one.number}`, ...pairs, one.status, one.why || "", one.basis].join(" ").toLowerCase();
    }

    // ---- rows ---------------------------------------------------------------------------------

    found() {
      const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const wanted = this.status.value;
      const rows = this.state.visible.filter((one) => (!wanted || one.status === wanted) && (!words.length || words.every((word) => this.text(one).includes(word))));
      const { value } = this.columns.find((column) => column.name === this.sorted.by);
      const sign = this.sorted.descending ? -1 : 1;
      const order = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
      const known = rows.filter((one) => value(one) !== undefined && value(one) !== null);
      const unknown = rows.filter((one) => value(one) === undefined || value(one) === null);
      return [...known.sort((a, b) => sign * order(value(a), value(b)) || a.number - b.number), ...unknown];
    }

    draw() {
      const rows = this.found();
      for (const head of this.table.querySelectorAll("th")) {
        if (head.dataset.column === this.sorted.by) head.setAttribute("aria-sort", this.sorted.descending ? "descending" : "ascending");
        else head.removeAttribute("aria-sort");
      }
      this.table.tBodies[0].replaceChildren(...rows.slice(0, this.limit).map((one) => this.row(one)));
      const all = this.state.candidates.length;
      this.count.textContent = rows.length === all ? "" : rows.length ? `${rows.length} of ${all}` : "no matches";
      this.more.hidden = rows.length <= this.limit;
      this.more.textContent = `Show ${Math.min(MORE, rows.length - this.limit)} more of ${rows.length}`;
      this.mark();
    }

    row(one) {
      const cells = this.columns.map((column) => element("td", { class: column.classes }, ...column.cell(one)));
      return element("tr", { "data-number": one.number, class: one.fits ? "" : "failed" }, ...cells);
    }

    sort(button) {
      if (!button) return;
      const by = button.dataset.sort;
      const column = this.columns.find((one) => one.name === by);
      this.sorted = { by, descending: this.sorted.by === by ? !this.sorted.descending : !column.ascending };
      this.draw();
    }

    pick(event) {
      const row = event.target.closest("tr");
      // Marking text is no click.
      if (row && !String(window.getSelection())) this.state.toggle(Number(row.dataset.number));
    }

    mark() {
      for (const row of this.table.tBodies[0].rows) {
        const number = Number(row.dataset.number);
        const selected = this.state.selected.includes(number);
        row.classList.toggle("selected", selected);
        row.classList.toggle("hovered", this.state.hovered === number);
        row.querySelector(".pick").setAttribute("aria-pressed", String(selected));
      }
    }

    changed(what) {
      if (what === "machine") this.start();
      else if (what === "filter") this.draw();
      else this.mark();
    }
  }

  window.SlipstreamPlanTable = Table;
})();
