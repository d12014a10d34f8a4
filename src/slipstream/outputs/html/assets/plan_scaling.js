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

  class Scaling {
    constructor(place, state) {
      Object.assign(this, { place, state, points: state.data.scaling });
      this.sizes = new ResizeObserver(() => this.width !== place.clientWidth && this.draw());
      this.sizes.observe(place);
    }

    draw() {
      const { place, points } = this;
      this.width = place.clientWidth;
      if (!this.width || points.length < 2) return;
      const isWide = this.width >= BESIDE_PX;
      const [left, right] = isWide ? [Math.round(this.width * 0.56), Math.round(this.width * 0.42)] : [this.width, this.width];
      const { unit } = this.state.data;
      const later = points.slice(1);
      const rates = element("figure", {}, element("figcaption", { class: "key-row" }, mark("line", `${unit}/s`), mark("ideal", "ideal"),
        later.some((one) => one.same) ? mark("strong", "strong scaling: the same work in a step") : null,
        later.some((one) => !one.same) ? mark("weak", "weak scaling: other work in a step") : null), this.rates(left));
      const shares = element("figure", {}, element("figcaption", { class: "key-row" }, mark("line", "efficiency"), mark("exposed", "exposed communication")),
        this.shares(right));
      place.replaceChildren(rates, shares);
    }

    /** Throughput and the ideal line. */
    rates(wide) {
      const { points } = this;
      const [first] = points;
      const left = 66;
      const ideal = (one) => (first.rate / first.devices) * one.devices;
      const all = points.flatMap((one) => [one.rate, ideal(one)]).filter((rate) => rate > 0);
      const [low, high] = [Math.log(Math.min(...all) * 0.7), Math.log(Math.max(...all) * 1.2)];
      const sizes = points.map((one) => one.devices);
      const [few, many] = [Math.log(Math.min(...sizes)), Math.log(Math.max(...sizes))];
      const x = (one) => left + 26 + ((Math.log(one.devices) - few) / (many - few || 1)) * (wide - left - RIGHT - 60);
      const y = (rate) => FLOOR - ((Math.log(Math.max(rate, 1e-9)) - low) / (high - low || 1)) * (FLOOR - TOP);
      const made = this.frame(wide, left, x, `${this.state.data.unit}/s`);
      for (const value of this.roundNumbers(low, high)) {
        made.append(shape("path", { d: `M${left} ${y(value)}H${wide - RIGHT}` }), label(left - 8, y(value) + 4, amount(value), { "text-anchor": "end" }));
      }
      const line = (value, kind) => shape("path", { d: `M${points.map((one) => `${x(one)} ${y(value(one))}`).join("L")}`, class: kind });
      const dots = points.flatMap((one) => [
        shape("circle", { cx: x(one), cy: y(one.rate), r: 5, class: one.same || one === first ? "point" : "point weak" },
          shape("title", {}, `${one.machine}: ${amount(one.rate)} ${this.state.data.unit}/s`)),
        label(x(one) + 4, y(one.rate) + 20, amount(one.rate), { "text-anchor": "middle", class: "end" }),
      ]);
      return drawing(wide, TALL, made, line(ideal, "ideal"), line((one) => one.rate, "front-line"), ...dots);
    }

    /** Efficiency as a line, exposed communication as bars. */
    shares(wide) {
      const { points } = this;
      const left = 44;
      const most = Math.max(1, ...points.map((one) => one.efficiency)) * 1.08;
      const room = (wide - left - RIGHT) / points.length;
      const x = (one) => left + room * (points.indexOf(one) + 0.5);
      const y = (part) => FLOOR - (part / most) * (FLOOR - TOP);
      const made = this.frame(wide, left, x, "");
      for (const part of [0, 0.25, 0.5, 0.75, 1]) {
        made.append(shape("path", { d: `M${left} ${y(part)}H${wide - RIGHT}` }), label(left - 8, y(part) + 4, `${100 * part}%`, { "text-anchor": "end" }));
      }
      const thick = Math.min(34, room * 0.5);
      const bars = points.flatMap((one) => [
        shape("rect", { x: x(one) - thick / 2, y: y(one.exposed), width: thick, height: FLOOR - y(one.exposed), class: "part part-exposed-communication" }),
        label(x(one), y(one.exposed) - 5, share(one.exposed, 0), { "text-anchor": "middle" }),
      ]);
      const line = shape("path", { d: `M${points.map((one) => `${x(one)} ${y(one.efficiency)}`).join("L")}`, class: "front-line" });
      const dots = points.flatMap((one) => [
        shape("circle", { cx: x(one), cy: y(one.efficiency), r: 4, class: "point" }),
        label(x(one), y(one.efficiency) + 20, share(one.efficiency, 0), { "text-anchor": "middle", class: "end" }),
      ]);
      return drawing(wide, TALL, made, ...bars, line, ...dots);
    }

    /** The floor, the numbers of devices, the names of both axes. */
    frame(wide, left, x, name) {
      const made = shape("g", { class: "grid" });
      let end = -Infinity;
      for (const one of this.points) {
        const text = one.devices.toLocaleString("en");
        if (x(one) - 4 * text.length < end + 6) continue; // no room for its number
        end = x(one) + 4 * text.length;
        made.append(label(x(one), FLOOR + 18, text, { "text-anchor": "middle" }));
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
