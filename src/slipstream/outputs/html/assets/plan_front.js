// Throughput against memory: the front, the limit of memory, and every candidate.
(() => {
  "use strict";
  const { shape, label, drawing, apart, amount, ticks, mark, ramp } = window.SlipstreamPlanDrawing;
  const { bytes } = window.SlipstreamNumbers;
  const TALL = 380;
  const FLAT = 120; // if no candidate has a throughput
  const LEFT = 64;
  const RIGHT = 30;
  const TOP = 26;
  const LOW = 44; // below the plot: numbers and a name
  const ROW = 26; // of those without throughput
  const NEAR_PX = 14;

  class Front {
    constructor(place, state, tip) {
      Object.assign(this, { place, state, tip });
      this.sizes = new ResizeObserver(() => this.width !== place.clientWidth && this.draw());
      this.sizes.observe(place);
      place.addEventListener("pointermove", (event) => this.move(event));
      place.addEventListener("pointerleave", () => this.leave());
      place.addEventListener("click", (event) => this.click(event));
      place.addEventListener("keydown", (event) => this.key(event));
      place.addEventListener("blur", () => this.leave());
    }

    layOut() {
      const { state } = this;
      this.width = this.place.clientWidth;
      this.known = state.candidates.filter((one) => one.memory !== undefined);
      const { capacity, limit } = state.machine;
      this.high = state.mostMemory();
      const rates = this.known.filter((one) => one.rate !== undefined).map((one) => one.rate);
      const [least, high] = rates.length ? [Math.min(...rates), Math.max(...rates)] : [0, 0];
      this.hasRates = high > 0;
      this.low = high > 0 && least > high * 0.3 ? least - (high - least) * 0.15 - high * 0.01 : 0;
      this.top = this.hasRates ? high + (high - this.low) * 0.05 : 1;
      this.hasRow = this.known.some((one) => one.rate === undefined);
      this.limit = limit || capacity;
      this.tall = this.hasRates ? TALL : FLAT;
      this.bottom = this.tall - LOW - (this.hasRow ? ROW : 0);
    }

    x(memory) { return LEFT + (Math.min(memory, this.high) / this.high) * (this.width - LEFT - RIGHT); }

    y(one) {
      return one.rate === undefined ? this.tall - LOW - ROW / 2 + 2 : this.bottom - ((one.rate - this.low) / (this.top - this.low)) * (this.bottom - TOP);
    }

    draw() {
      const { state, place } = this;
      if (!place.clientWidth) return;
      this.svg = null;
      if (!state.candidates.some((one) => one.memory !== undefined)) {
        document.getElementById("front-key").replaceChildren();
        place.replaceChildren("The memory of no candidate on this machine is known.");
        return;
      }
      this.layOut();
      this.dots = shape("g", {});
      this.marks = shape("g", {});
      this.svg = drawing(this.width, this.tall, this.grid(), this.rules(), this.dots, this.frontLine(), this.marks);
      place.replaceChildren(this.svg);
      const has = (status) => this.known.some((one) => one.status === status);
      document.getElementById("front-key").replaceChildren(ramp(state), ...(this.state.machine.pareto.length ? [mark("front", "the front")] : []),
        ...(has("cannot win") ? [mark("bound", "cannot win: at most this throughput, at least this memory")] : []),
        ...(has("does not fit") ? [mark("cross", "does not fit")] : []), mark("selected", "selected"));
      this.refresh();
    }

    grid() {
      const made = shape("g", { class: "grid" });
      for (const value of this.hasRates ? ticks(this.low, this.top, 5) : []) {
        const y = this.y({ rate: value });
        made.append(shape("path", { d: `M${LEFT} ${y}H${this.width - RIGHT}` }), label(LEFT - 8, y + 4, amount(value), { "text-anchor": "end" }));
      }
      const floor = this.tall - LOW;
      for (const value of ticks(0, this.high, Math.max(3, Math.floor(this.width / 110)))) {
        made.append(label(this.x(value), floor + 18, value ? bytes(value) : "0", { "text-anchor": "middle" }));
      }
      made.append(shape("path", { d: `M${LEFT} ${floor}H${this.width - RIGHT}`, class: "floor" }),
        label((LEFT + this.width - RIGHT) / 2, this.tall - 6, "peak memory of a device", { "text-anchor": "middle" }),
        this.hasRates ? label(LEFT, 12, `${this.state.data.unit}/s`, { "text-anchor": "start" }) : "");
      return made;
    }

    /** The limit and the capacity, named where there is room. */
    rules() {
      const { limit, capacity } = this.state.machine;
      const made = shape("g", {});
      const rule = (value, kind, text, anchor, by) => {
        const x = this.x(value);
        made.append(shape("path", { d: `M${x} ${TOP - 8}V${this.tall - LOW}`, class: `rule ${kind}` }),
          label(x + by, TOP - 12, text, { "text-anchor": anchor, class: kind }));
      };
      if (capacity > this.high) {
        const text = `limit ${bytes(limit || capacity)}, far beyond →`;
        made.append(label(this.width - RIGHT, TOP - 12, text, { "text-anchor": "end", class: "limit-rule" }));
        return made;
      }
      if (capacity && limit && limit < capacity) {
        made.append(shape("rect", { x: this.x(limit), y: TOP - 8, width: this.x(capacity) - this.x(limit), height: this.tall - LOW - TOP + 8, class: "margin" }));
        rule(limit, "limit-rule", `limit ${bytes(limit)}`, "end", -4);
      }
      if (capacity) rule(capacity, "", this.width < 560 ? bytes(capacity) : `capacity ${bytes(capacity)}`, "start", limit < capacity ? -2 : 4);
      return made;
    }

    frontLine() {
      const front = this.state.machine.pareto.map((number) => this.state.byNumber.get(number)).filter((one) => one && one.memory !== undefined && one.rate);
      front.sort((a, b) => a.memory - b.memory);
      let d = "";
      front.forEach((one, i) => { d += i ? `H${this.x(one.memory).toFixed(1)}V${this.y(one).toFixed(1)}` : `M${this.x(one.memory).toFixed(1)} ${this.y(one).toFixed(1)}`; });
      if (front.length) d += `H${this.x(Math.max(this.limit || 0, front.at(-1).memory))}`;
      return shape("path", { d, class: "front-line" });
    }

    /** All dots of one colour are one path: lines of no length with round ends. */
    refresh() {
      const { state } = this;
      const paths = new Map();
      for (const one of state.visible) {
        if (one.memory === undefined) continue;
        const [x, y] = [this.x(one.memory), this.y(one)];
        const key = !one.fits && one.status !== "cannot win" ? "cross" : one.fits ? `dots level-${state.level(one)}` : "bound";
        const drawn = { cross: `M${(x - 3).toFixed(1)} ${(y - 3).toFixed(1)}l6 6m0 -6l-6 6`, bound: `M${(x - 3.5).toFixed(1)} ${(y - 3).toFixed(1)}h7l-3.5 6z` };
        paths.set(key, (paths.get(key) || "") + (drawn[key] || `M${x.toFixed(1)} ${y.toFixed(1)}h0`));
      }
      const order = ["cross", "bound", "dots level--1", ...[...Array(8).keys()].map((at) => `dots level-${at}`)];
      this.dots.replaceChildren(...order.filter((key) => paths.has(key)).map((key) => shape("path", { d: paths.get(key), class: key })));
      this.mark();
    }

    mark() {
      if (!this.svg) return;
      const { state } = this;
      const [made, texts] = [[], []];
      const add = (one, kind) => {
        if (!one || one.memory === undefined) return;
        const [x, y] = [this.x(one.memory), this.y(one)];
        made.push(shape("circle", { cx: x, cy: y, r: kind === "hovered" ? 6 : 7, class: `ring ${kind}` }));
        if (kind === "hovered") return;
        const flips = x > LEFT + 110;
        const text = kind === "best" ? `${one.number}, the best` : String(one.number);
        texts.push(label(flips ? x - 11 : x + 11, y - 8, text, { class: `end ${kind}`, "text-anchor": flips ? "end" : "start" }));
      };
      if (state.best && state.matches(state.best)) add(state.best, "best");
      for (const number of state.selected) add(state.byNumber.get(number), "selected");
      if (state.hovered !== null) add(state.byNumber.get(state.hovered), "hovered");
      this.marks.replaceChildren(...made, ...apart(texts));
    }

    // ---- the pointer and the keys -------------------------------------------------------------

    nearest(event) {
      if (!this.svg) return null;
      const box = this.svg.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best = null;
      for (const one of this.state.visible) {
        if (one.memory === undefined) continue;
        const away = Math.hypot(this.x(one.memory) - x, this.y(one) - y);
        if (away <= NEAR_PX && (!best || away < best.away)) best = { one, away };
      }
      return best && best.one;
    }

    move(event) {
      const one = this.nearest(event);
      this.place.classList.toggle("pointing", Boolean(one));
      if (!one) return this.leave();
      this.state.hover(one.number);
      return this.tip.show(one, event.clientX, event.clientY);
    }

    leave() {
      this.place.classList.remove("pointing");
      this.tip.hide();
      this.state.hover(null);
    }

    click(event) {
      const one = this.nearest(event);
      if (one) this.state.toggle(one.number);
    }

    key(event) {
      const by = { ArrowRight: 1, ArrowUp: 1, ArrowLeft: -1, ArrowDown: -1 }[event.key];
      const { state } = this;
      if (event.key === "Enter" && state.hovered !== null) state.toggle(state.hovered);
      else if (by && this.svg) {
        event.preventDefault();
        const order = state.visible.filter((one) => one.memory !== undefined).sort((a, b) => a.memory - b.memory || a.number - b.number);
        if (!order.length) return;
        const at = order.findIndex((one) => one.number === state.hovered);
        const next = at < 0 ? order.find((one) => one === state.best) || order[0] : order[(at + by + order.length) % order.length];
        const box = this.svg.getBoundingClientRect();
        state.hover(next.number);
        this.tip.show(next, box.left + this.x(next.memory), box.top + this.y(next));
      }
    }

    changed(what) {
      if (what === "machine") this.draw();
      else if (what === "filter" && this.svg) this.refresh();
      else this.mark();
    }
  }

  window.SlipstreamPlanFront = Front;
})();
