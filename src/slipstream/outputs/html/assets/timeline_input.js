// Wheel, pointer, touch and keys of a timeline: everything a hand does becomes a call of the view.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const CLICK_PX = 5;
  const FACTOR = 1.6;

  class Input {
    constructor(view) {
      this.view = view;
      this.canvas = view.canvas;
      this.pointers = new Map();
      this.gesture = null;
      this.stop = new AbortController();
      const on = (name, run, options = {}) =>
        this.canvas.addEventListener(name, run.bind(this), { signal: this.stop.signal, ...options });
      on("wheel", this.wheel, { passive: false });
      on("pointerdown", this.down);
      on("pointermove", this.move);
      on("pointerup", this.up);
      on("pointercancel", this.cancel);
      on("pointerleave", this.leave);
      on("dblclick", this.twice);
      on("keydown", this.key);
    }

    destroy() {
      this.stop.abort();
    }

    place(event) {
      const box = this.canvas.getBoundingClientRect();
      return { x: event.clientX - box.left, y: event.clientY - box.top };
    }

    // ---- wheel ------------------------------------------------------------------------------

    wheel(event) {
      const { view } = this;
      const wantsFocus = view.options.wheel === "focus" && document.activeElement !== this.canvas;
      if (wantsFocus && !event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const lines = event.deltaMode === 1 ? 16 : 1;
      const { x } = this.place(event);
      if (event.shiftKey || x < view.gutter) return view.scrollBy((event.deltaY || event.deltaX) * lines);
      if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) return view.panBy(event.deltaX * lines);
      // A pinch on a touch pad arrives as a wheel with ctrl, in small steps.
      const speed = event.ctrlKey ? 0.01 : 0.0018;
      view.zoomAbout(view.timeAt(x), Math.exp(event.deltaY * lines * speed));
    }

    // ---- pointers ---------------------------------------------------------------------------

    down(event) {
      if (event.button > 0) return;
      this.canvas.setPointerCapture(event.pointerId);
      this.canvas.focus({ preventScroll: true });
      const at = this.place(event);
      this.pointers.set(event.pointerId, at);
      if (this.pointers.size === 2) {
        this.gesture = { kind: "pinch", ...this.spread() };
      } else if (this.pointers.size === 1) {
        this.gesture = { kind: this.gestureAt(at, event), at, last: at, moved: false };
        if (this.gesture.kind === "overview") this.view.centreOverview(at.x);
      }
    }

    gestureAt(at, event) {
      if (at.y < Timeline.SIZES.overview && at.x > this.view.gutter) return "overview";
      return event.shiftKey && at.x > this.view.gutter ? "measure" : "pan";
    }

    spread() {
      const [a, b] = [...this.pointers.values()];
      return { apart: Math.max(20, Math.abs(a.x - b.x)), middle: (a.x + b.x) / 2 };
    }

    move(event) {
      const at = this.place(event);
      const { gesture, view } = this;
      if (!this.pointers.has(event.pointerId)) return view.hover(event.pointerType === "touch" ? null : at);
      this.pointers.set(event.pointerId, at);
      if (!gesture) return;
      if (gesture.kind === "pinch") return this.pinch(gesture);
      gesture.moved = gesture.moved || Math.hypot(at.x - gesture.at.x, at.y - gesture.at.y) > CLICK_PX;
      if (!gesture.moved) return;
      view.hover(null);
      if (gesture.kind === "overview") view.centreOverview(at.x);
      else if (gesture.kind === "measure") view.measure(view.timeAt(gesture.at.x), view.timeAt(at.x));
      else {
        view.stage.classList.add("tl-dragging");
        view.panBy(gesture.last.x - at.x);
        view.scrollBy(gesture.last.y - at.y);
      }
      gesture.last = at;
    }

    pinch(gesture) {
      const now = this.spread();
      if (this.pointers.size < 2) return;
      this.view.zoomAbout(this.view.timeAt(gesture.middle), gesture.apart / now.apart);
      this.view.panBy(gesture.middle - now.middle);
      this.gesture = { kind: "pinch", ...now };
    }

    up(event) {
      const { gesture, view } = this;
      const at = this.place(event);
      this.cancel(event);
      if (!gesture || gesture.kind === "pinch" || gesture.moved) {
        if (gesture && gesture.kind === "measure") view.measured();
        return;
      }
      if (gesture.kind === "pan") view.click(at);
    }

    cancel(event) {
      this.pointers.delete(event.pointerId);
      this.view.stage.classList.remove("tl-dragging");
      if (this.pointers.size === 0) this.gesture = null;
    }

    leave() {
      if (this.pointers.size === 0) this.view.hover(null);
    }

    twice(event) {
      const found = this.view.sliceAt(this.place(event));
      if (found) this.view.zoomToSlice(found);
    }

    // ---- keys -------------------------------------------------------------------------------

    key(event) {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const { view } = this;
      const plot = view.width - view.gutter;
      const middle = (view.from + view.to) / 2;
      const page = view.height / 2;
      const keys = {
        w: () => view.zoomAbout(middle, 1 / FACTOR, true),
        s: () => view.zoomAbout(middle, FACTOR, true),
        "+": () => view.zoomAbout(middle, 1 / FACTOR, true),
        "-": () => view.zoomAbout(middle, FACTOR, true),
        a: () => view.panBy(-plot / 5, true),
        d: () => view.panBy(plot / 5, true),
        ArrowLeft: () => view.panBy(-plot / 5, true),
        ArrowRight: () => view.panBy(plot / 5, true),
        ArrowUp: () => view.scrollBy(-40),
        ArrowDown: () => view.scrollBy(40),
        PageUp: () => view.scrollBy(-page),
        PageDown: () => view.scrollBy(page),
        ".": () => view.selectNext(1),
        ",": () => view.selectNext(-1),
        f: () => view.fit(),
        n: () => view.toggleNames(),
        z: () => view.selected && view.zoomToSlice(view.selected),
        "/": () => view.bar.focusSearch(),
        Enter: () => view.nextHit(event.shiftKey ? -1 : 1),
        Escape: () => view.clear(),
      };
      const run = keys[event.key.length === 1 ? event.key.toLowerCase() : event.key];
      if (!run) return;
      event.preventDefault();
      run();
    }
  }

  Timeline.Input = Input;
})();
