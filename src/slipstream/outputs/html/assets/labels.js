// Names that fit into the boxes of a picture: wrapped where there is room, cut where there is none.  A size at
// the end of a name (`all-gather w1, w2 29.5 MB`) stays when the name is cut, and no number is cut in two.
//
// SlipstreamLabels.shortened(text, width, widthOf) -> text, or "" where not even a few letters fit
// SlipstreamLabels.wrapped(text, width, lines, widthOf) -> [line…], none where nothing fits
(() => {
  "use strict";
  const AMOUNT = / \d[\d.,]* [kMGT]?B$/;
  const IN_NUMBER = /[\d.,]/;
  const LEAST = 3;

  /** How many letters of a text fit, about; never a part of a number. */
  function letters(text, width, widthOf) {
    let count = Math.min(text.length, Math.floor((text.length * width) / (widthOf(text) || 1)));
    while (count > 0 && IN_NUMBER.test(text[count - 1]) && /\d/.test(text[count] || "")) count--;
    return count;
  }

  function shortened(text, width, widthOf) {
    const whole = widthOf(text);
    if (whole <= width) return text;
    const [amount] = AMOUNT.exec(text) || [""];
    const name = text.slice(0, text.length - amount.length);
    for (const end of amount ? [`…${amount}`, "…"] : ["…"]) {
      const count = letters(name, width - widthOf(end), widthOf);
      if (count >= LEAST) return `${name.slice(0, count).replace(/[\s,]+$/, "")}${end}`;
    }
    return "";
  }

  /** Lines broken after a space or a sign; a part that is too wide for a line is a line of its own. */
  function packed(text, width, widthOf) {
    const lines = [];
    let line = "";
    for (const word of text.split(/(?<=[\s/_\-→=,])/)) {
      if (line && widthOf((line + word).trimEnd()) > width) {
        lines.push(line);
        line = "";
      }
      line += word;
    }
    return [...lines, line];
  }

  function wrapped(text, width, most, widthOf) {
    if (most < 1) return [];
    if (widthOf(text) <= width) return [text];
    const amount = (AMOUNT.exec(text) || [""])[0].trim();
    if (amount && most > 1 && widthOf(amount) <= width) {
      const name = wrapped(text.slice(0, text.length - amount.length - 1), width, most - 1, widthOf);
      return name.length ? [...name, amount] : [];
    }
    const lines = packed(text, width, widthOf);
    const fit = [];
    while (fit.length < most && lines.length) {
      const isLast = fit.length === most - 1;
      const whole = (isLast ? lines.join("") : lines[0]).trim();
      const line = shortened(whole, width, widthOf);
      if (!line) return [];
      fit.push(line);
      if (line !== whole) break;
      lines.shift();
    }
    return fit;
  }

  window.SlipstreamLabels = { shortened, wrapped };
})();
