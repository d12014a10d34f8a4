// Choices against throughput: one axis for each choice, one line for each candidate.
//
// A choice's axis has a box for each value. Lines go through the box in the order of their
// throughput, so that a box shows at a glance how well its value can do. All lines of one colour are
// one path: thousands of candidates stay quick.
//
//      tensor     remat      memory   throughput
//      ┌───┐══════┌─────┐
//      │ 2 │──┐ ┌═│ full│══════╪═══════╪
//      ├───┤  ╳   ├─────┤──────┼───────┼
//      │ 1 │══┘ └─│ dots│              │ does not fit
(() => {
  "use strict";
  const { element, shape, drawing, apart, amount, signed, ticks, mark, ramp } = window.SlipstreamPlanDrawing;
  const { bytes } = window.SlipstreamNumbers;
  const TOP = 34;
  const BOX = 22; // least height of a value's box
  const ROOM = 84; // least width of an axis
  const NEAR_PX = 9;
  const PAPER_PX = 680; // width of a page's text on A4
  const GROUPS = ["not known", "does not fit", "cannot win", "failed"];

  class Axes {
    constructor(place, state, tip) {
      Object.assign(this, { place, state, tip });
      this.sizes = new ResizeObserver(() => this.width !== place.clientWidth && this.draw());
      this.sizes.observe(place);
      place.addEventListener("pointermove", (event) => this.move(event));
      place.addEventListener("pointerleave", () => this.leave());
      place.addEventListener("click", (event) => this.click(event));
      window.addEventListener("beforeprint", () => this.zoom(Math.min(1, PAPER_PX / this.wide)));
      window.addEventListener("afterprint", () => this.zoom(1));
    }

    // ---- where things are ---------------------------------------------------------------------

    layOut() {
      const { state, place } = this;
      this.width = place.clientWidth;
      const most = Math.max(4, ...state.choices.map((one) => one.values.length));
      this.groups = GROUPS.filter((group) => state.candidates.some((one) => state.group(one) === group));
      this.tall = Math.max(340, most * (BOX + 4));
      const hasMemory = state.candidates.some((one) => one.memory !== undefined);
      const kinds = [...state.choices.map((choice) => ({ choice })), ...(hasMemory ? [{ key: "memory" }] : []), { key: "rate" }];
      const room = Math.max(ROOM, Math.floor((this.width - 70) / kinds.length));
      this.wide = Math.max(this.width, room * kinds.length + 70);
      this.axes = kinds.map((kind, at) => ({ ...kind, x: room * (at + 0.5) + (at === kinds.length - 1 ? 14 : 0), room }));
      this.half = Math.min(36, room * 0.34);
      this.paths = new Map();
      this.ys = new Map(state.candidates.map((one) => [one.number, []]));
      for (const [at, axis] of this.axes.entries()) {
        if (axis.choice) this.layOutValues(axis, at);
        else this.layOutRange(axis, at);
      }
    }

    /** A box for each value, the largest on top; its candidates in it, the best on top. */
    layOutValues(axis, at) {
      const { state } = this;
      const { values, index } = axis.choice;
      const each = this.tall / values.length;
      axis.boxes = values.map((text, value) => {
        const box = { text, value, y: TOP + (values.length - 1 - value) * each, tall: each - 4 };
        const inside = state.candidates.filter((one) => one.values[index] === value);
        this.spread(inside, box, at);
        return { ...box, inside };
      });
      this.spread(state.candidates.filter((one) => one.values[index] < 0), { y: TOP + this.tall, tall: 0 }, at);
    }

    spread(inside, box, at) {
      inside.forEach((one, i) => { this.ys.get(one.number)[at] = box.y + (box.tall * (i + 0.5)) / inside.length; });
    }

    /** A range of numbers; below it, boxes for those that have no place on it. */
    layOutRange(axis, at) {
      const { state } = this;
      const isRate = axis.key === "rate";
      const placed = (one) => one[axis.key] !== undefined && (!isRate || one.fits);
      const known = state.candidates.filter(placed).map((one) => one[axis.key]);
      axis.isEmpty = !known.length;
      axis.low = isRate ? Math.min(...known, state.most) : 0;
      axis.high = isRate ? Math.max(...known, 0) : state.mostMemory();
      if (isRate && axis.low > axis.high * 0.4) axis.low -= (axis.high - axis.low) * 0.08;
      else if (isRate) axis.low = 0;
      if (!(axis.high > axis.low)) axis.low = axis.high - Math.max(1, axis.high * 0.1);
      const names = isRate ? this.groups : known.length < state.candidates.length ? ["not known"] : [];
      const each = names.length ? 30 : 0;
      axis.top = TOP + 12;
      axis.bottom = TOP + this.tall - 4 - names.length * each - (names.length ? 10 : 0);
      axis.y = (value) => axis.bottom - ((Math.min(Math.max(value, axis.low), axis.high) - axis.low) / (axis.high - axis.low)) * (axis.bottom - axis.top);
      axis.boxes = names.map((text, i) => ({ text, group: text, y: TOP + this.tall - (names.length - i) * each, tall: each - 4 }));
      for (const box of axis.boxes) {
        const inside = state.candidates.filter((one) => (isRate ? state.group(one) === box.text : !placed(one)));
        box.count = inside.length;
        this.spread(inside, box, at);
      }
      for (const one of state.candidates) if (placed(one)) this.ys.get(one.number)[at] = axis.y(one[axis.key]);
    }

    // ---- drawing ------------------------------------------------------------------------------

    draw() {
      if (!this.place.clientWidth) return;
      if (!this.state.candidates.length) {
        this.stage = this.svg = null;
        document.getElementById("axes-key").replaceChildren();
        this.place.replaceChildren("No combination was tried on this machine.");
        return;
      }
      this.layOut();
      const { state } = this;
      this.lines = shape("g", {});
      // Marks are a drawing of their own: the pointer moves without painting all lines again.
      this.svg = drawing(this.wide, TOP + this.tall + 8, this.lines);
      this.marks = drawing(this.wide, TOP + this.tall + 8);
      this.stage = element("div", { class: "stage" }, this.svg, this.marks);
      Object.assign(this.stage.style, { width: `${this.wide}px`, height: `${TOP + this.tall + 8}px` });
      for (const axis of this.axes) this.drawAxis(axis);
      this.place.replaceChildren(this.stage);
      const failed = this.groups.some((group) => group !== "not known");
      document.getElementById("axes-key").replaceChildren(ramp(state), ...(state.best ? [mark("best", "the best")] : []), mark("selected", "selected"),
        ...(failed ? [mark("failed", "does not fit, cannot win, or failed")] : []),
        ...(failed && state.most > 0 ? [this.hideButton()] : []));
      this.refresh();
    }

    zoom(factor) { if (this.stage) this.stage.style.zoom = factor; }

    hideButton() {
      this.hide = element("button", { type: "button", class: "button", "aria-pressed": "false" }, "Only those that fit");
      this.hide.addEventListener("click", () => this.state.setHidesFailed(!this.state.hidesFailed));
      return this.hide;
    }

    drawAxis(axis) {
      const isRate = axis.key === "rate";
      const name = axis.choice ? axis.choice.name : isRate ? `${this.state.data.unit}/s` : "memory";
      const head = element("div", { class: "axis-name", title: name }, name);
      Object.assign(head.style, { left: `${axis.x - axis.room / 2 + 2}px`, width: `${axis.room - 4}px` });
      this.stage.append(head);
      if (axis.choice) for (const box of axis.boxes) this.stage.append(this.valueBox(axis, box));
      else this.drawRange(axis);
    }

    valueBox(axis, box) {
      const { state } = this;
      const made = element("button", { type: "button", class: "value" }, element("b", {}, box.text), box.tall >= 34 ? element("small", {}) : null);
      Object.assign(made.style, { left: `${axis.x - this.half}px`, width: `${2 * this.half}px`, top: `${box.y}px`, height: `${box.tall}px` });
      made.addEventListener("click", () => state.toggleValue(axis.choice.index, box.value));
      box.element = made;
      return made;
    }

    /** How well a value can do with what the other axes' filters leave. */
    showBest(axis, box) {
      const { state } = this;
      const fitting = box.inside.filter((one) => one.fits && one.rate);
      const best = fitting.find((one) => state.matches(one, axis.choice.index));
      const part = best ? state.relative(best) : null;
      const reason = state.reason(box.inside);
      const none = fitting.length ? "filtered out" : box.inside.some((one) => one.fits) ? "not known" : { "does not fit": "none fits" }[reason] || reason;
      const said = !best ? none : part === null || Math.abs(part) < 0.0005 ? "best" : signed(part);
      const { element: made } = box;
      made.className = `value edge-${best ? state.level(best) : "none"}${best ? "" : " none"}`;
      made.title = `${axis.choice.name} ${box.text}: ${said} · ${box.inside.length} candidates`;
      if (made.children[1]) made.children[1].textContent = !best && fitting.length ? "–" : said;
    }

    drawRange(axis) {
      for (const box of axis.boxes) this.stage.append(this.groupBox(axis, box));
      if (axis.isEmpty) return;
      const isRate = axis.key === "rate";
      const { state } = this;
      this.svg.append(shape("path", { d: `M${axis.x} ${axis.top}V${axis.bottom}`, class: "axis-line" }));
      for (const value of ticks(axis.low, axis.high, 6)) {
        const tick = element("span", { class: "tick" }, isRate ? amount(value) : bytes(value));
        Object.assign(tick.style, { left: `${axis.x + 6}px`, top: `${axis.y(value) - 8}px` });
        this.stage.append(tick);
      }
      if (!isRate && state.machine.limit && state.machine.limit <= axis.high) {
        const y = axis.y(state.machine.limit);
        this.svg.append(shape("path", { d: `M${axis.x - 16} ${y}H${axis.x + 6}`, class: "rule limit-rule" }));
      }
      const name = isRate ? `Least ${state.data.unit}/s` : "Most memory";
      const brush = element("div", { class: "brush", title: "Drag to filter", tabindex: 0, role: "slider", "aria-orientation": "vertical",
        "aria-label": name, "aria-valuemin": axis.low, "aria-valuemax": axis.high }, element("div", { class: "brushed", hidden: true }));
      Object.assign(brush.style, { left: `${axis.x - 14}px`, top: `${axis.top - 6}px`, height: `${axis.bottom - axis.top + 12}px` });
      axis.brush = brush;
      this.brushing(axis, brush);
      this.stage.append(brush);
    }

    groupBox(axis, box) {
      const isRate = axis.key === "rate";
      const made = element(isRate ? "button" : "div", { class: "value group", ...(isRate ? { type: "button", "aria-pressed": "false" } : {}) },
        element("b", {}, box.text), element("small", {}, String(box.count)));
      const left = isRate ? axis.x - 12 : axis.x - axis.room * 0.55;
      Object.assign(made.style, { left: `${left}px`, top: `${box.y}px`, height: `${box.tall}px` });
      if (isRate) made.addEventListener("click", () => this.state.toggleGroup(box.group));
      box.element = made;
      return made;
    }

    // ---- lines --------------------------------------------------------------------------------

    path(one) {
      if (!this.paths.has(one.number)) this.paths.set(one.number, this.curve(one));
      return this.paths.get(one.number);
    }

    curve(one) {
      const ys = this.ys.get(one.number);
      let made = "";
      for (let at = 0; at < this.axes.length; at += 1) {
        const axis = this.axes[at];
        const half = axis.choice ? this.half : 0;
        const [x, y] = [axis.x, ys[at]];
        if (at === 0) made = `M${x - half - 10} ${y.toFixed(1)}H${x + half}`;
        else {
          const before = this.axes[at - 1];
          const start = before.x + (before.choice ? this.half : 0);
          const third = (x - half - start) / 3;
          made += `C${(start + third).toFixed(1)} ${ys[at - 1].toFixed(1)} ${(x - half - third).toFixed(1)} ${y.toFixed(1)} ${x - half} ${y.toFixed(1)}`;
          if (half) made += `H${x + half}`;
        }
      }
      return made;
    }

    /** Lines and boxes as the filters have them. */
    refresh() {
      const { state } = this;
      const paths = new Map();
      const add = (key, one) => (paths.get(key) || paths.set(key, []).get(key)).push(this.path(one));
      const shown = new Set(state.visible);
      for (const one of state.candidates) {
        if (shown.has(one)) add(one.fits ? `line level-${state.level(one)}` : "line failed", one);
        else if (state.filters.size && one.fits) add("line out", one);
      }
      const order = ["line out", "line failed", ...[...Array(8).keys()].map((at) => `line level-${at}`), "line level--1"];
      const many = state.visible.length > 1200 ? " many" : state.visible.length > 250 ? " some" : "";
      this.lines.replaceChildren(...order.filter((key) => paths.has(key)).map((key) => shape("path", { d: paths.get(key).join(""), class: key + many })));
      for (const axis of this.axes) this.refreshAxis(axis);
      if (this.hide) this.hide.setAttribute("aria-pressed", String(state.hidesFailed));
      this.mark();
    }

    refreshAxis(axis) {
      const filter = this.state.filters.get(axis.choice ? axis.choice.index : axis.key);
      for (const box of axis.boxes) {
        if (axis.choice) this.showBest(axis, box);
        const wanted = axis.choice ? filter && filter.has(box.value) : filter && filter.groups && filter.groups.has(box.group);
        if (box.element.tagName === "BUTTON") box.element.setAttribute("aria-pressed", String(Boolean(wanted)));
        box.element.classList.toggle("off", Boolean(filter && !wanted && (axis.choice || filter.groups)));
      }
      if (!axis.brush) return;
      const range = filter && !filter.groups ? filter : null;
      const brushed = axis.brush.firstChild;
      const bound = axis.key === "rate" ? range?.low ?? axis.low : range?.high ?? axis.high;
      axis.brush.setAttribute("aria-valuenow", bound);
      axis.brush.setAttribute("aria-valuetext", axis.key === "rate" ? amount(bound) : bytes(bound));
      brushed.hidden = !range;
      if (!range) return;
      const top = axis.y(range.high) - axis.top + 6;
      Object.assign(brushed.style, { top: `${top}px`, height: `${axis.y(range.low) - axis.y(range.high)}px` });
    }

    /** The lines on top of all others: best, selected, under the pointer. */
    mark() {
      if (!this.svg) return;
      const { state } = this;
      const [made, texts] = [[], []];
      const add = (one, kind) => {
        const d = this.path(one);
        made.push(shape("path", { d, class: "line halo" }), shape("path", { d, class: `line ${kind}` }));
        const last = this.axes.at(-1);
        if (kind !== "hovered") {
          texts.push(shape("text", { x: last.x - 7, y: this.ys.get(one.number).at(-1) - 5, class: `end ${kind}`, "text-anchor": "end" }, String(one.number)));
        }
      };
      if (state.best && state.matches(state.best)) add(state.best, "best");
      for (const number of state.selected) add(state.byNumber.get(number), "selected");
      const hovered = state.byNumber.get(state.hovered);
      if (hovered) add(hovered, "hovered");
      this.marks.replaceChildren(...made, ...apart(texts));
    }

    // ---- the pointer --------------------------------------------------------------------------

    /** The candidate whose line is nearest to a place of the drawing. */
    nearest(x, y) {
      const { axes, state } = this;
      let at = axes.findIndex((axis) => axis.x > x);
      if (at === 0) at = 1;
      if (at < 0) return null;
      const [left, right] = [axes[at - 1], axes[at]];
      const start = left.x + (left.choice ? this.half : 0);
      const end = right.x - (right.choice ? this.half : 0);
      const t = Math.max(0, Math.min(1, (x - start) / (end - start)));
      const way = t * t * (3 - 2 * t); // the curve of `path`, whose control points are at thirds
      let best = null;
      for (const one of state.visible) {
        const ys = this.ys.get(one.number);
        const away = Math.abs(ys[at - 1] + (ys[at] - ys[at - 1]) * way - y);
        if (away <= NEAR_PX && (!best || away < best.away)) best = { one, away };
      }
      return best && best.one;
    }

    placeOf(event) {
      const box = this.stage.getBoundingClientRect();
      return [event.clientX - box.left, event.clientY - box.top];
    }

    move(event) {
      if (event.target.closest(".value, .brush") || !this.stage) return this.leave();
      const one = this.nearest(...this.placeOf(event));
      if (!one) return this.leave();
      this.place.classList.add("pointing");
      this.state.hover(one.number);
      return this.tip.show(one, event.clientX, event.clientY);
    }

    leave() {
      this.place.classList.remove("pointing");
      this.tip.hide();
      this.state.hover(null);
    }

    click(event) {
      if (event.target.closest(".value, .brush") || !this.stage) return;
      const one = this.nearest(...this.placeOf(event));
      if (one) this.state.toggle(one.number);
    }

    brushing(axis, brush) {
      let from = null;
      const value = (event) => {
        const y = this.placeOf(event)[1];
        const part = (axis.bottom - Math.max(axis.top, Math.min(y, axis.bottom))) / (axis.bottom - axis.top);
        return axis.low + part * (axis.high - axis.low);
      };
      brush.addEventListener("keydown", (event) => this.brushKey(event, axis));
      brush.addEventListener("pointerdown", (event) => {
        from = value(event);
        brush.setPointerCapture(event.pointerId);
        event.preventDefault();
      });
      brush.addEventListener("pointermove", (event) => {
        if (from === null) return;
        const to = value(event);
        this.state.setRange(axis.key, { low: Math.min(from, to), high: Math.max(from, to) });
      });
      brush.addEventListener("pointerup", (event) => {
        const to = value(event);
        if (Math.abs(to - from) < (axis.high - axis.low) * 0.01) this.state.setRange(axis.key, null);
        from = null;
      });
    }

    /** Arrows move the least throughput, or the most memory, by a twentieth of the axis. */
    brushKey(event, axis) {
      const by = { ArrowUp: 1, ArrowDown: -1 }[event.key];
      if (!by) return;
      event.preventDefault();
      const { low, high } = this.state.filters.get(axis.key) || axis;
      const move = (value) => Math.max(axis.low, Math.min(axis.high, (value ?? axis.low) + (by * (axis.high - axis.low)) / 20));
      const range = axis.key === "rate" ? { low: move(low), high: axis.high } : { low: axis.low, high: move(high ?? axis.high) };
      const isAll = range.low <= axis.low && range.high >= axis.high;
      this.state.setRange(axis.key, isAll ? null : range);
    }

    changed(what) {
      if (what === "machine") this.draw();
      else if (what === "filter" && this.svg) this.refresh();
      else this.mark();
    }
  }

  window.SlipstreamPlanAxes = Axes;
})();
