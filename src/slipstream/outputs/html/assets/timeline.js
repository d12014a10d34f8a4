// A timeline on a canvas: SlipstreamTimeline.mount(element, source, options).
//
// Needs the other timeline_*.js before it in the page; slipstream.outputs.html.page has them in
// order.
//
// source: {
//   lanes: [{id, name, group, kind: "stream" | "structure" | "lane" | "counter", member?, depths?, collapsed?,
//     unit?, max?}],
//   start_us, end_us, steps?: [{start_us, end_us, name, number?, member?}], members?: names of recordings,
//   stepped? (steps come with slices),
//   slices(from_us, to_us, pixels, {lanes, tops}) -> Promise<{lanes: [{id, start, duration, name,
//     kind, count, depth?, busy?, value?}], names, readable?, descriptions?, kinds, steps?}>
//     columns; `readable` says what each name does, `descriptions` explains it; `count` above 1 marks a block of many; `lanes` are those
//     in sight, which is all that is needed, `tops` those of which only depth 0 is
//   search(text) -> Promise<[{lane, start_us, duration_us, name, depth?}]>,
//     in time; the list's `best` is the one to show first, `total` the number of all hits
//   detail(lane, start_us, depth) -> Promise<{title, rows, source, partner}>
// }
// options: {height (px, or "fill"), label, hint, panel (element), wheel: "always" | "focus",
//   opens (from and to in µs), onError(error), onSelect(slice), onView(from_us, to_us),
//   onRange(from_us, to_us) (null, null when cleared)}
// view: {zoomTo(from, to), select(lane, start_us), refresh(source), destroy(), …}
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const { SIZES, make, numbered, sliceOf } = Timeline;
  const LEAST_SPAN_US = 0.005;
  const MOVE_MS = 140;
  const NARROW_PX = 560;
  const MARGIN = 0.02;
  const MOST_STRIPS = 4;

  /** One timeline in one element. */
  class View extends Timeline.Selecting {
    constructor(element, source, options) {
      super();
      this.element = element;
      this.options = options || {};
      this.hits = [];
      this.hitAt = -1;
      this.selected = this.partner = this.range = null;
      this.scroll = this.width = this.height = 0;
      this.row = SIZES.row;
      this.build();
      this.isHlo = false;
      this.readings = 0; // a source with more lanes is of the same reading
      this.adopt(source);
      this.open(this.options.opens);
      this.watch();
      this.resize();
    }

    build() {
      this.canvas = make("canvas", {
        class: "tl-canvas", tabindex: "0", role: "application",
        "aria-label": this.options.label || "Timeline; W and S zoom, A and D pan, slash searches",
      });
      this.tip = new Timeline.Tip();
      this.bar = new Timeline.Bar(this);
      this.panel = new Timeline.Panel(this, this.options.panel);
      this.stage = make("div", { class: "tl-stage" }, this.canvas, this.tip.element);
      this.element.classList.add("tl");
      this.element.classList.toggle("tl-fill", this.options.height === "fill");
      this.element.replaceChildren(this.bar.element, this.stage, this.panel.spoken);
      if (!this.options.panel) this.element.append(this.panel.element);
      this.painter = new Timeline.Painter(this.canvas, this);
      this.input = new Timeline.Input(this);
    }

    adopt(source) {
      this.source = source;
      this.start = source.start_us;
      this.end = Math.max(source.end_us, source.start_us + LEAST_SPAN_US);
      this.steps = numbered(source.steps || []);
      this.stepped = source.stepped || this.steps.length > 0;
      this.strips = this.stepped ? Math.min(MOST_STRIPS, (source.members || [""]).length) : 0;
      this.top = SIZES.overview + SIZES.axis + this.strips * SIZES.steps;
      this.whole = this.current = null;
      this.groups = new Map();
      for (const lane of source.lanes) {
        if (!this.groups.has(lane.group)) this.groups.set(lane.group, { name: lane.group, members: [] });
        this.groups.get(lane.group).members.push(lane);
      }
      for (const group of this.groups.values()) {
        group.collapsed = group.members.every((lane) => lane.collapsed);
      }
      this.folded = new Set(source.lanes.filter((lane) => lane.folded).map((lane) => lane.id));
      this.layOut();
    }

    /** Begin with a part of the time, and a little around it. */
    open(part) {
      const margin = part ? (part[1] - part[0]) * MARGIN : 0;
      this.from = part ? Math.max(this.start, part[0] - margin) : this.start;
      this.to = part ? Math.min(this.end, part[1] + margin) : this.end;
    }

    /** The same source with more lanes: what is drawn and selected stays. */
    extend(source) {
      const { current, whole, steps } = this;
      const closed = new Map([...this.groups].map(([name, group]) => [name, group.collapsed]));
      this.adopt(source);
      Object.assign(this, { current, whole, steps });
      for (const [name, group] of this.groups) group.collapsed = closed.get(name) ?? group.collapsed;
      this.layOut();
      this.resettle();
    }

    /** HLO names first, or what they do. */
    toggleNames() {
      this.isHlo = !this.isHlo;
      this.bar.names.setAttribute("aria-pressed", String(this.isHlo));
      this.draw();
    }

    /** Another source in the same place, where it is: what a changed file becomes. */
    refresh(source) {
      const closed = new Map([...this.groups].map(([name, group]) => [name, group.collapsed]));
      const [from, to, all] = [this.from, this.to, this.from <= this.start && this.to >= this.end];
      this.readings += 1;
      this.adopt(source);
      for (const [name, group] of this.groups) group.collapsed = closed.get(name) ?? group.collapsed;
      this.layOut();
      this.deselect();
      this.search(this.bar.input.value.trim());
      this.setView(all ? this.start : from, all ? this.end : to);
    }

    watch() {
      this.sizes = new ResizeObserver(() => this.resize());
      this.sizes.observe(this.stage);
      const recolour = () => { this.painter.retheme(); this.draw(); };
      this.themes = new MutationObserver(recolour);
      this.themes.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme", "class"] });
      this.dark = window.matchMedia("(prefers-color-scheme: dark)");
      this.dark.addEventListener("change", recolour);
      this.recolour = recolour;
    }

    destroy() {
      this.gone = true;
      this.sizes.disconnect();
      this.themes.disconnect();
      this.dark.removeEventListener("change", this.recolour);
      this.input.destroy();
      this.element.replaceChildren();
    }

    // ---- layout -----------------------------------------------------------------------------

    layOut() {
      this.rows = [];
      this.places = new Map();
      this.spans = new Map(); // member -> [first y, last y] of its rows
      let y = 0;
      const add = (row) => { this.rows.push({ ...row, y }); y += row.height; return this.rows.at(-1); };
      for (const group of this.groups.values()) {
        const squeezed = group.members.filter((lane) => lane.kind !== "structure");
        const tall = group.collapsed ? Math.max(SIZES.group, Math.min(60, squeezed.length * 2 + 4)) : SIZES.group;
        const header = add({ group, name: group.name, squeezed, collapsed: group.collapsed, height: tall });
        const { member = 0 } = group.members[0];
        this.spans.set(member, [this.spans.get(member)?.[0] ?? header.y, y]);
        for (const lane of group.members) {
          if (group.collapsed) { this.places.set(lane.id, header); continue; }
          const folded = this.folded.has(lane.id);
          const deep = lane.kind === "counter" ? SIZES.counter : (folded ? 1 : lane.depths || 1) * this.row;
          this.places.set(lane.id, add({ lane, folded, height: deep + 2 * SIZES.pad }));
        }
        this.spans.get(member)[1] = y;
      }
      this.contentHeight = y;
    }

    rowOf(lane) {
      return this.places.get(lane);
    }

    laneNames(id) {
      const lane = this.source.lanes.find((one) => one.id === id);
      return lane ? `${lane.group} · ${lane.name}` : String(id);
    }

    resize() {
      if (this.gone) return;
      const width = this.stage.clientWidth;
      if (!width) return;
      const { top } = this;
      const wanted = this.options.height;
      const height = wanted === "fill" ? this.stage.clientHeight
        : wanted || Math.min(560, top + this.contentHeight + 8);
      if (width === this.width && height === this.height) return;
      // Drawn as it is until the answer for the new width is there.
      if (width !== this.width && this.current) this.current = { ...this.current, span: NaN };
      this.width = width;
      this.height = height;
      this.gutter = width < NARROW_PX ? 92 : Math.min(210, Math.round(width * 0.18));
      if (wanted === "fill") this.fillHeight(height - top);
      this.canvas.style.height = `${height}px`;
      this.painter.resize(width, height);
      this.scrollBy(0);
      this.setView(this.from, this.to);
    }

    /** Few lanes get taller rows where there is room for them. */
    fillHeight(shown) {
      const rows = this.contentHeight / this.row;
      const row = rows * SIZES.tallRow <= shown ? SIZES.tallRow : SIZES.row;
      if (row === this.row) return;
      this.row = row;
      this.layOut();
    }

    // ---- what is shown ----------------------------------------------------------------------

    setView(from, to) {
      const whole = this.end - this.start;
      const span = Math.min(Math.max(to - from, LEAST_SPAN_US), whole);
      const begin = Math.min(Math.max(from, this.start), this.end - span);
      this.from = begin;
      this.to = begin + span;
      this.ask();
      this.draw();
      if (this.options.onView) this.options.onView(this.from, this.to);
    }

    /** Go there smoothly, or at once where motion is unwanted. */
    zoomTo(from, to) {
      cancelAnimationFrame(this.moving);
      const still = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
      if (still || document.hidden) return this.setView(from, to);
      const [from0, to0, began] = [this.from, this.to, performance.now()];
      const move = (now) => {
        const share = Math.min(1, Math.max(0, (now - began) / MOVE_MS));
        const eased = 1 - Math.pow(1 - share, 3);
        this.setView(from0 + (from - from0) * eased, to0 + (to - to0) * eased);
        if (share < 1 && !this.gone) this.moving = requestAnimationFrame(move);
      };
      this.moving = requestAnimationFrame(move);
    }

    draw() {
      if (this.drawing || this.gone || !this.width) return;
      this.drawing = requestAnimationFrame(() => {
        this.drawing = 0;
        if (!this.gone) this.painter.paint();
      });
    }

    timeAt(x) {
      return this.from + ((x - this.gutter) / (this.width - this.gutter)) * (this.to - this.from);
    }

    middle() {
      return (this.from + this.to) / 2;
    }

    zoomAbout(us, factor, smoothly) {
      const span = Math.min(Math.max((this.to - this.from) * factor, LEAST_SPAN_US), this.end - this.start);
      const share = (us - this.from) / (this.to - this.from);
      const from = us - share * span;
      if (smoothly) this.zoomTo(from, from + span);
      else this.setView(from, from + span);
    }

    panBy(pixels, smoothly) {
      const span = this.to - this.from;
      const by = (pixels / (this.width - this.gutter)) * span;
      const from = Math.min(Math.max(this.from + by, this.start), this.end - span);
      if (smoothly) this.zoomTo(from, from + span);
      else this.setView(from, from + span);
    }

    scrollBy(pixels) {
      const shown = this.height - this.top;
      this.scroll = Math.max(0, Math.min(this.scroll + pixels, this.contentHeight - shown));
      this.canvas.style.touchAction = this.contentHeight > shown ? "none" : "pan-y";
      this.ask();
      this.draw();
    }

    centreOverview(x) {
      const us = this.start + ((x - this.gutter) / (this.width - this.gutter)) * (this.end - this.start);
      const span = this.to - this.from;
      this.setView(us - span / 2, us + span / 2);
    }

    fit() {
      this.zoomTo(this.start, this.end);
    }

    zoomToSlice(slice) {
      const span = Math.max((slice.duration_us || 0) * 1.6, LEAST_SPAN_US * 4);
      const middle = slice.start_us + (slice.duration_us || 0) / 2;
      this.zoomTo(middle - span / 2, middle + span / 2);
    }

    // ---- slices under the pointer -----------------------------------------------------------

    rowAt(at) {
      const y = at.y - this.top + this.scroll;
      if (at.y < this.top) return null;
      return this.rows.find((row) => y >= row.y && y < row.y + row.height) || null;
    }

    sliceAt(at) {
      const row = this.rowAt(at);
      if (!row || !row.lane || row.lane.kind === "counter" || at.x < this.gutter) return null;
      const inside = at.y - this.top + this.scroll - row.y - SIZES.pad;
      const depth = Math.max(0, Math.min(Math.floor(inside / this.row), (row.lane.depths || 1) - 1));
      const us = this.timeAt(at.x);
      const slop = (this.to - this.from) / (this.width - this.gutter);
      for (const data of this.layers().reverse()) {
        const found = this.nearest(data, row.lane.id, depth, us, slop);
        if (found) return found;
      }
      return null;
    }

    nearest(data, lane, depth, us, slop) {
      const found = data.byLane.get(lane);
      let best = null;
      for (let i = 0; found && i < found.start.length; i++) {
        if ((found.depth ? found.depth[i] : 0) !== depth) continue;
        const before = found.start[i] - us;
        if (before > slop) continue;
        const off = Math.max(before, us - found.start[i] - found.duration[i], 0);
        if (off <= slop && (best === null || off <= best.off)) best = { i, off };
      }
      return best && sliceOf(data, found, best.i);
    }

    hover(at) {
      const slice = at && this.sliceAt(at);
      const row = at && !slice && this.rowAt(at);
      this.canvas.style.cursor = slice || (row && (row.group || at.x < this.gutter)) ? "pointer" : "default";
      if (slice) this.tip.show(at, slice, this.stage, this);
      else if (row && row.lane && at.x < this.gutter) {
        this.tip.say(at, row.lane.title || row.lane.name, row.lane.group, this.stage);
      } else this.tip.hide();
    }

    click(at) {
      const row = this.rowAt(at);
      const slice = this.sliceAt(at);
      if (slice) return this.choose(slice);
      if (!row) return undefined;
      if (row.group) row.group.collapsed = !row.group.collapsed;
      else if (at.x < this.gutter && row.lane.depths > 1) {
        if (!this.folded.delete(row.lane.id)) this.folded.add(row.lane.id);
      } else return this.clear();
      this.layOut();
      return this.resettle();
    }

    resettle() {
      const before = this.height;
      this.height = 0;
      this.resize();
      if (this.height !== before) this.draw();
      this.scrollBy(0);
    }

  }

  Timeline.mount = (element, source, options) => new View(element, source, options);
})();
