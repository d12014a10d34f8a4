// What the drawings of a plan share: elements, numbers, ticks, and the box beside the pointer.
(() => {
  "use strict";
  const { time, bytes, share } = window.SlipstreamNumbers;
  const SPACE = "http://www.w3.org/2000/svg";

  function element(name, attributes, ...children) {
    const made = document.createElement(name);
    for (const [key, value] of Object.entries(attributes)) {
      if (value === true) made.setAttribute(key, "");
      else if (value !== false && value !== null && value !== undefined) made.setAttribute(key, value);
    }
    made.append(...children.flat().filter((child) => child !== null && child !== undefined && child !== ""));
    return made;
  }

  function shape(name, attributes, ...children) {
    const made = document.createElementNS(SPACE, name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.append(...children);
    return made;
  }

  const label = (x, y, text, attributes) => shape("text", { x, y, ...attributes }, text);

  /** A drawing of a size in pixels, which shrinks with the page. */
  function drawing(wide, tall, ...children) {
    return shape("svg", { viewBox: `0 0 ${wide} ${tall}`, width: wide, height: tall, "aria-hidden": "true" }, ...children);
  }

  /** Moves texts that share a place down, until each has a line of its own. */
  function apart(texts) {
    const placed = [];
    const number = (text, name) => Number(text.getAttribute(name));
    for (const text of [...texts].sort((a, b) => number(a, "y") - number(b, "y"))) {
      const [x, y] = [number(text, "x"), number(text, "y")];
      let free = y;
      const isTaken = (one) => Math.abs(one.x - x) < 90 && Math.abs(one.y - free) < 14;
      while (placed.some(isTaken)) free = Math.max(...placed.filter(isTaken).map((one) => one.y)) + 14;
      placed.push({ x, y: free });
      text.setAttribute("y", String(free));
    }
    return texts;
  }

  // ---- numbers --------------------------------------------------------------------------------

  /** As formatting.py's amount_text. */
  function amount(value) {
    const size = Math.abs(value);
    for (const [scale, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"]]) {
      if (size >= 0.9995 * scale) return `${Number((value / scale).toPrecision(3))}${letter}`;
    }
    if (size >= 100) return Number(value.toPrecision(3)).toLocaleString("en");
    return String(Number(value.toPrecision(3)));
  }

  const signed = (part) => `${part < 0 ? "−" : "+"}${(100 * Math.abs(part)).toFixed(Math.abs(part) < 0.1 ? 1 : 0)}%`;

  /** About `count` round numbers from `low` to `high`. */
  function ticks(low, high, count) {
    const rough = (high - low) / Math.max(count, 1);
    if (!(rough > 0)) return [low];
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 2.5, 5, 10].find((one) => one * power >= rough) * power;
    const found = [];
    for (let at = Math.ceil(low / step - 1e-9); at * step <= high + step * 1e-9; at += 1) found.push(at * step);
    return found;
  }

  // ---- a candidate in words -------------------------------------------------------------------

  /** Whether its step and throughput are bounds; those that don't fit may have been simulated. */
  const isBound = (one) => one.basis === "bound" || one.status === "cannot win";
  const stepText = (one) => (one.us === undefined ? "–" : isBound(one) ? `at least ${time(one.us)}` : time(one.us));
  const rateText = (one, unit) => `${isBound(one) ? "at most " : one.fits ? "" : "would be "}${amount(one.rate)} ${unit}/s`;

  /** What the box beside the pointer says of a candidate. */
  function about(state, one) {
    const { unit } = state.data;
    const best = one === state.best;
    const head = element("b", {}, `Candidate ${one.number}${best ? ", the best" : ""}`);
    const list = element("dl", {});
    const add = (name, value) => list.append(element("dt", {}, name), element("dd", {}, value));
    for (const [name, value] of state.pairs(one)) add(name, value);
    if (!one.fits) add("status", one.status);
    if (one.rate !== undefined) {
      const part = state.relative(one);
      const more = best || part === null || !one.fits ? "" : ` (${signed(part)})`;
      add("throughput", `${rateText(one, unit)}${more}`);
    }
    if (one.us !== undefined) add("step", stepText(one));
    if (one.memory !== undefined) {
      const { limit, capacity } = state.machine;
      add("memory", `${one.basis === "bound" ? "at least " : ""}${bytes(one.memory)}${limit || capacity ? ` of ${bytes(limit || capacity)}` : ""}`);
    }
    const [first] = one.limits || [];
    if (first) add("mostly", `${first[0]}, ${share(first[1], 0)}`);
    const why = one.why ? element("p", {}, one.why) : null;
    return [head, list, why];
  }

  /** The box, next to a place on the screen. */
  class Tip {
    constructor(state) {
      this.state = state;
      this.element = element("div", { class: "tip", role: "status", hidden: true });
      document.body.append(this.element);
    }

    show(one, x, y) {
      const box = this.element;
      if (this.shown !== one) box.replaceChildren(...about(this.state, one).filter(Boolean));
      this.shown = one;
      box.hidden = false;
      const { width, height } = box.getBoundingClientRect();
      const left = x + 18 + width > window.innerWidth ? x - width - 18 : x + 18;
      const top = Math.min(Math.max(8, y - height / 2), window.innerHeight - height - 8);
      Object.assign(box.style, { left: `${Math.max(4, Math.min(left, window.innerWidth - width - 4))}px`, top: `${top}px` });
    }

    hide() { this.element.hidden = true; this.shown = null; }
  }

  // ---- keys of colours ------------------------------------------------------------------------

  function mark(kind, text) {
    const inside = {
      best: shape("path", { d: "M0 6H24", class: "line best" }),
      selected: shape("path", { d: "M0 6H24", class: "line selected" }),
      failed: shape("path", { d: "M0 6H24", class: "line failed key-line" }),
      front: shape("path", { d: "M1 10H12V3H23", class: "front-line" }),
      limit: shape("path", { d: "M12 0V12", class: "rule limit-rule" }),
      capacity: shape("path", { d: "M12 0V12", class: "rule" }),
      dot: shape("circle", { cx: 12, cy: 6, r: 4, class: "dot level-6" }),
      cross: shape("path", { d: "M9 3l6 6m0-6l-6 6", class: "cross" }),
      bound: shape("path", { d: "M8 4h8l-4 6z", class: "bound" }),
      line: shape("path", { d: "M0 6H24", class: "front-line" }),
      exposed: shape("rect", { x: 6, width: 12, height: 12, class: "part part-exposed-communication" }),
      ideal: shape("path", { d: "M0 10L24 2", class: "ideal" }),
      strong: shape("path", { d: "M0 6H24", class: "strong-line" }),
    }[kind];
    const key = shape("svg", { viewBox: "0 0 24 12", width: 24, height: 12, "aria-hidden": "true" }, inside);
    return element("span", { class: "mark-key" }, key, text);
  }

  /** The colours of throughput, from the least to the most; nothing if none has any. */
  function ramp(state) {
    if (!(state.most > 0)) return "";
    const boxes = [...Array(8).keys()].map((at) => shape("rect", { x: at * 12, width: 12.5, height: 10, class: `fill-level-${at}` }));
    const key = shape("svg", { viewBox: "0 0 96 10", width: 96, height: 10, "aria-hidden": "true" }, ...boxes);
    return element("span", { class: "mark-key" }, amount(state.least), key, `${amount(state.most)} ${state.data.unit}/s`);
  }

  window.SlipstreamPlanDrawing = { element, shape, label, drawing, apart, amount, signed, ticks, isBound, stepText, rateText, about, Tip, mark, ramp };
})();
