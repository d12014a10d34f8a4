// The bar above a timeline (search, fit, zoom, legend), its tip, and the panel of what is selected.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const PAUSE_MS = 180;

  /** An element with attributes and children; texts are texts, never markup. */
  function make(tag, attributes, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes || {})) {
      if (name === "onclick") element.addEventListener("click", value);
      else if (value !== undefined && value !== null) element.setAttribute(name, value);
    }
    element.append(...children.filter((child) => child !== null && child !== undefined));
    return element;
  }

  class Bar {
    constructor(view) {
      this.view = view;
      this.input = make("input", {
        type: "search", placeholder: "Search ops, scopes, source lines   ( / )",
        "aria-label": "Search the timeline", autocomplete: "off", spellcheck: "false",
      });
      this.found = make("span", { class: "tl-found", role: "status" });
      const button = (text, label, run) =>
        make("button", { type: "button", "aria-label": label, title: label, onclick: run }, text);
      this.before = button("↑", "Previous hit (Shift Enter)", () => view.nextHit(-1));
      this.after = button("↓", "Next hit (Enter)", () => view.nextHit(1));
      this.names = button("HLO names", "HLO names instead of what they do (n)", () => view.toggleNames());
      this.names.setAttribute("aria-pressed", "false");
      this.legend = make("span", { class: "tl-legend", "aria-hidden": "true" });
      this.element = make(
        "div", { class: "tl-bar" }, this.input, this.before, this.after, this.found,
        button("+", "Zoom in (w)", () => view.zoomAbout(view.middle(), 1 / 2, true)),
        button("−", "Zoom out (s)", () => view.zoomAbout(view.middle(), 2, true)),
        button("Fit", "Show everything (f)", () => view.fit()),
        this.names,
        this.legend,
      );
      this.input.addEventListener("input", () => this.later());
      this.input.addEventListener("keydown", (event) => this.key(event));
      this.count(null);
    }

    focusSearch() {
      this.input.focus();
      this.input.select();
    }

    later() {
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.view.search(this.input.value.trim()), PAUSE_MS);
    }

    key(event) {
      if (event.key === "Enter") {
        event.preventDefault();
        clearTimeout(this.timer);
        this.view.searchNow(this.input.value.trim(), event.shiftKey ? -1 : 1);
      } else if (event.key === "Escape") {
        event.preventDefault();
        this.view.clear();
        this.view.canvas.focus({ preventScroll: true });
      }
    }

    /** Say how many were found, and which of them is shown. */
    count(hits, at) {
      const none = !hits || !hits.length;
      this.before.disabled = this.after.disabled = none;
      if (none) {
        this.found.textContent = hits ? "no matches" : "";
        return;
      }
      const all = hits.total > hits.length ? ` (of ${hits.total.toLocaleString("en")})` : "";
      this.found.textContent = at >= 0 ? `${at + 1} of ${hits.length}${all}` : `${hits.length} found${all}`;
    }

    clear() {
      clearTimeout(this.timer);
      this.input.value = "";
      this.count(null);
    }

    kinds(kinds) {
      if (this.legend.childElementCount) return;
      for (const kind of kinds.filter((one) => one !== "structure")) {
        const item = make("span", {}, kind);
        item.style.setProperty("--swatch", `var(--${kind}, ${Timeline.FALLBACK[kind] || "gray"})`);
        this.legend.append(item);
      }
    }
  }

  class Tip {
    constructor() {
      this.element = make("div", { class: "tl-tip", hidden: "" });
    }

    show(at, slice, stage, view) {
      const { duration } = Timeline.time;
      const name = view.nameOf(slice);
      const kind = slice.kind === "structure" ? "" : slice.kind;
      const said = slice.count > 1
        ? [`${slice.count.toLocaleString("en")} slices`, `${duration(slice.duration_us)}, mostly ${name}`]
        : [name, [duration(slice.duration_us), kind, view.saidOf(slice)].filter(Boolean).join(" · ")];
      this.say(at, ...said, stage);
    }

    say(at, text, small, stage) {
      this.element.replaceChildren(text, make("small", {}, small));
      this.element.hidden = false;
      const wide = this.element.offsetWidth;
      const high = this.element.offsetHeight;
      const x = Math.max(4, Math.min(at.x + 14, stage.clientWidth - wide - 4));
      const y = at.y + 18 + high > stage.clientHeight ? at.y - high - 10 : at.y + 18;
      this.element.style.transform = `translate(${Math.round(x)}px, ${Math.round(y)}px)`;
      this.element.style.left = this.element.style.top = "0";
    }

    hide() {
      this.element.hidden = true;
    }
  }

  class Panel {
    constructor(view, element) {
      this.view = view;
      this.element = element || make("div", {});
      this.element.classList.add("tl-panel");
      this.spoken = make("div", { class: "tl-hidden", "aria-live": "polite" });
      this.empty();
    }

    empty() {
      const text = this.view.options.hint || "Click a slice for details. Wheel or W/S zooms, drag or A/D pans, Shift-drag measures.";
      this.element.replaceChildren(make("p", {}, text));
    }

    say(text) {
      this.spoken.textContent = text;
    }

    /** What is known of a slice at once, before its details are there. */
    brief(slice) {
      const { duration, instant } = Timeline.time;
      const lane = this.view.laneNames(slice.lane);
      const rows = [["start", instant(slice.start_us, 1e-3)], ["lane", lane]];
      if (slice.duration_us !== undefined) rows.unshift(["duration", duration(slice.duration_us)]);
      const many = slice.count > 1;
      const name = this.view.nameOf(slice);
      const title = many ? `${slice.count.toLocaleString("en")} slices, mostly ${name}` : name;
      const zoom = () => this.view.zoomToSlice(slice);
      this.fill(title || "", rows, "", [[many ? "Zoom in" : "Zoom to it", zoom]]);
      this.say(`${title || "slice"}, ${rows.map((row) => row.join(" ")).join(", ")}`);
    }

    detail(slice, found) {
      const links = [["Zoom to it", () => this.view.zoomToSlice(slice)]];
      const partner = found.partner;
      if (partner) links.push(["Go to its partner", () => this.view.goTo(partner)]);
      const { duration, instant } = Timeline.time;
      const rows = [...(found.rows || [])];
      const has = (label) => rows.some((row) => row[0] === label);
      if (!has("lane")) rows.unshift(["lane", this.view.laneNames(slice.lane)]);
      if (!has("start")) rows.unshift(["start", instant(slice.start_us, 1e-3)]);
      if (!has("duration") && slice.duration_us !== undefined) {
        rows.unshift(["duration", duration(slice.duration_us)]);
      }
      this.fill(found.title, rows, found.source, links);
      this.say(`${found.title}, ${rows.slice(0, 3).map((row) => row.join(" ")).join(", ")}`);
    }

    fill(title, rows, source, links) {
      const list = make("dl", {});
      if (source) list.append(make("dt", {}, "source"), make("dd", {}, make("code", {}, source)));
      for (const [label, value] of rows) list.append(make("dt", {}, label), make("dd", {}, String(value)));
      const buttons = links.map(([text, run]) => make("button", { type: "button", onclick: run }, text));
      this.element.replaceChildren(
        make("h3", {}, title), list, make("div", { class: "tl-links" }, ...buttons));
    }
  }

  Object.assign(Timeline, { Bar, Tip, Panel, make });
})();
