// Two steps one above the other; a slice of one leads to what it was matched with in the other.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { time } = window.SlipstreamNumbers;
  const place = document.getElementById("timeline-view");

  function detail(name, at) {
    if (at < 0) return { title: name, rows: [], source: "" };
    const op = data.ops[at];
    const rows = [["instruction", op.instruction], ["phase", op.phase], ["scope", op.scope]].filter((row) => row[1]);
    if (op.change) {
      rows.push(["in the other step", op.change.other || "nothing"], ["how", op.change.kind]);
      rows.push(["before", time(op.change.before)], ["after", time(op.change.after)]);
    }
    return { title: op.text || op.instruction, source: op.source || "", rows };
  }

  /** Lanes of one side; where the slices of each change are is kept. */
  function sideOf(step, number) {
    const name = data.names[number];
    const found = window.SlipstreamSteps.unpacked(step, data.ops, detail);
    const places = new Map();
    const id = (one) => `${number}/${one}`;
    for (const lane of found.lanes) {
      Object.assign(lane, { id: id(lane.id), group: `${name} · ${lane.group}`, member: number });
      lane.partner_of = lane.partner_of.map((one) => one && [id(one[0]), one[1]]);
      lane.change_of = lane.detail_of.map((label) => {
        const at = label < 0 ? -1 : step.labels[label][2];
        return at < 0 ? -1 : data.ops[at].change?.number ?? -1;
      });
      lane.change_of.forEach((change, i) => {
        if (change < 0) return;
        if (!places.has(change)) places.set(change, []);
        places.get(change).push([lane.id, lane.start[i]]);
      });
    }
    for (const own of places.values()) own.sort((a, b) => a[1] - b[1]);
    return { ...found, places };
  }

  /** The same occurrence of a change on the other side; of more or fewer, the one at its share of the way. */
  function link(side, other) {
    const seen = new Map();
    const order = side.lanes.flatMap((lane) => lane.start.map((start, i) => ({ lane, i, start })));
    order.sort((a, b) => a.start - b.start);
    for (const { lane, i } of order) {
      const change = lane.change_of[i];
      const there = other.places.get(change);
      if (!there) continue;
      const count = seen.get(change) || 0;
      seen.set(change, count + 1);
      const own = side.places.get(change).length;
      lane.partner_of[i] = there[Math.min(there.length - 1, Math.floor((count * there.length) / own))];
    }
  }

  /** Both sides as one source: indices into names and details of the second follow those of the first. */
  function joined(one, other) {
    const [names, details] = [one.names.length, one.details.length];
    for (const lane of other.lanes) {
      lane.name_of = lane.name_of.map((at) => at + names);
      lane.detail_of = lane.detail_of.map((at) => (at < 0 ? at : at + details));
    }
    const both = (key) => [...Array.from({ length: names }, (_, i) => one[key][i] || ""), ...other.names.map((_, i) => other[key][i] || "")];
    return {
      start_us: 0, end_us: Math.max(one.end_us, other.end_us), kinds: one.kinds, members: data.names,
      names: [...one.names, ...other.names], readable: both("readable"), descriptions: both("descriptions"),
      details: [...one.details, ...other.details], lanes: [...one.lanes, ...other.lanes],
      steps: [one, other].flatMap((side, member) => side.steps.map((step) => ({ ...step, member }))),
    };
  }

  if (place && data.steps.every(Boolean)) {
    const [one, other] = data.steps.map(sideOf);
    link(one, other);
    link(other, one);
    const source = window.SlipstreamTimeline.memorySource(joined(one, other));
    const view = window.SlipstreamTimeline.mount(place, source, {
      label: "Both steps; W and S zoom, A and D pan, slash searches", wheel: "focus",
      onView: () => place.share?.later(), onSelect: () => place.share?.later(),
    });
    place.share = window.SlipstreamShare.follow(view, "timeline");
    place.share.read();
    window.SlipstreamDiff = { data, view };
  }
  window.SlipstreamShare.addButtons();
  document.documentElement.dataset.ready = "true";
})();
