// The ops of a report: the map, the table, and the details of an op.
(() => {
  "use strict";
  const FIRST = 15;
  const MORE = 200;
  const SOME = 6;

  const { time, bytes, share, flops } = window.SlipstreamNumbers;
  const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 2 });

  // ---- details of an op ---------------------------------------------------------------------

  const nameOf = (op) => op.text || op.instruction;
  const isLoose = (op) => op.instruction === "unattributed";

  /** [label, value] pairs that describe an op. */
  function about(op) {
    const rows = [];
    const add = (label, value) => { if (value !== undefined && value !== "") rows.push([label, value]); };
    add("instruction", isLoose(op) ? "none: belongs to no instruction" : op.instruction);
    if (op.equals) add("equals", `${op.equals.length} in all: ${op.equals.slice(0, SOME).join(", ")}${op.equals.length > SOME ? ", …" : ""}`);
    add("program", op.program);
    add("phase", op.phase);
    add("scope", op.scope);
    add("category", op.category);
    add("cost", `${time(op.us)} per step, ${share(op.share)} of device time`);
    add("runs", `${whole.format(op.count)} per step`);
    if (op.exposed !== undefined) {
      add("exposed", `${time(op.exposed)} of ${time(op.us)}`);
      if (op.by) add("hidden by", op.by.map(([name, us]) => `${name} ${time(us)}`).join(", "));
    }
    if (op.slack !== undefined) {
      add("slack", `${op.slack < 5 ? "none" : time(op.slack)}${op.until ? `; needed by ${op.until}` : ""}`);
      add("waits for", op.after);
    }
    if (op.bytes !== undefined) add("moves", bytes(op.bytes));
    if (op.bus !== undefined) {
      add("bus bandwidth", `${bytes(op.bus)}/s${op.link !== undefined ? `, ${share(op.link, 0)} of the link` : ""}`);
    }
    if (op.roof !== undefined) {
      add("roofline", `${share(op.roof, 0)} of the roof, ${op.bound}-bound`);
      add("work", `${flops(op.flops)}, ${bytes(op.traffic)} read and written`);
    }
    return rows;
  }

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children.filter((child) => child !== null && child !== undefined));
    return made;
  }

  /** The last names of a scope; the whole is in its details. */
  function ending(scope) {
    const names = scope.split("/");
    return names.length > 2 ? `…/${names.slice(-2).join("/")}` : scope;
  }

  /** A path that may be broken after its slashes. */
  const breakable = (path) => path.split("/").flatMap((name, i) => (i ? ["/", element("wbr", {}), name] : [name]));

  // ---- the map ------------------------------------------------------------------------------

  const PRODUCTS = ["matmul", "attention", "convolution"];
  const KINDS = { "host copy": "copy", copy: "copy", unattributed: "rest" };
  const kindOf = (op) => op.kind || KINDS[op.category] || "compute";

  const PATHS = {
    scope: (op) => (op.scope ? op.scope.split("/") : ["(no scope)"]),
    phase: (op) => [op.phase || "other"],
    source: (op) => (op.source ? [op.source.split(":")[0], op.source] : ["(no source)"]),
    category: (op) => [op.category || "other"],
  };

  /** `table` has the ops, equal ones as one or each; a leaf leads to its row. */
  function mountMap(table, by, onLeaf) {
    const map = document.getElementById("map");
    if (!map) return;
    const options = { path: document.getElementById("map-path"), onLeaf, text: time, share };
    const tree = window.SlipstreamTreemap.mount(map, options);
    const rolled = (op) => (table.ops === table.groups && op.rolled ? { ...op, scope: op.rolled } : op);
    const items = (way) => table.ops.map(({ op, index }) => ({
      path: PATHS[way](rolled(op)), title: op.equals ? `${op.equals.length} × ${nameOf(op)}` : nameOf(op), value: op.us, index,
      kind: PRODUCTS.includes(op.category) ? "product" : kindOf(op),
    }));
    let way = by;
    table.onList = () => tree.show(items(way));
    const shapes = [...document.querySelectorAll(".choice [data-shape]")];
    for (const button of shapes) {
      button.addEventListener("click", () => {
        for (const one of shapes) one.setAttribute("aria-pressed", String(one === button));
        tree.shape(button.dataset.shape === "icicle");
      });
    }
    const buttons = [...document.querySelectorAll(".choice [data-by]")];
    for (const button of buttons) {
      button.addEventListener("click", () => {
        for (const one of buttons) one.setAttribute("aria-pressed", String(one === button));
        way = button.dataset.by;
        tree.show(items(way));
      });
    }
    tree.show(items(way));
  }

  // ---- the table ----------------------------------------------------------------------------

  const SORTS = {
    op: (op) => nameOf(op).toLowerCase(), scope: (op) => op.scope || "", phase: (op) => op.phase || "",
    category: (op) => op.category || "", source: (op) => op.source || "", count: (op) => op.count,
    roof: (op) => op.roof ?? -1, exposed: (op) => op.exposed ?? -1, time: (op) => op.us, share: (op) => op.share,
  };
  const collator = new Intl.Collator("en", { numeric: true });

  const withEquals = (op) => (op.equals ? `${op.instruction} and ${op.equals.length - 1} like it` : op.instruction);

  /** Ops of one group as one: sums, and the roof that they reach together. */
  function together(ops) {
    const sum = (key) => (ops.every((op) => op[key] === undefined) ? undefined : ops.reduce((total, op) => total + (op[key] || 0), 0));
    const us = sum("us");
    const roof = ops.some((op) => op.roof === undefined) ? undefined : ops.reduce((total, op) => total + op.roof * op.us, 0) / us;
    return {
      ...ops[0], us, roof, count: sum("count"), share: sum("share"), exposed: sum("exposed"), flops: sum("flops"),
      traffic: sum("traffic"), bytes: sum("bytes"), by: undefined, slack: undefined, bus: undefined,
      equals: ops.map((op) => op.instruction), scope: ops[0].rolled || ops[0].scope,
    };
  }

  /** Rows of a table, equal ops as one; a row has the index of its first op. */
  function merged(rows) {
    const groups = new Map();
    for (const row of rows) {
      const key = row.op.group === undefined ? `op ${row.index}` : row.op.group;
      groups.set(key, [...(groups.get(key) || []), row]);
    }
    return [...groups.values()].map((same) => (same.length === 1 ? same[0] : {
      op: together(same.map((row) => row.op)), index: same[0].index, text: same.map((row) => row.text).join(" "),
    }));
  }

  class OpsTable {
    constructor(table, ops, onTimeline) {
      this.table = table;
      this.body = table.tBodies[0];
      this.onTimeline = onTimeline;
      this.each = ops.map((op, index) => ({
        op, index, text: [op.text, op.instruction, op.scope, op.phase, op.category, op.source, op.program].join(" ").toLowerCase(),
      }));
      this.groups = merged(this.each);
      this.ops = this.groups;
      this.flat = document.getElementById("ops-each");
      this.flat?.addEventListener("click", () => this.list(this.ops === this.groups));
      this.heads = [...table.querySelectorAll("[data-sort]")];
      this.columns = this.heads.map((head) => head.dataset.sort);
      this.sorted = { by: "time", descending: true };
      this.limit = FIRST;
      this.open = new Set();
      this.search = document.getElementById("ops-search");
      this.state = document.getElementById("ops-state");
      this.more = document.getElementById("ops-more");
      this.most = Math.max(...this.groups.map((row) => row.op.share), 1e-12);
      this.search.addEventListener("input", () => { this.limit = FIRST; this.draw(); });
      this.more.addEventListener("click", () => { this.limit += MORE; this.draw(); });
      for (const head of this.heads) head.addEventListener("click", () => this.sort(head.dataset.sort));
      this.body.addEventListener("click", (event) => this.click(event));
      this.draw();
    }

    /** Each op, or equal ones as one. */
    list(isFlat) {
      this.ops = isFlat ? this.each : this.groups;
      this.flat?.setAttribute("aria-pressed", String(isFlat));
      this.onList?.();
      this.draw();
    }

    sort(by) {
      const again = this.sorted.by === by;
      const numeric = ["count", "roof", "exposed", "time", "share"].includes(by);
      this.sorted = { by, descending: again ? !this.sorted.descending : numeric };
      this.draw();
    }

    found() {
      const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
      const rows = this.ops.filter((row) => words.every((word) => row.text.includes(word)));
      const value = SORTS[this.sorted.by];
      const sign = this.sorted.descending ? -1 : 1;
      const order = (a, b) => (typeof a === "number" ? a - b : collator.compare(a, b));
      return rows.sort((a, b) => sign * order(value(a.op), value(b.op)) || a.index - b.index);
    }

    draw() {
      const rows = this.found();
      for (const head of this.heads) {
        const cell = head.closest("th");
        if (head.dataset.sort === this.sorted.by) {
          cell.setAttribute("aria-sort", this.sorted.descending ? "descending" : "ascending");
        } else cell.removeAttribute("aria-sort");
      }
      this.body.replaceChildren(...rows.slice(0, this.limit).flatMap((row) => this.row(row)));
      const us = rows.reduce((sum, row) => sum + row.op.us, 0);
      const all = this.ops.length === rows.length;
      this.state.textContent = rows.length
        ? all ? "" : `${rows.length} of ${this.ops.length}, ${time(us)}`
        : "no matches";
      this.more.hidden = rows.length <= this.limit;
      this.more.textContent = `Show ${Math.min(MORE, rows.length - this.limit)} more of ${rows.length}`;
    }

    row({ op, index }) {
      const cells = {
        op: () => [element("button", { class: "name", type: "button", "aria-expanded": String(this.open.has(index)) },
          nameOf(op), op.text && !isLoose(op) ? element("small", { class: "c sub" }, withEquals(op)) : null)],
        scope: () => [element("span", { title: op.scope || "" }, ...breakable(ending(op.scope || "")))], phase: () => [op.phase || ""], category: () => [op.category || ""],
        source: () => [element("span", { class: "c at" }, op.source || "")],
        count: () => [whole.format(op.count)],
        roof: () => [op.roof === undefined ? "–" : share(op.roof, 0)],
        exposed: () => [op.exposed === undefined ? "–" : time(op.exposed)],
        time: () => [time(op.us)],
        share: () => [element("span", { class: "share" }, meter(op.share / this.most, kindOf(op)), share(op.share))],
      };
      const classes = { source: "w", scope: "w scope", phase: "w", category: "w", count: "n w", roof: "n w", exposed: "n w", time: "n", share: "n" };
      const row = element("tr", { "data-op": index }, ...this.columns.map((column) =>
        element("td", classes[column] ? { class: classes[column] } : {}, ...cells[column]())));
      if (!this.open.has(index)) return [row];
      row.className = "open";
      return [row, this.about(op, index)];
    }

    about(op, index) {
      const list = element("dl", { class: "pairs" });
      if (op.source) list.append(element("dt", {}, "source"), element("dd", {}, element("code", {}, op.source)));
      for (const [label, value] of about(op)) list.append(element("dt", {}, label), element("dd", {}, String(value)));
      const go = this.onTimeline && element("button", { class: "button", type: "button", "data-go": index }, "Show in the timeline");
      return element("tr", { class: "about" }, element("td", { colspan: this.columns.length }, list, go));
    }

    click(event) {
      const go = event.target.closest("[data-go]");
      if (go) return this.onTimeline(Number(go.dataset.go));
      const name = event.target.closest(".name");
      if (!name) return undefined;
      const index = Number(name.closest("tr").dataset.op);
      if (!this.open.delete(index)) this.open.add(index);
      this.draw();
      return this.body.querySelector(`[data-op="${index}"] .name`).focus({ preventScroll: true });
    }

    /** Show one op and its details. */
    reveal(index) {
      this.search.value = "";
      if (!this.ops.some((row) => row.index === index)) this.list(true);
      this.open = new Set([index]);
      const at = this.found().findIndex((row) => row.index === index);
      this.limit = Math.max(this.limit, at + 1);
      this.draw();
      const name = this.body.querySelector(`[data-op="${index}"] .name`);
      name.scrollIntoView({ block: "center" });
      name.focus({ preventScroll: true });
    }
  }

  function meter(part, kind) {
    const space = "http://www.w3.org/2000/svg";
    const made = document.createElementNS(space, "svg");
    made.setAttribute("viewBox", "0 0 100 10");
    made.setAttribute("preserveAspectRatio", "none");
    made.setAttribute("class", "bar slim");
    made.setAttribute("aria-hidden", "true");
    const fill = document.createElementNS(space, "rect");
    fill.setAttribute("width", String(100 * part));
    fill.setAttribute("height", "10");
    fill.setAttribute("class", `fill-${kind === "rest" ? "idle" : kind}`);
    made.append(fill);
    return made;
  }

  window.SlipstreamOps = { about, nameOf, kindOf, mountMap, OpsTable };
})();
