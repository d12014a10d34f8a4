// What people send each other: a place of the page in its address, a table as Markdown, a plot as an image.
//
// The address after `#`: a section's id, then what is seen in its timeline, as in
// `#timeline?from=12.5&to=80&lane=3&at=14.25`.  Times are microseconds.
(() => {
  "use strict";
  const PAUSE_MS = 250;

  // ---- the address --------------------------------------------------------------------------

  function parsed() {
    const [section, query] = decodeURIComponent(location.hash.slice(1)).split("?");
    const found = Object.fromEntries(new URLSearchParams(query || ""));
    return { section, ...found };
  }

  /** Keep what a timeline shows in the address, and begin with what the address says. */
  function follow(view, section) {
    let timer = 0;
    const opened = [view.from, view.to];
    const write = () => {
      const isMoved = view.from !== opened[0] || view.to !== opened[1];
      const place = !isMoved ? {} : { from: view.from.toFixed(3), to: view.to.toFixed(3) };
      const { selected } = view;
      if (selected) Object.assign(place, { lane: selected.lane, at: selected.start_us.toFixed(6), depth: selected.depth || 0 });
      const text = new URLSearchParams(place).toString();
      if (text || location.hash) history.replaceState(null, "", `#${section}${text ? `?${text}` : ""}`);
    };
    const later = () => { clearTimeout(timer); timer = setTimeout(write, PAUSE_MS); };
    const read = () => {
      const said = parsed();
      if (said.section !== section) return false;
      if (said.from) view.setView(Number(said.from), Number(said.to));
      const lane = view.source.lanes.find((one) => String(one.id) === said.lane);
      if (lane) view.select(lane.id, Number(said.at), { depth: Number(said.depth || 0), count: 1 });
      const isPlace = Boolean(said.from || lane);
      // The browser itself finds no element of such a name.
      const scroll = () => document.getElementById(section)?.scrollIntoView({ block: "start" });
      if (isPlace && document.readyState === "complete") scroll();
      else if (isPlace) window.addEventListener("load", scroll, { once: true });
      return isPlace;
    };
    window.addEventListener("hashchange", read);
    return { later, read };
  }

  // ---- tables -------------------------------------------------------------------------------

  /** What a cell says: names of instructions and lines as code, bars left out. */
  function saidBy(node) {
    if (node.nodeType === Node.TEXT_NODE)
      return node.parentElement.closest(".c") ? node.data : node.data.replace(/\*/g, "\\*");
    if (node.nodeType !== Node.ELEMENT_NODE || node.matches("svg, [role=img], [aria-hidden=true]")) return "";
    const inner = [...node.childNodes].map(saidBy).join("");
    if (node.matches(".c:not(td)") && inner.trim()) return ` \`${inner.trim()}\` `;
    return node.matches("small, div, p, li, br") ? ` ${inner} ` : inner;
  }

  const cellText = (cell) => saidBy(cell).trim().replace(/\|/g, "\\|").replace(/\s+/g, " ");

  /** A table as GitHub's Markdown: the rows that are shown. */
  function markdown(table) {
    const rows = [...table.querySelectorAll("tr")].filter((row) => row.offsetParent && !row.matches(".about"));
    const cells = rows.map((row) => [...row.cells].map(cellText));
    const isUsed = (_, at) => cells.some((row) => row[at]);
    const lines = cells.map((row) => `| ${row.filter(isUsed).join(" | ")} |`);
    const sides = [...rows[0].cells].map((cell) => (cell.matches(".n") ? "---:" : "---")).filter(isUsed);
    if (!table.tHead) lines.unshift(`|${" |".repeat(sides.length)}`);
    lines.splice(1, 0, `| ${sides.join(" | ")} |`);
    return `${lines.join("\n")}\n`;
  }

  // ---- plots --------------------------------------------------------------------------------

  /** An SVG with the colours that the page gives it, as an image. */
  async function imageOf(svg) {
    const { width, height } = svg.getBoundingClientRect();
    const copy = svg.cloneNode(true);
    const own = svg.querySelectorAll("*");
    copy.querySelectorAll("*").forEach((node, i) => {
      const style = getComputedStyle(own[i]);
      for (const name of ["fill", "stroke", "stroke-width", "stroke-dasharray", "opacity", "fill-opacity", "font", "text-anchor"]) {
        node.style.setProperty(name, style.getPropertyValue(name));
      }
    });
    copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
    copy.setAttribute("width", width);
    copy.setAttribute("height", height);
    const image = new Image();
    image.src = `data:image/svg+xml;charset=utf-8,${encodeURIComponent(new XMLSerializer().serializeToString(copy))}`;
    await image.decode();
    return drawn(image, width, height);
  }

  function drawn(image, width, height) {
    const scale = 2;
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [width * scale, height * scale];
    const context = canvas.getContext("2d");
    context.fillStyle = getComputedStyle(document.body).backgroundColor;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(image, 0, 0, canvas.width, canvas.height);
    return canvas;
  }

  async function copyImage(plot) {
    const canvas = plot.matches("canvas") ? drawn(plot, plot.clientWidth, plot.clientHeight) : await imageOf(plot);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    await navigator.clipboard.write([new ClipboardItem({ "image/png": blob })]);
  }

  // ---- buttons ------------------------------------------------------------------------------

  function button(text, label, run) {
    const made = document.createElement("button");
    made.type = "button";
    made.className = "button share";
    made.textContent = text;
    made.setAttribute("aria-label", label);
    made.addEventListener("click", async () => {
      try {
        await run();
        made.textContent = "Copied";
      } catch {
        made.textContent = "The browser refused";
      }
      setTimeout(() => { made.textContent = text; }, 1500);
    });
    return made;
  }

  function addButtons() {
    for (const table of document.querySelectorAll("main .scroll > table")) {
      const copy = () => navigator.clipboard.writeText(markdown(table));
      table.parentElement.after(button("Copy as Markdown", `Copy ${table.getAttribute("aria-label")} as Markdown`, copy));
    }
    for (const plot of document.querySelectorAll("main .plot svg, #timeline-view canvas")) {
      const host = plot.closest(".chart, .tl-stage") || plot.parentElement;
      const name = plot.getAttribute("aria-label") || "the plot";
      host.after(button("Copy as image", `Copy ${name} as an image`, () => copyImage(plot)));
    }
  }

  window.SlipstreamShare = { follow, markdown, imageOf, addButtons };
})();
