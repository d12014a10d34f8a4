// Two choices as a matrix: the best throughput with both values, whatever the others.
(() => {
  "use strict";
  const { element, amount, signed } = window.SlipstreamPlanDrawing;

  class Matrix {
    constructor(part, state) {
      Object.assign(this, { part, state });
      this.place = part.querySelector("#matrix");
      this.selects = { down: part.querySelector("#matrix-down"), across: part.querySelector("#matrix-across") };
      for (const select of Object.values(this.selects)) select.addEventListener("change", () => this.choose(select));
      this.place.addEventListener("click", (event) => {
        const cell = event.target.closest("[data-number]");
        if (cell) state.toggle(Number(cell.dataset.number));
      });
      this.start();
    }

    /** The two choices that matter most: the widest spread of the best throughput by value. */
    start() {
      const { choices } = this.state;
      this.part.hidden = choices.length < 2;
      if (this.part.hidden) return;
      const bySpread = [...choices].sort((a, b) => this.spread(b) - this.spread(a));
      for (const [name, select] of Object.entries(this.selects)) {
        select.replaceChildren(...choices.map((one) => element("option", { value: one.index }, one.name)));
        select.value = String(bySpread[name === "down" ? 0 : 1].index);
      }
      this.draw();
    }

    spread({ index, values }) {
      const rates = values.map((_, value) => this.bestOf((one) => one.values[index] === value)?.rate || 0);
      return Math.max(...rates) - Math.min(...rates);
    }

    /** Candidates come the best first. */
    bestOf(wanted) { return this.state.candidates.find((one) => one.fits && one.rate && wanted(one)); }

    /** The same choice twice means that the two change places. */
    choose(select) {
      const other = select === this.selects.down ? this.selects.across : this.selects.down;
      if (other.value === select.value) other.value = String(this.before[select.id]);
      this.draw();
    }

    draw() {
      if (this.part.hidden) return;
      const { choices } = this.state;
      const [down, across] = ["down", "across"].map((name) => choices.find((one) => String(one.index) === this.selects[name].value));
      this.before = { "matrix-down": down.index, "matrix-across": across.index };
      const corner = element("td", { class: "corner" }, `${down.name} ↓  ${across.name} →`);
      const head = element("tr", {}, corner, ...across.values.map((text) => element("th", { scope: "col" }, text)));
      const rows = down.values.map((text, i) => element("tr", {}, element("th", { scope: "row" }, text),
        ...across.values.map((_, j) => this.cell(down.index, i, across.index, j))));
      this.place.replaceChildren(element("table", { class: "matrix", "aria-label": `${down.name} by ${across.name}` },
        element("thead", {}, head), element("tbody", {}, ...rows.reverse())));
      this.mark();
    }

    cell(down, i, across, j) {
      const inside = this.state.candidates.filter((one) => one.values[down] === i && one.values[across] === j);
      const best = inside.find((one) => one.fits && one.rate && this.state.matches(one));
      if (!best) {
        const text = !inside.length ? "not tried" : inside.some((one) => one.fits) ? "filtered out" : this.reason(inside);
        return element("td", { class: "none" }, text);
      }
      const part = this.state.relative(best);
      const said = part === null ? "" : Math.abs(part) < 0.0005 ? "best" : signed(part);
      const button = element("button", { type: "button", "data-number": best.number, class: `tint-${this.state.level(best)}` },
        element("b", {}, amount(best.rate)), element("small", {}, said));
      return element("td", {}, button);
    }

    /** What most of those in a cell failed by. */
    reason(inside) {
      const counts = new Map();
      for (const one of inside) counts.set(one.status, (counts.get(one.status) || 0) + 1);
      return [...counts].sort((a, b) => b[1] - a[1])[0][0];
    }

    mark() {
      for (const button of this.place.querySelectorAll("[data-number]")) {
        const number = Number(button.dataset.number);
        button.setAttribute("aria-pressed", String(this.state.selected.includes(number)));
        button.classList.toggle("hovered", this.state.hovered === number);
      }
    }

    changed(what) {
      if (what === "machine") this.start();
      else if (what === "filter") this.draw();
      else this.mark();
    }
  }

  window.SlipstreamPlanMatrix = Matrix;
})();
