// Numbers as units.py and formatting.py write them.
(() => {
  "use strict";

  function digits(value) {
    if (Math.abs(value) >= 100) return value.toFixed(0);
    const text = value.toFixed(Math.abs(value) >= 10 ? 1 : 2);
    return text.replace(/0+$/, "").replace(/\.$/, "");
  }

  function scaled(value, units, smallest) {
    for (const [scale, unit] of units) {
      if (Math.abs(value) >= scale * 0.9995) return `${digits(value / scale)} ${unit}`;
    }
    return `${value.toFixed(0)} ${smallest}`;
  }

  const TIMES = [[1e12, "s"], [1e9, "ms"], [1e6, "µs"], [1e3, "ns"]];
  const SIZES = [[1e12, "TB"], [1e9, "GB"], [1e6, "MB"], [1e3, "kB"]];
  const time = (us) => scaled(us * 1e6, TIMES, "ps");
  const bytes = (size) => scaled(size, SIZES, "B");

  function share(value, places = 1) {
    const least = Math.pow(10, -(places + 2));
    if (value > 1e-9 && value < least / 2) return `<${(100 * least).toFixed(places)}%`;
    if (value > 1 - least / 2 && value < 1 - 1e-9) return `${(100 * (1 - least)).toFixed(places)}%`;
    if (Math.abs(value - 1) < 1e-9) return "100%";
    return `${(100 * value).toFixed(places)}%`;
  }

  function flops(count) {
    return scaled(count, [[1e15, "PFLOP"], [1e12, "TFLOP"], [1e9, "GFLOP"], [1e6, "MFLOP"], [1e3, "kFLOP"]], "FLOP");
  }

  window.SlipstreamNumbers = { digits, scaled, time, bytes, share, flops };
})();
