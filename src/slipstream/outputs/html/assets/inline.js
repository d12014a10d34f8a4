// A result inside a notebook: as high as its content, light or dark as what is around it.
(() => {
  "use strict";
  const root = document.documentElement;
  let frame = null;
  try {
    frame = window.frameElement;
  } catch {
    // A notebook that keeps its frames apart: the first height stays, and the system's colours.
  }
  if (!frame) return;

  /** The notebook's background: the first one around the frame that is not transparent. */
  function background() {
    for (let one = frame; one; one = one.parentElement) {
      const parts = getComputedStyle(one).backgroundColor.match(/[\d.]+/g)?.map(Number);
      if (parts && (parts.length < 4 || parts[3] > 0.5)) return parts;
    }
    return null;
  }

  function follow() {
    const rgb = background();
    if (!rgb) return;
    root.dataset.theme = 0.3 * rgb[0] + 0.6 * rgb[1] + 0.1 * rgb[2] < 128 ? "dark" : "light";
    // Not transparent: a browser paints a frame of another colour scheme than its surroundings.
    document.body.style.background = `rgb(${rgb.slice(0, 3).join(" ")})`;
  }

  function fit() {
    const height = `${Math.ceil(document.body.getBoundingClientRect().height)}px`;
    if (frame.style.height !== height) frame.style.height = height;
  }

  // A link must not replace the result.
  for (const link of document.querySelectorAll('a[href^="http"]')) link.target = "_blank";
  follow();
  fit();
  new ResizeObserver(fit).observe(document.body);
  const around = frame.ownerDocument;
  const watch = new MutationObserver(follow);
  for (const one of [around.documentElement, around.body]) {
    watch.observe(one, { attributes: true, attributeFilter: ["class", "style", "data-jp-theme-light"] });
  }
})();
