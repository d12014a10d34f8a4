// A map of parts of a whole: boxes in boxes, each as large as its share; or an icicle, whose boxes hang
// below the group they belong to, each as wide as its share.  Click a group to go into
// it; arrows move between boxes, Enter opens one, Backspace goes up.
//
// SlipstreamTreemap.mount(element, {path: element of the way up, onLeaf(leaf)}) -> {show(items)}
// items: [{path: [text…], title, value, text, kind, …}]
(() => {
  "use strict";
  const { shortened, wrapped } = window.SlipstreamLabels;
  const HEAD_PX = 18;
  const GAP_PX = 2;
  const ROOM_PX = 56; // less is no room for boxes in a box that is in a box
  const DEEPEST = 5;
  const ICICLE_PX = 27;
  const LINE_PX = 16;
  const LEAST_SHARE = 0.002;
  const MOST_CHILDREN = 60;

  /** The tree of all items: {name, value, children (by name), leaf}. */
  function treeOf(items) {
    const root = { name: "All", value: 0, children: new Map() };
    for (const item of items) {
      let node = root;
      node.value += item.value;
      for (const name of item.path) {
        if (!node.children.has(name)) {
          node.children.set(name, { name, value: 0, children: new Map(), parent: node });
        }
        node = node.children.get(name);
        node.value += item.value;
      }
      const leaf = { name: item.title, value: item.value, leaf: item, children: new Map(), parent: node };
      node.children.set(Symbol(item.title), leaf);
    }
    root.children.forEach(shorten);
    return root;
  }

  /** A group with nothing but one group in it is one with that: `model/block`. */
  function shorten(node) {
    const [only] = node.children.values();
    if (node.children.size === 1 && only.children.size) {
      node.name = `${node.name}/${only.name}`;
      node.children = only.children;
      node.children.forEach((child) => { child.parent = node; });
      shorten(node);
    } else node.children.forEach(shorten);
  }

  /** Children from the largest on; what is too small to be seen is one box. */
  function childrenOf(node, whole) {
    const sorted = [...node.children.values()].sort((a, b) => b.value - a.value);
    const shown = sorted.filter((one, i) => i < MOST_CHILDREN && one.value >= whole * LEAST_SHARE);
    const rest = sorted.slice(shown.length).filter((one) => one.value > 0);
    if (rest.length === 1) return [...shown, rest[0]];
    if (rest.length) {
      const value = rest.reduce((sum, one) => sum + one.value, 0);
      shown.push({ name: `${rest.length} smaller`, value, children: new Map(), isRest: true });
    }
    return shown;
  }

  /** Boxes as square as can be (Bruls, Huizing, van Wijk: Squarified Treemaps). */
  function squarify(nodes, box) {
    const total = nodes.reduce((sum, one) => sum + one.value, 0);
    const placed = [];
    let { x, y, wide, tall } = box;
    const scale = total > 0 ? (wide * tall) / total : 0;
    let row = [];
    let left = nodes.map((node) => ({ node, area: node.value * scale })).filter((one) => one.area > 0);
    const worst = (row_, side) => {
      const sum = row_.reduce((s, one) => s + one.area, 0);
      const areas = row_.map((one) => one.area);
      return Math.max((side * side * Math.max(...areas)) / (sum * sum), (sum * sum) / (side * side * Math.min(...areas)));
    };
    const settle = () => {
      const sum = row.reduce((s, one) => s + one.area, 0);
      const across = wide >= tall;
      const thick = sum / (across ? tall : wide);
      let at = across ? y : x;
      for (const { node, area } of row) {
        const long = area / thick;
        placed.push(across ? { node, x, y: at, wide: thick, tall: long } : { node, x: at, y, wide: long, tall: thick });
        at += long;
      }
      if (across) { x += thick; wide -= thick; } else { y += thick; tall -= thick; }
      row = [];
    };
    while (left.length) {
      const side = Math.min(wide, tall);
      const [next] = left;
      if (!row.length || worst([...row, next], side) <= worst(row, side)) {
        row.push(next);
        left = left.slice(1);
      } else settle();
    }
    if (row.length) settle();
    return placed;
  }

  class Treemap {
    constructor(element, options) {
      this.element = element;
      this.options = options;
      this.sizes = new ResizeObserver(() => this.width !== element.clientWidth && this.draw());
      this.sizes.observe(element);
      element.addEventListener("click", (event) => this.open(event.target.closest("button")));
      element.addEventListener("keydown", (event) => this.key(event));
    }

    show(items) {
      this.root = this.node = treeOf(items);
      // A tree of one branch has nothing to choose from.
      while (this.node.children.size === 1 && [...this.node.children.values()][0].children.size) {
        [this.node] = this.node.children.values();
      }
      this.draw();
    }

    draw() {
      if (!this.node) return;
      const { element } = this;
      this.width = element.clientWidth;
      this.nodes = new WeakMap();
      const made = [];
      if (this.isIcicle) this.hang(this.node, 0, element.clientWidth, 0, made);
      else this.fill(this.node, { x: 0, y: 0, wide: element.clientWidth, tall: element.clientHeight }, 1, made);
      made.forEach((one, i) => { one.tabIndex = i ? -1 : 0; });
      element.replaceChildren(...made);
      this.way();
    }

    /** Boxes of a node's children, and those inside them as deep as there is room. */
    fill(node, box, depth, made) {
      for (const place of squarify(childrenOf(node, this.node.value), box)) {
        if (place.wide < 3 || place.tall < 3) continue;
        const opened = place.node.children.size > 0 && depth < DEEPEST
          && place.wide >= (depth > 1 ? ROOM_PX : 24) && place.tall >= (depth > 1 ? ROOM_PX : HEAD_PX + 12);
        made.push(this.box(place, opened));
        if (!opened) continue;
        const inside = { x: place.x + GAP_PX, y: place.y + HEAD_PX, wide: place.wide - 2 * GAP_PX - 2, tall: place.tall - HEAD_PX - GAP_PX - 2 };
        this.fill(place.node, inside, depth + 1, made);
      }
    }

    /** Boxes of a node's children side by side, and those inside them below, as deep as there is room. */
    hang(node, left, wide, depth, made) {
      if ((depth + 1) * ICICLE_PX > this.element.clientHeight) return;
      let x = left;
      for (const child of childrenOf(node, this.node.value)) {
        const own = node.value > 0 ? (wide * child.value) / node.value : 0;
        if (own >= 3) {
          made.push(this.box({ node: child, x, y: depth * ICICLE_PX, wide: own, tall: ICICLE_PX }, false));
          this.hang(child, x, own, depth + 1, made);
        }
        x += own;
      }
    }

    /** As an icicle, or as a map. */
    shape(isIcicle) {
      this.isIcicle = isIcicle;
      this.draw();
    }

    box(place, opened) {
      const { node } = place;
      const made = document.createElement("button");
      made.type = "button";
      const kind = node.leaf ? node.leaf.kind : node.isRest ? "rest" : this.kindOf(node);
      made.className = opened ? "group" : `cell ${kind}`;
      const text = this.options.text(node.value);
      made.title = `${node.name}\n${text} · ${this.options.share(node.value / (this.root.value || 1))}`;
      made.setAttribute("aria-label", made.title.replace("\n", ", "));
      Object.assign(made.style, {
        left: `${place.x}px`, top: `${place.y}px`,
        width: `${Math.max(1, place.wide - (opened ? 3 : 1))}px`, height: `${Math.max(1, place.tall - (opened ? 3 : 1))}px`,
      });
      made.append(...(opened ? this.heading(node.name, text, place) : this.texts(node.name, text, place)));
      this.nodes.set(made, node);
      return made;
    }

    /** The name and the time of a group; the time is left out before it is cut. */
    heading(name, text, place) {
      const widthOf = this.widths(550);
      const room = place.wide - 18;
      const short = shortened(name, room - widthOf(`  ${text}`), widthOf);
      const made = document.createElement("span");
      made.textContent = short ? `${short}  ${text}` : shortened(name, room, widthOf);
      return [made];
    }

    /** The name of a box on as many lines as there is room for, and its time. */
    texts(name, text, place) {
      const room = place.wide - 11;
      const timed = place.tall > 36 && this.widths(400, 11.5)(text) <= room;
      const lines = Math.floor((place.tall - 4) / LINE_PX) - (timed ? 1 : 0);
      const made = wrapped(name, room, lines, this.widths(500)).map((line) => {
        const one = document.createElement("b");
        one.textContent = line;
        return one;
      });
      if (timed) {
        const small = document.createElement("small");
        small.textContent = text;
        made.push(small);
      }
      return made;
    }

    /** Widths of texts in the page's font at a weight. */
    widths(weight, px = 12) {
      this.context ||= document.createElement("canvas").getContext("2d");
      const font = `${weight} ${px}px ${getComputedStyle(this.element).fontFamily}`;
      return (text) => {
        this.context.font = font;
        return this.context.measureText(text).width;
      };
    }

    /** The kind of most of what is in a group. */
    kindOf(node) {
      const times = {};
      const walk = (one) => {
        if (one.leaf) times[one.leaf.kind] = (times[one.leaf.kind] || 0) + one.value;
        one.children.forEach(walk);
      };
      walk(node);
      return Object.keys(times).sort((a, b) => times[b] - times[a])[0] || "compute";
    }

    open(button) {
      const node = button && this.nodes.get(button);
      if (!node) return;
      if (node.leaf) this.options.onLeaf(node.leaf);
      else if (node.children.size) this.go(node);
    }

    go(node) {
      this.node = node;
      this.draw();
      const [first] = this.element.children;
      if (first) first.focus({ preventScroll: true });
    }

    /** The way from all to here. */
    way() {
      const nodes = [];
      for (let node = this.node; node; node = node.parent) nodes.unshift(node);
      const parts = nodes.map((node) => {
        const here = node === this.node;
        const part = document.createElement(here ? "span" : "button");
        if (!here) {
          part.type = "button";
          part.addEventListener("click", () => this.go(node));
        }
        part.textContent = node.name;
        return part;
      });
      this.options.path.replaceChildren(...parts.flatMap((part, i) => (i ? ["›", part] : [part])));
    }

    key(event) {
      const boxes = [...this.element.children];
      const at = boxes.indexOf(document.activeElement);
      const by = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
      if (by && at >= 0) {
        event.preventDefault();
        boxes[(at + by + boxes.length) % boxes.length].focus();
      } else if ((event.key === "Backspace" || event.key === "Escape") && this.node.parent) {
        event.preventDefault();
        this.go(this.node.parent);
      }
    }
  }

  window.SlipstreamTreemap = { mount: (element, options) => new Treemap(element, options), squarify };
})();
