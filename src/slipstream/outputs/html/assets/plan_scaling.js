// Throughput over the number of devices, both logarithmic, next to what would be ideal.
(() => {
  "use strict";
  const { shape, label, drawing, amount, mark } = window.SlipstreamPlanDrawing;
  const { share } = window.SlipstreamNumbers;
  const TALL = 320;
  const LEFT = 70;
  const RIGHT = 34;
  const TOP = 34;
  const LOW = 44;

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
      const [first] = points;
      const ideal = (one) => (first.rate / first.devices) * one.devices;
      const low = Math.log(Math.min(...points.map((one) => Math.min(one.rate, ideal(one)))) * 0.8);
      const high = Math.log(Math.max(...points.map((one) => Math.max(one.rate, ideal(one)))) * 1.15);
      const sizes = points.map((one) => one.devices);
      const [few, many] = [Math.log(Math.min(...sizes)), Math.log(Math.max(...sizes))];
      const x = (devices) => LEFT + 30 + ((Math.log(devices) - few) / (many - few || 1)) * (this.width - LEFT - RIGHT - 60);
      const y = (rate) => TALL - LOW - ((Math.log(rate) - low) / (high - low || 1)) * (TALL - LOW - TOP);
      const line = (values, kind) => shape("path", { d: `M${points.map((one, i) => `${x(one.devices)} ${y(values[i])}`).join("L")}`, class: kind });
      const dots = points.flatMap((one) => [
        shape("circle", { cx: x(one.devices), cy: y(one.rate), r: 5, class: one.same ? "point" : "point weak" },
          shape("title", {}, `${one.machine}: ${amount(one.rate)} ${this.state.data.unit}/s`)),
        label(x(one.devices), y(one.rate) + 21, `${share(one.efficiency, 0)}`, { "text-anchor": "middle", class: "end best" }),
        label(x(one.devices), y(one.rate) + 35, `${share(one.exposed, 0)} exposed`, { "text-anchor": "middle" }),
      ]);
      place.replaceChildren(drawing(this.width, TALL, this.grid(x, y, low, high), line(points.map(ideal), "ideal"),
        line(points.map((one) => one.rate), "front-line"), ...dots));
      const later = points.slice(1);
      document.getElementById("scaling-key").replaceChildren(mark("front", `${this.state.data.unit}/s of the best candidate, efficiency below`), mark("ideal", "ideal"),
        ...(later.some((one) => one.same) ? [mark("strong", "strong: the same work in a step")] : []),
        ...(later.some((one) => !one.same) ? [mark("weak", "weak: more work in a step")] : []));
    }

    grid(x, y, low, high) {
      const made = shape("g", { class: "grid" });
      for (let power = Math.floor(low / Math.LN10); power <= high / Math.LN10; power += 1) {
        for (const digit of [1, 2, 5]) {
          const value = digit * 10 ** power;
          if (Math.log(value) < low || Math.log(value) > high) continue;
          made.append(shape("path", { d: `M${LEFT} ${y(value)}H${this.width - RIGHT}` }), label(LEFT - 8, y(value) + 4, amount(value), { "text-anchor": "end" }));
        }
      }
      for (const one of this.points) made.append(label(x(one.devices), TALL - LOW + 18, one.devices.toLocaleString("en"), { "text-anchor": "middle" }));
      made.append(shape("path", { d: `M${LEFT} ${TALL - LOW}H${this.width - RIGHT}`, class: "floor" }),
        label((LEFT + this.width - RIGHT) / 2, TALL - 6, "devices", { "text-anchor": "middle" }),
        label(LEFT, 14, `${this.state.data.unit}/s`, { "text-anchor": "start" }));
      return made;
    }

    changed() {}
  }

  window.SlipstreamPlanScaling = Scaling;
})();
