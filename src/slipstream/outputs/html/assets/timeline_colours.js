// Colours of a timeline and texts that fit: what its drawing needs to know of the page.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const SHADES = 5;
  const PHASES = ["forward", "backward", "remat", "optimizer"];
  const FALLBACK = {
    bg: "#ffffff", fg: "#1b1f24", muted: "#5b6570", line: "#d9dee4", accent: "#b3261e",
    compute: "#3b78c2", communication: "#d9822b", copy: "#7a5cc0", idle: "#d5d9de", host: "#5d8a66",
    forward: "#2f8f83", backward: "#b0567e", remat: "#c49a1f", optimizer: "#5f6fb0", structure: "#9aa4b0",
  };

  /** Colours of the page's theme as numbers, and shades of each kind that tell neighbours apart. */
  class Palette {
    constructor(element) {
      const style = getComputedStyle(element);
      this.font = `11px ${style.fontFamily}`;
      const probe = document.createElement("canvas");
      probe.width = probe.height = 1;
      const context = probe.getContext("2d", { willReadFrequently: true });
      this.rgb = {};
      for (const [name, fallback] of Object.entries(FALLBACK)) {
        context.clearRect(0, 0, 1, 1);
        context.fillStyle = fallback;
        context.fillStyle = style.getPropertyValue(`--${name}`).trim() || fallback;
        context.fillRect(0, 0, 1, 1);
        this.rgb[name] = Array.from(context.getImageData(0, 0, 1, 1).data.slice(0, 3));
        this[name] = css(this.rgb[name]);
      }
      this.shades = new Map();
      this.ink = new Map();
    }

    /** Fill of a slice: its kind's colour, a little different for each name. */
    fill(kind, name) {
      // Phases keep the legend's colours.
      const shade = PHASES.includes(kind) ? 0 : hash(name) % SHADES;
      const key = `${kind}/${shade}`;
      if (!this.shades.has(key)) {
        const plain = this.rgb[kind] || this.rgb.muted;
        const dark = luminance(plain) > 0.17;
        // Away from its text's colour, so that every shade is as readable as the plain one.
        const mixed = mix(plain, dark ? [255, 255, 255] : [0, 0, 0], shade * 0.09);
        this.shades.set(key, css(mixed));
        this.ink.set(css(mixed), dark ? "#0d1117" : "#ffffff");
      }
      return this.shades.get(key);
    }
  }

  const css = (rgb) => `rgb(${rgb.map(Math.round).join(",")})`;
  const mix = (a, b, share) => a.map((value, i) => value * (1 - share) + b[i] * share);

  function luminance(rgb) {
    const [r, g, b] = rgb.map((value) => Math.pow(value / 255, 2.2));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  }

  const HASHES = new Map();
  function hash(text) {
    let value = HASHES.get(text);
    if (value === undefined) {
      value = 7;
      for (let i = 0; i < text.length; i++) value = (value * 31 + text.charCodeAt(i)) >>> 0;
      HASHES.set(text, value);
    }
    return value;
  }

  /** Text cut to a width in pixels, or "" where not even a few letters fit. */
  const WIDTHS = new Map();
  function widthFor(context, text) {
    if (!WIDTHS.has(text)) WIDTHS.set(text, context.measureText(text).width);
    return WIDTHS.get(text);
  }

  const fitted = (context, text, width) => window.SlipstreamLabels.shortened(text, width, (one) => widthFor(context, one));

  /** Text cut by its end to a width, always at least a letter. */
  function cutTo(context, text, width) {
    let cut = text;
    while (cut.length > 2 && context.measureText(cut === text ? cut : `${cut}…`).width > width) {
      cut = cut.slice(0, -1);
    }
    return cut === text ? text : `${cut}…`;
  }

  /** How wide a text is that `fitted` has measured; all is forgotten when fonts may have changed. */
  const widthOf = (text) => WIDTHS.get(text);
  const forgetWidths = () => WIDTHS.clear();

  Object.assign(Timeline, { FALLBACK, Palette, fitted, cutTo, widthOf, widthFor, forgetWidths });
})();
