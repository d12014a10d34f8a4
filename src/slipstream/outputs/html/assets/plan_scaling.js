// The best candidate by the number of devices: throughput next to what would be ideal, both
// logarithmic; and efficiency next to the share of exposed communication.
(() => {
  "use strict";
  const { element, shape, label, drawing, amount, mark } = window.SlipstreamPlanDrawing;
  const { share } = window.SlipstreamNumbers;
  const TALL = 290;
  const RIGHT = 24;
  const TOP = 30;
  const FLOOR = TALL - 44;
  const BESIDE_PX = 760; // less is no room for two drawings

  const points = (list, x, y) => `M${list.map((one) => `${x(one)} ${y(one)}`).join("L")}`;

  class Scaling {
    constructor(place, state) {
      const { scaling, strong } = state.data;
      Object.assign(this, { place, state, points: scaling, strong });
      // One line for each kind of GPU.
      const kinds = [...new Set(scaling.map((one) => one.gpu))];
      const byKind = (list, isStrong) => kinds.map((gpu) => ({ gpu, isStrong, points: list.filter((one) => one.gpu === gpu) }));
      this.hasKinds = kinds.length > 1;
      this.series = [...byKind(strong, true), ...byKind(scaling, false)].filter((one) => one.points.length);
      this.sizes = new ResizeObserver(() => this.width !== place.clientWidth && this.draw());
      this.sizes.observe(place);
    }

    draw() {
      this.width = this.place.clientWidth;
      if (!this.width || this.points.length < 2) return;
      const isWide = this.width >= BESIDE_PX;
      const [left, right] = isWide ? [Math.round(this.width * 0.56), Math.round(this.width * 0.42)] : [this.width, this.width];
      const key = (...marks) => element("figcaption", { class: "key-row" }, ...marks);
      const rates = element("figure", {}, key(mark("line", `${this.state.data.unit}/s of the best`), mark("ideal", "ideal"),
        this.strong.length ? mark("strong", "strong scaling: the same work in a step") : null), this.rates(left));
      const shares = element("figure", {}, key(mark("line", "efficiency"), mark("exposed", "exposed communication")), this.shares(right));
      this.place.replaceChildren(rates, shares);
    }

    /** Throughput and the ideal line. */
    rates(wide) {
      const left = 66;
      const all = this.series.flatMap((one) => one.points);
      const ideal = (one, [first]) => (first.rate / first.devices) * one.devices;
      const rates = this.series.flatMap(({ points: own }) => own.flatMap((one) => [one.rate, ideal(one, own)])).filter((rate) => rate > 0);
      const [low, high] = [Math.log(Math.min(...rates) * 0.7), Math.log(Math.max(...rates) * 1.2)];
      const [few, many] = [Math.log(Math.min(...all.map((one) => one.devices))), Math.log(Math.max(...all.map((one) => one.devices)))];
      const x = (one) => left + 26 + ((Math.log(one.devices) - few) / (many - few || 1)) * (wide - left - RIGHT - 60);
      const y = (rate) => FLOOR - ((Math.log(Math.max(rate, 1e-9)) - low) / (high - low || 1)) * (FLOOR - TOP);
      const made = this.frame(wide, left, x, `${this.state.data.unit}/s`, (one) => one.devices.toLocaleString("en"));
      for (const value of this.roundNumbers(low, high)) {
        made.append(shape("path", { d: `M${left} ${y(value)}H${wide - RIGHT}` }), label(left - 8, y(value) + 4, amount(value), { "text-anchor": "end" }));
      }
      const drawn = this.series.flatMap((one) => this.line(one, x, y, ideal));
      return drawing(wide, TALL, made, ...drawn);
    }

    line({ gpu, isStrong, points: own }, x, y, ideal) {
      const lines = [shape("path", { d: points(own, x, (one) => y(one.rate)), class: isStrong ? "strong-line" : "front-line" })];
      if (!isStrong) lines.unshift(shape("path", { d: points(own, x, (one) => y(ideal(one, own))), class: "ideal" }));
      const dots = own.map((one) => shape("circle", { cx: x(one), cy: y(one.rate), r: isStrong ? 4 : 5, class: isStrong ? "point strong" : "point" },
        shape("title", {}, `${one.machine}: ${amount(one.rate)} ${this.state.data.unit}/s`)));
      // Numbers stand above the line, which rises to the right.
      const texts = isStrong ? [] : own.map((one, at) => label(at ? x(one) - 7 : x(one), y(one.rate) - (at ? 7 : 12),
        this.hasKinds && at === own.length - 1 ? `${gpu} ${amount(one.rate)}` : amount(one.rate), { "text-anchor": at ? "end" : "middle", class: "end" }));
      return [...lines, ...dots, ...texts];
    }

    /** Efficiency as a line, exposed communication as bars. */
    shares(wide) {
      const { points: own } = this;
      const left = 44;
      const most = Math.max(1, ...own.map((one) => one.efficiency)) * 1.08;
      const room = (wide - left - RIGHT) / own.length;
      const x = (one) => left + room * (own.indexOf(one) + 0.5);
      const y = (part) => FLOOR - (part / most) * (FLOOR - TOP);
      const made = this.frame(wide, left, x, "", (one) => (this.hasKinds ? one.machine : one.devices.toLocaleString("en")));
      for (const part of [0, 0.25, 0.5, 0.75, 1]) {
        made.append(shape("path", { d: `M${left} ${y(part)}H${wide - RIGHT}` }), label(left - 8, y(part) + 4, `${100 * part}%`, { "text-anchor": "end" }));
      }
      const thick = Math.min(34, room * 0.5);
      const bars = own.flatMap((one) => [
        shape("rect", { x: x(one) - thick / 2, y: y(one.exposed), width: thick, height: FLOOR - y(one.exposed), class: "part part-exposed-communication" }),
        label(x(one), y(one.exposed) - 5, share(one.exposed, 0), { "text-anchor": "middle" }),
      ]);
      const lines = this.series.filter((one) => !one.isStrong).map((one) => shape("path", { d: points(one.points, x, (point) => y(point.efficiency)), class: "front-line" }));
      const dots = own.flatMap((one) => [
        shape("circle", { cx: x(one), cy: y(one.efficiency), r: 4, class: "point" }),
        label(x(one), y(one.efficiency) + 20, share(one.efficiency, 0), { "text-anchor": "middle", class: "end" }),
      ]);
      return drawing(wide, TALL, made, ...bars, ...lines, ...dots);
    }

    /** The floor, what is below it, and the names of both axes. */
    frame(wide, left, x, name, text) {
      const made = shape("g", { class: "grid" });
      let end = -Infinity;
      for (const one of this.points) {
        const half = 3.6 * text(one).length;
        if (x(one) - half < end + 6) continue; // no room for its number
        end = x(one) + half;
        made.append(label(x(one), FLOOR + 18, text(one), { "text-anchor": "middle" }));
      }
      made.append(shape("path", { d: `M${left} ${FLOOR}H${wide - RIGHT}`, class: "floor" }),
        label((left + wide - RIGHT) / 2, TALL - 6, "devices", { "text-anchor": "middle" }), label(left, 14, name, {}));
      return made;
    }

    /** 1, 2 and 5 of every power of ten; only the powers themselves if those are many. */
    roundNumbers(low, high) {
      const digits = high - low > Math.log(1000) ? [1] : [1, 2, 5];
      const found = [];
      for (let power = Math.floor(low / Math.LN10); power <= high / Math.LN10; power += 1) {
        found.push(...digits.map((digit) => digit * 10 ** power).filter((value) => Math.log(value) >= low && Math.log(value) <= high));
      }
      return found;
    }

    changed() {}
  }

  window.SlipstreamPlanScaling = Scaling;
})();
