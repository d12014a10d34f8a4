// Draws what stands above a timeline's lanes: the overview, the time axis, the steps.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const { fitted } = Timeline;
  const SIZES = { overview: 36, axis: 24, steps: 18, group: 24, row: 18, tallRow: 26, counter: 40, pad: 3 };

  /** The part of a painter that knows where a time is. */
  class AxisPainter {
    x(us) {
      const { gutter, from, to, width } = this.view;
      return gutter + ((us - from) / (to - from)) * (width - gutter);
    }

    // ---- the axis and the steps -------------------------------------------------------------

    axis() {
      const { context, view, palette } = this;
      const top = SIZES.overview;
      context.fillStyle = palette.bg;
      context.fillRect(0, top, view.width, SIZES.axis);
      const plot = view.width - view.gutter;
      const found = Timeline.time.ticks(view.from, view.to, plot / 96);
      context.fillStyle = palette.muted;
      context.strokeStyle = palette.line;
      context.lineWidth = 1;
      context.beginPath();
      for (const tick of found.ticks) {
        const x = Math.round(this.x(tick.us)) + 0.5;
        if (x < view.gutter) continue;
        context.moveTo(x, top + SIZES.axis - 6);
        context.lineTo(x, top + SIZES.axis);
        if (x + 4 + Timeline.widthFor(context, tick.text) <= view.width) context.fillText(tick.text, x + 4, top + 11);
      }
      context.moveTo(0, top + SIZES.axis - 0.5);
      context.lineTo(view.width, top + SIZES.axis - 0.5);
      context.stroke();
      context.fillStyle = palette.bg;
      context.fillRect(0, top, view.gutter, SIZES.axis - 1);
      context.fillStyle = palette.muted;
      const text = found.base
        ? Timeline.time.instant(found.base, found.step * 1000)
        : `${Timeline.time.duration(view.to - view.from)} shown`;
      context.fillText(fitted(context, text, view.gutter - 12), 8, top + 11);
    }

    steps() {
      const { context, view, palette } = this;
      const top = view.top;
      const pixel = (view.to - view.from) / (view.width - view.gutter);
      const seen = view.steps.filter((s) => s.end_us > view.from && s.start_us < view.to);
      // Bands narrower than this are no bands.
      if (!seen.length || seen[0].end_us - seen[0].start_us < 6 * pixel) return;
      for (const step of seen) {
        const [first, last] = view.spans.get(step.member || 0) || [0, 0];
        const y0 = Math.max(top, top + first - view.scroll);
        const tall = Math.min(view.height, top + last - view.scroll) - y0;
        if (tall <= 0) continue;
        const x0 = Math.max(this.x(step.start_us), view.gutter);
        if (step.number % 2) {
          context.fillStyle = palette.line;
          context.globalAlpha = 0.28;
          context.fillRect(x0, y0, this.x(step.end_us) - x0, tall);
        }
        context.globalAlpha = 0.9;
        context.fillStyle = palette.line;
        context.fillRect(Math.round(x0), y0, 1, tall);
      }
      context.globalAlpha = 1;
    }

    /** Strips below the axis that say which step is which, one for each recording. */
    stepNames() {
      for (let strip = 0; strip < this.view.strips; strip++) this.stepStrip(strip);
    }

    stepStrip(strip) {
      const { context, view, palette } = this;
      const y = SIZES.overview + SIZES.axis + strip * SIZES.steps;
      context.fillStyle = palette.bg;
      context.fillRect(0, y, view.width, SIZES.steps);
      context.fillStyle = palette.line;
      context.fillRect(0, y + SIZES.steps - 1, view.width, 1);
      const seen = view.steps.filter((s) => (s.member || 0) === strip && s.end_us > view.from && s.start_us < view.to);
      for (const step of seen) {
        const x0 = Math.max(this.x(step.start_us), view.gutter);
        const x1 = Math.min(this.x(step.end_us), view.width);
        context.fillStyle = palette.line;
        context.globalAlpha = step.number % 2 ? 0.9 : 0.35;
        context.fillRect(x0, y, x1 - x0, SIZES.steps - 1);
        context.globalAlpha = 1;
        context.fillStyle = palette.muted;
        // Of `step 12` the number says most.
        const room = x1 - x0 - 10;
        const number = step.name.replace(/^.*\s/, "");
        const text = [step.name, number].find((one) => Timeline.widthFor(context, one) <= room);
        if (text) context.fillText(text, x0 + 5, y + SIZES.steps / 2);
      }
      context.fillStyle = palette.muted;
      const of = view.strips > 1 ? ` of ${view.source.members[strip]}` : "";
      const said = `steps${of}${seen.length || !view.current ? "" : ": zoom in"}`;
      context.fillText(Timeline.cutTo(context, said, view.gutter - 12), 8, y + SIZES.steps / 2);
    }

    // ---- the overview -----------------------------------------------------------------------

    minimap() {
      const { context, view, palette } = this;
      if (this.staleOverview) this.renderOverview();
      context.drawImage(this.overview, 0, 0, view.width, SIZES.overview);
      const plot = view.width - view.gutter;
      const place = (us) =>
        view.gutter + ((us - view.start) / (view.end - view.start)) * plot;
      const x0 = place(view.from);
      const x1 = Math.max(place(view.to), x0 + 3);
      context.fillStyle = palette.bg;
      context.globalAlpha = 0.62;
      context.fillRect(view.gutter, 0, x0 - view.gutter, SIZES.overview - 1);
      context.fillRect(x1, 0, view.width - x1, SIZES.overview - 1);
      context.globalAlpha = 1;
      for (const hit of view.hits) {
        context.fillStyle = palette.accent;
        context.fillRect(place(hit.start_us), SIZES.overview - 8, 1.5, 7);
      }
      context.strokeStyle = palette.fg;
      context.lineWidth = 1.5;
      context.strokeRect(x0 + 0.5, 1, Math.max(x1 - x0 - 1, 2), SIZES.overview - 3);
      context.fillStyle = palette.line;
      context.fillRect(0, SIZES.overview - 1, view.width, 1);
      context.fillStyle = palette.muted;
      const text = `${Timeline.time.duration(view.end - view.start)} total`;
      context.fillText(fitted(context, text, view.gutter - 12), 8, SIZES.overview / 2);
    }

    renderOverview() {
      const { view, palette } = this;
      const context = this.overview.getContext("2d");
      context.setTransform(this.ratio, 0, 0, this.ratio, 0, 0);
      context.fillStyle = palette.bg;
      context.fillRect(0, 0, view.width, SIZES.overview);
      this.staleOverview = false;
      const data = view.whole;
      const shown = view.overviewLanes();
      if (!data || !shown.length) return;
      const scale = (view.width - view.gutter) / (view.end - view.start);
      const tall = (SIZES.overview - 6) / shown.length;
      shown.forEach((lane, n) => {
        const found = data.byLane.get(lane.id);
        if (!found) return;
        for (let i = 0; i < found.start.length; i++) {
          if (found.depth && found.depth[i]) continue;
          context.fillStyle = palette.fill(data.kinds[found.kind[i]], "");
          context.globalAlpha = found.busy && found.count[i] > 1 ? 0.25 + 0.75 * found.busy[i] : 1;
          const x = view.gutter + (found.start[i] - view.start) * scale;
          context.fillRect(x, 2 + n * tall, Math.max(found.duration[i] * scale, 0.5), Math.max(tall, 1));
        }
      });
      context.globalAlpha = 1;
    }
  }

  Object.assign(Timeline, { AxisPainter, SIZES });
})();
