// The viewer's page: the timeline, the selection, and a summary of the visible range.
(() => {
  "use strict";
  const Viewer = window.SlipstreamViewer;
  const Timeline = window.SlipstreamTimeline;
  const { make } = Timeline;
  const at = (id) => document.getElementById(id);
  const PAUSE_MS = 160;
  let view = null;
  let scene = null;
  let range = null;
  let share = null;
  let isLinked = false;

  // ---- what is in sight ---------------------------------------------------------------------

  let timer = 0;
  function soon() {
    clearTimeout(timer);
    timer = setTimeout(summarise, PAUSE_MS);
  }

  async function summarise() {
    const [from_us, to_us] = range || [view.from, view.to];
    let found;
    try {
      found = await Viewer.ask("summary", { from_us, to_us, generation: scene.generation });
    } catch (error) {
      return fail(error);
    }
    const now = range || [view.from, view.to];
    if (now[0] !== from_us || now[1] !== to_us) return undefined;
    const span = to_us - from_us;
    at("range-title").textContent = range ? "Measured" : "In view";
    const parts = found.members.flatMap((member) => memberParts(member, span, found.members.length > 1));
    at("range").replaceChildren(...parts);
    at("range").dataset.ready = "1";
    return undefined;
  }

  function memberParts(member, span, several) {
    const { duration } = Timeline.time;
    const parts = several ? [make("h3", {}, member.name)] : [];
    const of = member.devices > 1 ? `, mean of ${member.devices} devices` : "";
    parts.push(make("p", { class: "muted" },
      `${duration(span)} · ${member.events.toLocaleString("en")} device events · summed over streams${of}`));
    const list = make("dl", { class: "kinds" });
    for (const [kind, us] of Object.entries(member.by_kind)) {
      const bar = make("i", {});
      bar.style.width = `${Math.min(100, (us / span) * 100)}%`;
      bar.style.background = `var(--${kind})`;
      list.append(make("dt", {}, kind), make("dd", {}, make("span", { class: "meter" }, bar),
        make("b", {}, duration(us)), make("small", {}, ` ${percent(us / span)}`)));
    }
    parts.push(list);
    if (member.ops.length) parts.push(opTable(member, span));
    return parts;
  }

  function opTable(member, span) {
    const { duration } = Timeline.time;
    const list = make("ol", { class: "ops" });
    for (const op of member.ops) {
      const swatch = make("i", {});
      swatch.style.background = `var(--${op.kind})`;
      const said = [op.readable ? op.name : "", op.description, op.source].filter(Boolean).join(" · ");
      const name = make("button", { type: "button", title: `Find ${op.name}`, onclick: () => find(op.name) },
        swatch, make("span", {}, op.readable || op.name), make("b", {}, duration(op.us)),
        make("small", {}, said), make("small", {}, percent(op.us / span)));
      list.append(make("li", {}, name));
    }
    if (member.more) list.append(make("li", { class: "muted" }, `and ${member.more.toLocaleString("en")} more ops`));
    return list;
  }

  const percent = (share) => (share >= 0.0995 ? `${Math.round(share * 100)}%` : `${(share * 100).toFixed(1)}%`);

  function find(text) {
    view.bar.input.value = text;
    view.searchNow(text, 1);
  }

  // ---- the page -----------------------------------------------------------------------------

  function notice(text, isError = true) {
    at("notice").textContent = text || "";
    at("notice").classList.toggle("error", isError);
  }

  function head() {
    document.title = `${scene.title} · slipstream`;
    at("title").textContent = scene.title;
    at("facts").replaceChildren(...scene.facts.map((fact) => make("li", {}, fact)));
    const said = scene.warnings.length;
    notice("");
    if (said) {
      const more = said > 1 ? ` (and ${said - 1} more)` : "";
      at("notice").replaceChildren(make("span", { title: scene.warnings.join("\n") }, `⚠ ${scene.warnings[0]}${more}`));
    }
  }

  async function show() {
    scene = await Viewer.ask("scene");
    const source = Viewer.serverSource(scene);
    head();
    if (view) {
      view.refresh(source);
      structure();
      return summarise();
    }
    view = Timeline.mount(at("timeline"), source, {
      height: "fill", opens: scene.opens_us, panel: at("selected"), label: "Timeline of the recording",
      hint: "Click a slice for details; Shift-drag measures.",
      onError: fail,
      onView: () => { if (view && !range) soon(); share?.later(); },
      onSelect: () => share?.later(),
      onRange: (from, to) => { range = from === null ? null : [from, to]; soon(); },
    });
    Viewer.view = view;
    share = window.SlipstreamShare.follow(view, "timeline");
    structure();
    return soon();
  }

  /** Lanes of structure and readable names, for which the first view doesn't wait. */
  async function structure() {
    const asked = scene;
    try {
      const found = await Viewer.ask("structure", { generation: asked.generation });
      if (asked !== scene) return;
      view.extend(Viewer.serverSource(Viewer.withStructure(asked, found)));
      // A link may lead to a span of structure, which is known only now.
      if (!isLinked) share.read();
      isLinked = true;
      at("timeline").dataset.structure = String(found.length);
    } catch (error) {
      fail(error);
    }
  }

  // The state that the server told last, and whether what it means is being shown.
  let told = { generation: 0 };
  let isShowing = false;

  /** Show the reading that the server has; another one may be completed meanwhile. */
  async function update() {
    if (isShowing) return;
    isShowing = true;
    try {
      while (!scene || scene.generation < told.generation) {
        const again = Boolean(scene);
        await show();
        if (again) notice("The recording has changed and was reloaded.", false);
      }
    } catch (error) {
      fail(error);
    } finally {
      isShowing = false;
    }
    mark();
  }

  /** Mark the page while it shows something else than the files as they are now. */
  function mark() {
    const isOld = Boolean(scene && told.error);
    document.body.classList.toggle("old", isOld);
    at("old").textContent = isOld ? `Old: read at ${told.read_at}` : "";
    if (!isOld) return;
    const said = `The recording has changed and can't be read: ${told.error}`;
    at("notice").replaceChildren(make("span", { title: said }, said));
    at("notice").classList.add("error");
  }

  function listen() {
    const events = new EventSource("api/events");
    events.onmessage = (event) => {
      told = JSON.parse(event.data);
      if (told.is_over) {
        events.close();
        return notice(told.error || "The server has stopped; this page shows what is already loaded.");
      }
      if (told.total_bytes && !scene) {
        const share = Math.round((told.done_bytes / told.total_bytes) * 100);
        at("title").textContent = `Reading… ${share}%`;
      }
      return told.generation > (scene ? scene.generation : 0) ? update() : mark();
    };
    events.onerror = () => { if (events.readyState === EventSource.CLOSED) notice("The server has stopped."); };
  }

  function fail(error) {
    // The answer was for an earlier reading; the new one is shown in a moment.
    if (error.status === 409) return;
    at("title").textContent = scene ? scene.title : "Nothing to show";
    notice(error.message);
  }

  at("perfetto").addEventListener("click", async () => {
    if (!view) return;
    const [from_us, to_us] = range || [view.from, view.to];
    notice("Sending the visible range to ui.perfetto.dev…", false);
    try {
      await Viewer.openInPerfetto(scene.title, { from_us, to_us, generation: scene.generation });
      notice("");
    } catch (error) {
      notice(error.message);
    }
  });

  document.addEventListener("keydown", (event) => {
    // With nothing in focus, keys are the timeline's.
    if (view && event.target === document.body) view.input.key(event);
  });

  update();
  listen();
})();
