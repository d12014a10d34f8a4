// Puts a report together: reads its data, mounts the map, the table and the timeline.
(() => {
  "use strict";
  const data = JSON.parse(document.getElementById("data").textContent);
  const { about, nameOf, mountMap, OpsTable } = window.SlipstreamOps;

  // ---- slices -------------------------------------------------------------------------------

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
    slices = window.SlipstreamSteps.unpacked(data.step, data.ops, detail);
    view = window.SlipstreamTimeline.mount(place, window.SlipstreamTimeline.memorySource(slices), {
      label: "Timeline of the step; W and S zoom, A and D pan, slash searches", wheel: "focus",
      onView: () => place.share?.later(), onSelect: () => place.share?.later(),
    });
    place.share = window.SlipstreamShare.follow(view, "timeline");
    place.share.read();
  }

  /** Select the longest slice of an op. */
  function showInTimeline(index) {
    let best = null;
    for (const lane of slices.lanes) {
      lane.detail_of.forEach((label, i) => {
        if (label < 0 || data.step.labels[label][2] !== index) return;
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
  if (opsTable) mountMap(opsTable, data.by, (leaf) => opsTable.reveal(leaf.index));

  document.addEventListener("keydown", (event) => {
    const busy = event.target.closest("input, select, textarea, [role=application], dialog");
    if (event.key !== "/" || busy || event.ctrlKey || event.metaKey || event.altKey || !opsTable) return;
    event.preventDefault();
    opsTable.search.focus();
    opsTable.search.scrollIntoView({ block: "center" });
  });
  window.SlipstreamShare.addButtons();
  window.SlipstreamReport = { data, view, opsTable };
  document.documentElement.dataset.ready = "true";
})();
