// What a timeline knows of its source: asks for what is in sight, and keeps the answers.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const MOST_OVERVIEW = 40;

  /** The part of a view that asks; one question at a time. */
  class Asking {
    /** Ask the source for what is to be seen, unless it is here; one question at a time. */
    async ask() {
      if (this.asking || this.gone || !this.width || this.covers()) return undefined;
      const span = this.to - this.from;
      const from = Math.max(this.start, this.from - span / 2);
      const to = Math.min(this.end, this.to + span / 2);
      const pixels = Math.max(1, Math.round(((this.width - this.gutter) * (to - from)) / span));
      const source = this.source;
      const wanted = this.inSight();
      this.asking = true;
      try {
        const found = await source.slices(from, to, pixels, wanted);
        if (source === this.source && !this.gone) this.take(found, from, to, span, wanted);
        if (!this.whole) await this.askOverview(source);
      } catch (error) {
        // Not asked again until something moves; of another source, nobody wants to know.
        if (source === this.source) return this.failed(error);
      } finally {
        this.asking = false;
      }
      return this.gone ? undefined : this.ask();
    }

    /** A source that doesn't answer is the page's to tell of. */
    failed(error) {
      if (!this.options.onError) throw error;
      this.options.onError(error);
    }

    /** The whole time on the lanes of the overview, where it is not what was asked for already. */
    async askOverview(source) {
      const wanted = { lanes: this.overviewLanes().map((lane) => lane.id), tops: [] };
      const found = await source.slices(this.start, this.end, this.width - this.gutter, wanted);
      if (source !== this.source || this.gone) return;
      this.whole = answered(found, this.start, this.end, this.end - this.start, wanted);
      this.painter.staleOverview = true;
      this.draw();
    }

    /** Streams of devices; where there are none, whatever lanes there are. */
    overviewLanes() {
      const streams = this.source.lanes.filter((lane) => lane.kind === "stream");
      const lanes = streams.length ? streams : this.source.lanes.filter((lane) => lane.kind !== "counter");
      return lanes.slice(0, MOST_OVERVIEW);
    }

    /** Lanes in sight, or nearly; of those in collapsed groups and folded ones only the top. */
    inSight() {
      const shown = this.height - this.top;
      const near = (row) => row.y < this.scroll + 2 * shown && row.y + row.height > this.scroll - shown;
      const lanes = [];
      const tops = [];
      for (const row of this.rows.filter(near)) {
        if (row.lane) (row.folded ? tops : lanes).push(row.lane.id);
        else if (row.collapsed) tops.push(...row.squeezed.map((lane) => lane.id));
      }
      return { lanes, tops };
    }

    covers() {
      const known = this.current;
      if (!known || known.span !== this.to - this.from) return false;
      if (known.from > this.from || known.to < this.to) return false;
      const { lanes, tops } = this.inSight();
      return lanes.every((id) => known.full.has(id))
        && tops.every((id) => known.full.has(id) || known.top.has(id));
    }

    take(found, from, to, span, wanted) {
      this.current = answered(found, from, to, span, wanted);
      if (found.steps) this.steps = numbered(found.steps);
      const whole = from <= this.start && to >= this.end && span >= this.end - this.start;
      if (whole && this.overviewLanes().every((lane) => this.current.byLane.has(lane.id))) {
        this.whole = this.current;
        this.painter.staleOverview = true;
      }
      this.bar.kinds(found.kinds);
      this.element.dataset.ready = String(Number(this.element.dataset.ready || 0) + 1);
      this.draw();
    }

    /** What a slice is called: what it does, or its HLO name where that is wanted. */
    nameOf(slice) {
      return (!this.isHlo && slice.readable) || slice.name;
    }

    /** What else is known of it: the other of its names, its scope, its source line. */
    saidOf(slice) {
      const other = slice.readable ? (this.isHlo ? slice.readable : slice.name) : "";
      return [other, slice.description].filter(Boolean).join(" · ");
    }

    /** Answers to draw, the coarse one first where the fine one doesn't reach. */
    layers() {
      const known = this.current;
      if (!known) return this.whole ? [{ ...this.whole, hidden: null }] : [];
      if (!this.whole || (known.from <= this.from && known.to >= this.to)) return [known];
      return [{ ...this.whole, hidden: [known.from, known.to] }, known];
    }
  }

  /** Steps with a number each, by which every other one is shaded. */
  function numbered(steps) {
    return steps.map((step, number) => ({ number, ...step }));
  }

  /** An answer, with what it was asked for. */
  function answered(found, from, to, span, wanted) {
    const byLane = new Map(found.lanes.map((lane) => [lane.id, lane]));
    const [full, top] = [new Set(wanted.lanes), new Set(wanted.tops)];
    return { ...found, byLane, from, to, span, full, top };
  }

  /** One row of an answer's columns as an object. */
  function sliceOf(data, found, i) {
    return {
      lane: found.id,
      start_us: found.start[i],
      duration_us: found.duration[i],
      depth: found.depth ? found.depth[i] : 0,
      count: found.count[i],
      name: data.names[found.name[i]],
      readable: data.readable ? data.readable[found.name[i]] : "",
      description: data.descriptions ? data.descriptions[found.name[i]] : "",
      kind: data.kinds[found.kind[i]],
    };
  }

  Object.assign(Timeline, { Asking, numbered, sliceOf });
})();
