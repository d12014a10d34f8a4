// What the views of a plan share: the machine, its candidates, filters, and the selection.
//
// new SlipstreamPlanState(data) -> state
// state.listen(function of what changed: "machine", "filter", "selection", "hover")
(() => {
  "use strict";
  const MOST_SELECTED = 6;
  const UNKNOWN = "not known";
  const FAILED = ["does not fit", "cannot win"]; // statuses with a group of their own

  class State {
    constructor(data) {
      this.data = data;
      this.listeners = [];
      this.hovered = null;
      this.showMachine(data.first);
    }

    listen(listener) { this.listeners.push(listener); }

    tell(what) { for (const listener of this.listeners) listener(what); }

    // ---- the machine ------------------------------------------------------------------------

    showMachine(at) {
      this.at = at;
      this.machine = this.data.machines[at];
      this.candidates = this.machine ? this.machine.candidates : [];
      this.byNumber = new Map(this.candidates.map((one) => [one.number, one]));
      this.best = this.machine && this.machine.best !== null ? this.byNumber.get(this.machine.best) : null;
      this.selected = [];
      this.filters = new Map();
      this.hidesFailed = false;
      this.hovered = null;
      const rates = this.candidates.filter((one) => one.fits && one.rate).map((one) => one.rate);
      this.most = Math.max(0, ...rates);
      this.least = rates.length ? Math.min(...rates) : 0;
      // Choices that have more than one value here.
      this.choices = this.data.names
        .map((name, index) => ({ name, index, values: this.machine ? this.machine.values[index] : [] }))
        .filter((one) => one.values.length > 1);
      this.visible = this.found();
    }

    // ---- candidates -------------------------------------------------------------------------

    /** 0 to 7 for candidates that fit, by throughput; -1 for the others. */
    level(one) {
      if (!one.fits || !one.rate) return -1;
      const span = this.most - this.least;
      return span > 0 ? Math.min(7, Math.floor((8 * (one.rate - this.least)) / span)) : 7;
    }

    /** `does not fit`, `cannot win` or `failed`; empty for those that fit and have a throughput. */
    group(one) {
      if (one.fits) return one.rate === undefined ? UNKNOWN : "";
      return FAILED.includes(one.status) ? one.status : "failed";
    }

    /** What most of these candidates failed by. */
    reason(inside) {
      const counts = new Map();
      for (const one of inside) counts.set(one.status, (counts.get(one.status) || 0) + 1);
      return [...counts].sort((a, b) => b[1] - a[1])[0]?.[0] || "not tried";
    }

    /** The end of an axis of memory: the capacity, unless all candidates are far from it. */
    mostMemory() {
      const { capacity } = this.machine;
      const most = Math.max(0, ...this.candidates.map((one) => one.memory ?? 0));
      if (!capacity || most < 0.3 * capacity) return most * 1.1;
      return Math.max(capacity * 1.06, Math.min(most, capacity * 1.5));
    }

    value(one, index) { return one.values[index] < 0 ? "–" : this.machine.values[index][one.values[index]]; }

    /** [name, value] of the choices that vary, or of all if none does. */
    pairs(one) {
      const shown = this.choices.length ? this.choices : this.data.names.map((name, index) => ({ name, index }));
      return shown.map(({ name, index }) => [name, this.value(one, index)]);
    }

    /** What differs from the best, in short. */
    short(one) {
      const { best } = this;
      const named = this.choices.filter(({ index }) => !best || one === best || one.values[index] !== best.values[index]);
      return named.map(({ name, index }) => `${name} ${this.value(one, index)}`).join(" · ");
    }

    relative(one) { return this.best && this.best.rate && one.rate ? one.rate / this.best.rate - 1 : null; }

    // ---- filters: a set of values for each choice, a range of memory or throughput -----------

    matches(one, except) {
      if (this.hidesFailed && !one.fits) return false;
      for (const [axis, wanted] of this.filters) {
        if (axis === except) continue;
        if (axis === "memory" || axis === "rate") {
          const value = one[axis];
          if (wanted.groups) { if (!wanted.groups.has(this.group(one))) return false; }
          else if (value === undefined || (axis === "rate" && !one.fits) || value < wanted.low || value > wanted.high) return false;
        } else if (!wanted.has(one.values[axis])) return false;
      }
      return true;
    }

    found() { return this.candidates.filter((one) => this.matches(one)); }

    changeFilter(change) {
      change();
      this.visible = this.found();
      this.tell("filter");
    }

    /** Adds a value of a choice to its filter, or takes it away. */
    toggleValue(index, value) {
      this.changeFilter(() => {
        const wanted = new Set(this.filters.get(index));
        if (!wanted.delete(value)) wanted.add(value);
        if (wanted.size) this.filters.set(index, wanted);
        else this.filters.delete(index);
      });
    }

    toggleGroup(group) {
      this.changeFilter(() => {
        const before = this.filters.get("rate");
        const groups = new Set(before ? before.groups : []);
        if (!groups.delete(group)) groups.add(group);
        if (groups.size) this.filters.set("rate", { groups });
        else this.filters.delete("rate");
      });
    }

    setRange(axis, range) {
      this.changeFilter(() => (range ? this.filters.set(axis, range) : this.filters.delete(axis)));
    }

    setHidesFailed(hides) { this.changeFilter(() => { this.hidesFailed = hides; }); }

    clearFilters() { this.changeFilter(() => { this.filters.clear(); this.hidesFailed = false; }); }

    // ---- selection --------------------------------------------------------------------------

    toggle(number) {
      if (!this.byNumber.has(number)) return;
      this.selected = this.selected.includes(number)
        ? this.selected.filter((one) => one !== number)
        : [...this.selected, number].slice(-MOST_SELECTED);
      this.tell("selection");
    }

    select(numbers) {
      this.selected = numbers.filter((one) => this.byNumber.has(one)).slice(-MOST_SELECTED);
      this.tell("selection");
    }

    hover(number) {
      if (this.hovered === number) return;
      this.hovered = number;
      this.tell("hover");
    }
  }

  window.SlipstreamPlanState = State;
})();
