// Draws a timeline on its canvas: lanes, slices, selection.  Knows nothing of input.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const { SIZES, fitted, cutTo } = Timeline;

  /** Paints a whole view, each time anew. */
  class Painter extends Timeline.AxisPainter {
    constructor(canvas, view) {
      super();
      this.canvas = canvas;
      this.context = canvas.getContext("2d");
      this.view = view;
      this.overview = document.createElement("canvas");
      this.retheme();
    }

    retheme() {
      this.palette = new Timeline.Palette(this.canvas);
      this.staleOverview = true;
      // Fonts may have come or changed.
      Timeline.forgetWidths();
    }

    resize(width, height) {
      const ratio = window.devicePixelRatio || 1;
      for (const [canvas, tall] of [[this.canvas, height], [this.overview, SIZES.overview]]) {
        canvas.width = Math.max(1, Math.round(width * ratio));
        canvas.height = Math.max(1, Math.round(tall * ratio));
      }
      this.ratio = ratio;
      this.staleOverview = true;
    }

    paint() {
      const { context, view, palette } = this;
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      context.font = palette.font;
      context.textBaseline = "middle";
      context.fillStyle = palette.bg;
      context.fillRect(0, 0, view.width, view.height);
      this.steps();
      this.lanes();
      this.axis();
      if (view.stepped) this.stepNames();
      this.minimap();
    }

    // ---- lanes ------------------------------------------------------------------------------

    lanes() {
      const { context, view } = this;
      const top = view.top;
      context.save();
      context.beginPath();
      context.rect(0, top, view.width, view.height - top);
      context.clip();
      for (const row of view.rows) {
        const y = top + row.y - view.scroll;
        if (y > view.height || y + row.height < top) continue;
        if (row.lane) this.lane(row, y);
        else this.group(row, y);
      }
      this.selection(top);
      context.restore();
      this.scrollbar(top);
    }

    group(row, y) {
      const { context, view, palette } = this;
      context.fillStyle = palette.line;
      context.globalAlpha = 0.45;
      context.fillRect(0, y, view.width, row.height - 1);
      context.globalAlpha = 1;
      if (row.collapsed) this.squeezed(row, y);
      context.fillStyle = palette.fg;
      context.font = `600 ${palette.font}`;
      const wide = row.collapsed ? view.gutter - 14 : view.width - 40;
      const text = `${row.collapsed ? "▸" : "▾"}  ${row.name}`;
      const cut = wide < context.measureText(text).width ? cutTo(context, text, wide) : text;
      context.fillText(cut, 8, y + row.height / 2);
      context.font = palette.font;
    }

    /** All lanes of a collapsed group in its header. */
    squeezed(row, y) {
      const height = Math.max(1, (row.height - 4) / row.squeezed.length);
      row.squeezed.forEach((lane, i) => {
        this.slices(lane, y + 1 + i * height, { row: height, pad: 0, only: 0, plain: true });
      });
    }

    lane(row, y) {
      const { context, view, palette } = this;
      context.fillStyle = palette.line;
      context.fillRect(0, y + row.height - 1, view.width, 1);
      context.save();
      context.beginPath();
      context.rect(view.gutter, y, view.width - view.gutter, row.height);
      context.clip();
      if (row.lane.kind === "counter") this.counter(row, y);
      else this.slices(row.lane, y + SIZES.pad, { row: this.view.row, only: row.folded ? 0 : null });
      context.restore();
      context.fillStyle = palette.fg;
      const mark = row.lane.depths > 1 ? (row.folded ? "▸ " : "▾ ") : "";
      const text = cutTo(context, mark + row.lane.name, view.gutter - 28);
      context.fillText(text, 20, y + SIZES.pad + this.view.row / 2);
    }

    slices(lane, y, options) {
      const { view } = this;
      for (const data of view.layers()) {
        const found = data.byLane.get(lane.id);
        if (found) this.blocks(found, data, y, options);
      }
    }

    /** Slices of one answer, as far as it reaches and no newer one covers. */
    blocks(found, data, y, options) {
      const { context, view, palette } = this;
      const scale = (view.width - view.gutter) / (view.to - view.from);
      const { names, kinds } = data;
      const tall = options.row - (options.plain ? 0 : 2);
      let fill = "";
      for (let i = 0; i < found.start.length; i++) {
        const depth = found.depth ? found.depth[i] : 0;
        if (options.only !== null && depth !== options.only) continue;
        const start = found.start[i];
        let x0 = view.gutter + (start - view.from) * scale;
        let wide = found.duration[i] * scale;
        if (x0 > view.width || x0 + wide < view.gutter) continue;
        if (data.hidden && start >= data.hidden[0] && start + found.duration[i] <= data.hidden[1]) {
          continue;
        }
        if (x0 < view.gutter) [x0, wide] = [view.gutter, wide + x0 - view.gutter];
        wide = Math.min(wide, view.width - x0 + 1);
        const name = names[found.name[i]];
        const colour = palette.fill(kinds[found.kind[i]], name);
        if (colour !== fill) context.fillStyle = fill = colour;
        const count = found.count[i];
        const busy = count > 1 && found.busy ? Math.max(0.12, found.busy[i]) : 1;
        const high = Math.max(1, tall * busy);
        const gap = wide > 3 ? 0.75 : 0;
        const at = y + depth * options.row + (tall - high);
        context.fillRect(x0, at, Math.max(wide - gap, 1), high);
        const digits = !options.plain && count === 1 && kinds[found.kind[i]] === "structure" && /\d+$/.exec(name);
        if (digits && Timeline.widthFor(context, name) > wide - 8) {
          // Of `x_layers_7` the number says most.
          this.label(digits[0], "", colour, x0 - 2, at + tall / 2, wide + 4);
          fill = "";
        } else if (wide > 26 && !options.plain) {
          const slice = Timeline.sliceOf(data, found, i);
          const [text, said] = count > 1 ? [`${count.toLocaleString("en")} slices`, ""] : [view.nameOf(slice), view.saidOf(slice)];
          this.label(text, said, colour, x0, at + tall / 2, wide);
          fill = "";
        }
      }
    }

    /** What a slice is called, and behind it what it does where there is room for both. */
    label(name, description, colour, x0, y, wide) {
      const { context, palette } = this;
      const text = fitted(context, name, wide - 8);
      if (!text) return;
      context.fillStyle = palette.ink.get(colour);
      context.fillText(text, x0 + 4, y + 0.5);
      const used = Timeline.widthOf(name) + 16;
      const more = description && text === name ? fitted(context, description, wide - used - 8) : "";
      if (!more) return;
      context.globalAlpha = 0.72;
      context.fillText(more, x0 + used, y + 0.5);
      context.globalAlpha = 1;
    }

    counter(row, y) {
      const { context, view, palette } = this;
      const data = view.layers().at(-1);
      const found = data && data.byLane.get(row.lane.id);
      if (!found || !found.value) return;
      const most = row.lane.max || found.value.reduce((a, b) => Math.max(a, b), 0) || 1;
      const tall = row.height - 8;
      context.fillStyle = palette.fill(row.lane.colour || "communication", "");
      for (let i = 0; i < found.start.length; i++) {
        const x0 = Math.max(this.x(found.start[i]), view.gutter);
        const wide = this.x(found.start[i] + found.duration[i]) - x0;
        const high = (found.value[i] / most) * tall;
        if (wide > 0) context.fillRect(x0, y + row.height - 3 - high, Math.max(wide, 0.75), high);
      }
    }

    // ---- what is selected, found, measured --------------------------------------------------

    selection(top) {
      const { context, view, palette } = this;
      for (const hit of view.hits) {
        const box = this.box(hit, top);
        if (!box) continue;
        context.strokeStyle = palette.accent;
        context.lineWidth = 1;
        context.strokeRect(box.x - 0.5, box.y + 0.5, Math.max(box.width, 3), box.height - 1);
      }
      if (view.range) this.range(top);
      if (!view.selected) return;
      const box = this.box(view.selected, top);
      if (!box) return;
      context.strokeStyle = palette.fg;
      context.lineWidth = 2;
      context.strokeRect(box.x - 1, box.y - 1, Math.max(box.width, 3) + 1, box.height + 2);
      if (view.partner) this.arrow(box, view.partner, top);
    }

    /** Where a slice is on the canvas; null where its lane isn't shown. */
    box(slice, top) {
      const { view } = this;
      const row = view.rowOf(slice.lane);
      if (!row) return null;
      const x0 = this.x(slice.start_us);
      const x1 = this.x(slice.start_us + (slice.duration_us || 0));
      if (x1 < view.gutter || x0 > view.width) return null;
      const x = Math.max(x0, view.gutter);
      const depth = row.lane && !row.folded ? slice.depth || 0 : 0;
      const inset = row.lane ? SIZES.pad + depth * this.view.row : 2;
      const y = top + row.y - view.scroll + inset;
      return { x, y, width: Math.min(x1, view.width) - x, height: this.view.row - 2 };
    }

    arrow(box, partner, top) {
      const { context, view, palette } = this;
      const row = view.rowOf(partner.lane);
      if (!row) return;
      const forward = partner.start_us >= view.selected.start_us;
      const y0 = box.y + box.height / 2;
      const y1 = top + row.y - view.scroll + SIZES.pad + (this.view.row - 2) / 2;
      const far = this.x(partner.start_us);
      const [x0, x1] = [forward ? box.x + Math.max(box.width, 2) : box.x, far];
      const bend = Math.max(24, Math.min(160, Math.abs(x1 - x0) / 2)) * (forward ? 1 : -1);
      context.strokeStyle = context.fillStyle = palette.accent;
      context.lineWidth = 1.75;
      context.beginPath();
      context.moveTo(x0, y0);
      context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1, y1);
      context.stroke();
      // The head is at the later of the two.
      const [hx, hy] = forward ? [x1, y1] : [x0, y0];
      context.beginPath();
      context.moveTo(hx, hy);
      context.lineTo(hx - 7, hy - 4);
      context.lineTo(hx - 7, hy + 4);
      context.fill();
    }

    range(top) {
      const { context, view, palette } = this;
      const [x0, x1] = view.range.map((us) => this.x(us));
      context.fillStyle = palette.accent;
      context.globalAlpha = 0.12;
      context.fillRect(x0, top, x1 - x0, view.height - top);
      context.globalAlpha = 1;
      context.fillRect(x0, top, 1, view.height - top);
      context.fillRect(x1, top, 1, view.height - top);
      const text = Timeline.time.duration(view.range[1] - view.range[0]);
      const wide = context.measureText(text).width;
      const middle = Math.max(view.gutter + 4, (x0 + x1 - wide) / 2);
      context.fillStyle = palette.bg;
      context.fillRect(middle - 4, top + 3, wide + 8, 17);
      context.fillStyle = palette.accent;
      context.fillText(text, middle, top + 12);
    }

    scrollbar(top) {
      const { context, view, palette } = this;
      const shown = view.height - top;
      if (view.contentHeight <= shown) return;
      const tall = Math.max(24, (shown * shown) / view.contentHeight);
      const at = (view.scroll / (view.contentHeight - shown)) * (shown - tall);
      context.fillStyle = palette.muted;
      context.globalAlpha = 0.6;
      context.fillRect(view.width - 5, top + at, 4, tall);
      context.globalAlpha = 1;
    }

  }

  Timeline.Painter = Painter;
})();
