// The steps of a few candidates side by side: the best, the next ones, and those selected.
(() => {
  "use strict";
  const { element, shape, amount, signed, rateText, stepText } = window.SlipstreamPlanDrawing;
  const { time, bytes, share } = window.SlipstreamNumbers;
  const NEXT = 3;
  const MOST_LIMITS = 5;
  const LEAST_SHARE = 0.03; // of the limits that are listed

  class Steps {
    constructor(place, tools, state) {
      Object.assign(this, { place, tools, state });
      this.start();
      place.addEventListener("click", (event) => {
        const button = event.target.closest("[data-number]");
        if (button) state.toggle(Number(button.dataset.number));
      });
    }

    /** Steps that do different work are compared by the time for the same work. */
    start() {
      const { best, candidates, data } = this.state;
      const works = new Set(candidates.filter((one) => one.parts && one.work).map((one) => one.work));
      this.canScale = Boolean(best && best.work && works.size > 1);
      this.scales = this.canScale;
      this.tools.replaceChildren();
      if (this.canScale) {
        const button = (scales, text) => {
          const made = element("button", { type: "button", "aria-pressed": String(scales === this.scales) }, text);
          made.addEventListener("click", () => {
            this.scales = scales;
            for (const one of made.parentElement.children) one.setAttribute("aria-pressed", String(one === made));
            this.draw();
          });
          return made;
        };
        this.tools.append(element("div", { class: "choice", role: "group", "aria-label": "What the bars show" },
          button(true, `Time for ${amount(best.work)} ${data.unit}`), button(false, "Time of one step")));
      }
      this.draw();
    }

    /** The best and the next ones, one for each program, then those selected. */
    shown() {
      const { state } = this;
      const top = state.candidates.filter((one) => one.fits && one.parts && one.same === undefined && one !== state.best);
      const first = [state.best, ...top].filter(Boolean).slice(0, NEXT);
      const chosen = state.selected.map((number) => state.byNumber.get(number)).filter((one) => !first.includes(one));
      return [...first, ...chosen];
    }

    factor(one) { return this.scales && one.work ? this.state.best.work / one.work : 1; }

    draw() {
      const rows = this.shown();
      const lengths = rows.map((one) => (one.parts ? one.parts.reduce((sum, us) => sum + us, 0) * this.factor(one) : 0));
      const most = Math.max(...lengths, 1e-9);
      const used = this.state.data.parts.filter((_, at) => rows.some((one) => one.parts && one.parts[at] > 0));
      const key = element("ul", { class: "legend" }, ...used.map((name) => element("li", {}, this.swatch(name), element("span", {}, name))));
      this.place.replaceChildren(key, ...rows.map((one, i) => this.row(one, lengths[i], most)));
      this.mark();
    }

    swatch(name) {
      return shape("svg", { class: "key", viewBox: "0 0 10 10", "aria-hidden": "true" }, shape("rect", { width: 10, height: 10, class: this.colour(name) }));
    }

    colour(name) { return `part-${name.toLowerCase().replace(/[^a-z]+/g, "-")} part`; }

    row(one, length, most) {
      const { state } = this;
      const isBest = one === state.best;
      const part = state.relative(one);
      const number = element("button", { type: "button", class: "pick", "data-number": one.number, title: "Select or deselect" }, `Candidate ${one.number}`);
      const name = element("span", { class: "name" }, number, isBest ? " the best" : ` ${state.short(one)}`);
      const figures = [
        one.fits ? "" : one.status,
        one.rate !== undefined ? rateText(one, state.data.unit) : "",
        part !== null && !isBest && one.fits ? signed(part) : "",
        one.memory !== undefined ? bytes(one.memory) : "",
      ].filter(Boolean).join(" · ");
      const head = element("div", { class: "step-head" }, name, element("span", { class: "amount" }, figures));
      return element("div", { class: "step-row", "data-row": one.number }, head, this.bar(one, length, most), this.limits(one),
        one.flags ? element("p", { class: "note c" }, one.flags.join(" ")) : null);
    }

    bar(one, length, most) {
      if (!one.parts) return element("p", { class: "note" }, [one.status, one.why].filter(Boolean).join(": "));
      const whole = one.parts.reduce((sum, us) => sum + us, 0) || 1;
      let at = 0;
      const said = [];
      const boxes = one.parts.flatMap((us, i) => {
        if (!(us > 0)) return [];
        const name = this.state.data.parts[i];
        const text = `${name} ${time(us * this.factor(one))}, ${share(us / whole, 0)}`;
        said.push(text);
        const wide = (1000 * us * this.factor(one)) / most;
        at += wide;
        return [shape("rect", { x: at - wide, width: Math.max(wide, 0), height: 10, class: this.colour(name) }, shape("title", {}, text))];
      });
      const drawn = shape("svg", { class: "bar", viewBox: "0 0 1000 10", preserveAspectRatio: "none", role: "img", "aria-label": `Candidate ${one.number}: ${said.join("; ")}` }, ...boxes);
      const band = one.low && one.high && !this.scales ? ` (${time(one.low)} … ${time(one.high)})` : "";
      return element("div", { class: "step-bar" }, drawn, element("b", {}, `${time(length)}${band}`));
    }

    limits(one) {
      if (!one.limits) return one.parts || !one.us ? null : element("p", { class: "note" }, `Step: ${stepText(one)}`);
      const shown = one.limits.filter(([kind, part]) => part >= (kind === "memory" ? 0.5 : LEAST_SHARE)).slice(0, MOST_LIMITS);
      return element("ul", { class: "limits" }, ...shown.map(([kind, part, text]) =>
        element("li", {}, element("b", {}, `${kind} ${share(part, 0)}`), text ? ` ${text}` : "")));
    }

    mark() {
      for (const row of this.place.querySelectorAll("[data-row]")) {
        const number = Number(row.dataset.row);
        row.classList.toggle("selected", this.state.selected.includes(number));
        row.classList.toggle("hovered", this.state.hovered === number);
      }
    }

    changed(what) {
      if (what === "machine") this.start();
      else if (what === "selection") this.draw();
      else if (what === "hover") this.mark();
    }
  }

  window.SlipstreamPlanSteps = Steps;
})();
