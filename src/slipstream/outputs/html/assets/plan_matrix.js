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

    start() {
      const { choices } = this.state;
      this.part.hidden = choices.length < 2;
      if (this.part.hidden) return;
      const [down, across] = this.mostTelling();
      for (const [name, select] of Object.entries(this.selects)) {
        select.replaceChildren(...choices.map((one) => element("option", { value: one.index }, one.name)));
        select.value = String((name === "down" ? down : across).index);
      }
      this.draw();
    }

    /** The two choices that matter most, of those whose values mostly run together. */
    mostTelling() {
      const { choices } = this.state;
      const fitting = this.state.candidates.filter((one) => one.fits && one.rate);
      const spreads = new Map(choices.map((one) => [one, this.spread(one)]));
      const pairs = choices.flatMap((a, i) => choices.slice(i + 1).map((b) => {
        const cells = new Set(fitting.map((one) => `${one.values[a.index]} ${one.values[b.index]}`));
        const worth = (spreads.get(a) + spreads.get(b)) * (cells.size / (a.values.length * b.values.length));
        return { pair: spreads.get(a) >= spreads.get(b) ? [a, b] : [b, a], worth };
      }));
      return pairs.sort((a, b) => b.worth - a.worth)[0].pair;
    }

    /** How much the best throughput depends on a choice. */
    spread({ index, values }) {
      const rates = values.map((_, value) => this.bestOf((one) => one.values[index] === value)?.rate).filter(Boolean);
      return rates.length ? Math.max(...rates) - Math.min(...rates) : 0;
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
        const text = !inside.length ? "not tried" : inside.some((one) => one.fits) ? "filtered out" : this.state.reason(inside);
        return element("td", { class: "none" }, text);
      }
      const part = this.state.relative(best);
      const said = part === null ? "" : Math.abs(part) < 0.0005 ? "best" : signed(part);
      const button = element("button", { type: "button", "data-number": best.number, class: `tint-${this.state.level(best)}` },
        element("b", {}, amount(best.rate)), element("small", {}, said));
      return element("td", {}, button);
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
