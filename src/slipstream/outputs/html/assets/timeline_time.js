// Times that people read, for the timeline: text of a duration, and ticks of an axis.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});

  const UNITS = [
    ["s", 1e6],
    ["ms", 1e3],
    ["µs", 1],
    ["ns", 1e-3],
    ["ps", 1e-6],
  ];

  /** The unit in which a time of this size reads best: [name, µs]. */
  function unitOf(us) {
    const size = Math.abs(us);
    return UNITS.find(([, unit]) => size >= unit * 0.9999) || UNITS[UNITS.length - 1];
  }

  /** A duration with three or four digits: 1.25 ms. */
  function duration(us) {
    if (!us) return "0";
    const [name, unit] = unitOf(us);
    const value = us / unit;
    const digits = Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 2;
    return `${value.toFixed(digits).replace(/\.0+$/, "")} ${name}`;
  }

  /** A point in time, as exact as `precision_us` asks for: 1.234567 s. */
  function instant(us, precision_us) {
    const [name, unit] = unitOf(Math.max(Math.abs(us), precision_us || 0) || 1);
    const digits = Math.max(0, Math.min(12, Math.ceil(Math.log10(unit / (precision_us || 1e-3)))));
    return `${(us / unit).toFixed(digits)} ${name}`;
  }

  /** Steps of 1, 2 or 5 times a power of ten. */
  function niceStep(us) {
    const power = Math.pow(10, Math.floor(Math.log10(us)));
    const rest = us / power;
    return power * (rest > 5.0001 ? 10 : rest > 2.0001 ? 5 : rest > 1.0001 ? 2 : 1);
  }

  /**
   * Ticks between two times: {base, ticks: [{us, text}]}.
   * Deep in a long recording ticks count from `base`, or their texts would be all digits.
   */
  function ticks(from, to, most) {
    const step = niceStep((to - from) / Math.max(1, most));
    const [name, unit] = unitOf(step);
    const digits = Math.max(0, Math.ceil(-Math.log10(step / unit) - 1e-9));
    const far = Math.max(Math.abs(from), Math.abs(to));
    const base = far / step > 5e4 ? Math.floor(from / (step * 1000)) * step * 1000 : 0;
    const marks = [];
    // Counted in whole steps, so that rounding doesn't add up.
    for (let i = Math.ceil((from - base) / step); base + i * step <= to; i++) {
      const text = `${((i * step) / unit).toFixed(digits)} ${name}`;
      marks.push({ us: base + i * step, text: base ? `+${text}` : text });
    }
    return { base, step, ticks: marks };
  }

  Timeline.time = { duration, instant, ticks };
})();
