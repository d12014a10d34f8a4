// Puts a report together: reads its data, mounts the map, the table and the timeline.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { about, nameOf, mountMap, OpsTable } = window.SlipstreamOps;

  // ---- the step, unpacked -------------------------------------------------------------------

  /** What memorySource takes: starts are differences, labels say name, kind and op. */
  function unpacked(step) {
    const names = step.labels.map(([name, , at]) => (at >= 0 ? nameOf(data.ops[at]) : name));
    const extra = new Map(); // names of blocks that stand for several slices
    const blockName = (count, label) => {
      const name = `${count.toLocaleString("en")} slices, mostly ${names[label]}`;
      if (!extra.has(name)) extra.set(name, step.labels.length + extra.size);
      return extra.get(name);
    };
    const lanes = step.lanes.map((lane) => {
      let at = 0;
      const start = lane.starts.map((by) => { at += by; return at / 1000; });
      const name_of = lane.labels.slice();
      for (const [i, count] of lane.counts) name_of[i] = blockName(count, lane.labels[i]);
      const partner_of = [];
      for (const [i, other, ns] of lane.partners) partner_of[i] = [other, ns / 1000];
      return {
        id: lane.id, name: lane.name, group: lane.group, kind: lane.kind, collapsed: lane.collapsed, start,
        duration: lane.durations.map((ns) => ns / 1000), name_of,
        kind_of: lane.labels.map((label) => step.labels[label][1]), detail_of: lane.labels, partner_of,
      };
    });
    return {
      start_us: 0, end_us: step.end_ns / 1000, kinds: step.kinds, names: [...names, ...extra.keys()], lanes,
      steps: [{ start_us: step.step[0] / 1000, end_us: step.step[1] / 1000, name: `step ${step.step[2]}` }],
      details: step.labels.map(([name, , at]) => detail(name, at)),
    };
  }

  /** What is known of a slice; its rows are made when somebody asks. */
  function detail(name, at) {
    if (at < 0) return { title: name, rows: [], source: "" };
    const op = data.ops[at];
    return {
      title: nameOf(op), source: op.source || "",
      get rows() {
        const rows = about(op);
        if (name !== nameOf(op) && !rows.some((row) => row[1] === name)) rows.push(["kernel", name]);
        return rows;
      },
    };
  }

  // ---- the page -----------------------------------------------------------------------------

  const place = document.getElementById("timeline-view");
  let view = null;
  let slices = null;

  function mountTimeline() {
    slices = unpacked(data.step);
    view = window.SlipstreamTimeline.mount(place, window.SlipstreamTimeline.memorySource(slices), {
      label: "Timeline of the step; W and S zoom, A and D pan, slash searches", wheel: "focus",
    });
  }

  /** Select the longest slice of an op. */
  function showInTimeline(index) {
    let best = null;
    for (const lane of slices.lanes) {
      lane.detail_of.forEach((label, i) => {
        if (data.step.labels[label][2] !== index) return;
        if (!best || lane.duration[i] > best.us) best = { lane: lane.id, start: lane.start[i], us: lane.duration[i] };
      });
    }
    if (!best) return;
    document.getElementById("timeline").scrollIntoView({ block: "start" });
    const middle = best.start + best.us / 2;
    view.zoomTo(middle - best.us * 4, middle + best.us * 4);
    view.select(best.lane, best.start);
  }

  if (place && data.step) mountTimeline();
  const table = document.getElementById("ops-table");
  const opsTable = table && new OpsTable(table, data.ops, view ? showInTimeline : null);
  mountMap(data.ops, data.by, (leaf) => opsTable.reveal(leaf.index));

  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("input, select, textarea, [role=application], dialog");
    if (event.key !== "/" || busy || event.ctrlKey || event.metaKey || event.altKey || !opsTable) return;
    event.preventDefault();
    opsTable.search.focus();
    opsTable.search.scrollIntoView({ block: "center" });
  });
  window.SlipstreamReport = { data, view, opsTable };
  document.documentElement.dataset.ready = "true";
})();
