// What of a timeline is selected, found and measured.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const { sliceOf } = Timeline;

  /** The part of a view that selects and searches. */
  class Selecting extends Timeline.Asking {
    // ---- selection --------------------------------------------------------------------------

    /** Select a slice that is at hand, and ask for what else is known of it. */
    async choose(slice) {
      this.selected = slice;
      this.partner = null;
      this.panel.brief(slice);
      this.draw();
      if (this.options.onSelect) this.options.onSelect(slice);
      this.measureSpan(slice);
      if (slice.count > 1) return undefined;
      let found;
      try {
        found = await this.source.detail(slice.lane, slice.start_us, slice.depth || 0);
      } catch (error) {
        return this.failed(error);
      }
      if (this.selected !== slice || !found) return undefined;
      this.partner = found.partner || null;
      this.panel.detail(slice, found);
      return this.draw();
    }

    /** What a span of structure holds is measured. */
    measureSpan(slice) {
      const lane = this.source.lanes.find((one) => one.id === slice.lane);
      if (!lane || lane.kind !== "structure" || !slice.duration_us) return;
      this.measure(slice.start_us, slice.start_us + slice.duration_us);
      if (this.options.onRange) this.options.onRange(...this.range);
    }

    select(lane, start_us, more) {
      const row = this.rowOf(lane);
      if (row && row.collapsed) {
        row.group.collapsed = false;
        this.layOut();
        this.resettle();
      }
      const place = this.rowOf(lane);
      const shown = this.height - this.top;
      if (place && (place.y < this.scroll || place.y + place.height > this.scroll + shown)) {
        this.scroll = 0;
        this.scrollBy(place.y - shown / 2);
      }
      const known = this.known(lane, start_us, more);
      return this.choose({ lane, start_us, ...known, ...more });
    }

    /** The slice that starts there, as far as the answers at hand have it. */
    known(lane, start_us, more) {
      for (const data of this.layers().reverse()) {
        const found = data.byLane.get(lane);
        const wanted = more && more.depth;
        const at = found ? found.start.findIndex((start, i) => Math.abs(start - start_us) < 1e-4
          && found.count[i] === 1 && (wanted === undefined || found.depth[i] === wanted)) : -1;
        if (at >= 0) return sliceOf(data, found, at);
      }
      return {};
    }

    selectNext(by) {
      const data = this.current;
      const lane = this.selected ? this.selected.lane : (this.rows.find((row) => row.lane) || {}).lane?.id;
      const found = data && data.byLane.get(lane);
      if (!found || !found.start.length) return;
      const depth = this.selected ? this.selected.depth || 0 : 0;
      const own = [...found.start.keys()].filter((i) => !found.depth || found.depth[i] === depth);
      const from = this.selected ? this.selected.start_us : this.from;
      const after = own.filter((i) => (found.start[i] - from) * by > 1e-4);
      const next = by > 0 ? after[0] : after.at(-1);
      if (next === undefined) return;
      const slice = sliceOf(data, found, next);
      this.choose(slice);
      this.reveal(slice);
    }

    /** Move so that a slice is in sight, and wide enough to be seen. */
    reveal(slice) {
      const span = this.to - this.from;
      const wide = slice.duration_us || 0;
      const pixel = span / (this.width - this.gutter);
      if (wide && wide < 4 * pixel) return this.zoomTo(slice.start_us - wide * 60, slice.start_us + wide * 61);
      if (slice.start_us < this.from || slice.start_us + wide > this.to) {
        const room = Math.max(span, wide * 1.2);
        this.zoomTo(slice.start_us + wide / 2 - room / 2, slice.start_us + wide / 2 + room / 2);
      }
      return undefined;
    }

    goTo(place) {
      this.select(place.lane, place.start_us, place);
      this.reveal(place);
    }

    clear() {
      this.hits = [];
      this.hitAt = -1;
      if (this.range && this.options.onRange) this.options.onRange(null, null);
      this.range = null;
      this.bar.clear();
      this.deselect();
      this.draw();
    }

    deselect() {
      this.selected = this.partner = null;
      this.panel.empty();
      this.panel.say("");
      if (this.options.onSelect) this.options.onSelect(null);
    }

    measure(one, other) {
      this.range = [Math.min(one, other), Math.max(one, other)];
      this.draw();
    }

    measured() {
      const [from, to] = this.range;
      this.panel.say(`${Timeline.time.duration(to - from)} measured`);
      if (this.options.onRange) this.options.onRange(from, to);
    }

    // ---- search -----------------------------------------------------------------------------

    async search(text) {
      this.wanted = this.searched = text;
      if (!text) {
        this.hits = [];
        this.hitAt = -1;
        this.bar.count(null);
        return this.draw();
      }
      const { readings } = this;
      let hits;
      try {
        hits = await this.source.search(text, this.from, this.to);
      } catch (error) {
        return this.failed(error);
      }
      if (this.wanted !== text || this.gone || readings !== this.readings) return undefined;
      this.hits = hits;
      this.hitAt = -1;
      this.bar.count(hits, -1);
      return this.draw();
    }

    async searchNow(text, by) {
      if (text !== this.searched || !this.hits.length) await this.search(text);
      this.nextHit(by);
    }

    nextHit(by) {
      if (!this.hits.length) return;
      // The best comes first, then they follow in time.
      this.hitAt = this.hitAt < 0 ? this.hits.best || 0
        : (this.hitAt + by + this.hits.length) % this.hits.length;
      const hit = this.hits[this.hitAt];
      this.bar.count(this.hits, this.hitAt);
      this.select(hit.lane, hit.start_us, { ...hit, count: 1 });
      this.reveal(hit);
    }
  }

  Timeline.Selecting = Selecting;
})();
