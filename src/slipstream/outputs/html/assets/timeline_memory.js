// A timeline's source made of arrays that a page holds: what a report embeds.
//
// data: {
//   start_us, end_us, names: [text…], kinds: [text…],
//   steps: [{start_us, end_us, name}…]                                        (optional)
//   lanes: [{id, name, group, kind, start: […], duration: […], name_of: […], kind_of: […],
//            detail_of: […], partner_of: […], value: […]}…]
//   details: [{title, rows: [[label, value]…], source}…]                      (optional)
// }
// `name_of` and `kind_of` are indices into names and kinds, `detail_of` into details (-1: none).
// `partner_of` is [lane id, start_us] or null.  Slices of a lane are in order of their starts; those
// that overlap are laid out below each other.
(() => {
  "use strict";
  const Timeline = (window.SlipstreamTimeline = window.SlipstreamTimeline || {});
  const MOST_HITS = 200;
  const HANDOVER_US = 20;

  /** The first place in a sorted array whose value is above `value`. */
  function upperBound(sorted, value) {
    let low = 0;
    let high = sorted.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (sorted[middle] <= value) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /** The level of each slice: the first on which nothing is open any more. */
  function levels(lane) {
    const open = [];
    // On a stream the next kernel may begin before the last has ended: a handover, no overlap.
    const overlap = lane.kind === "stream" ? HANDOVER_US : 1e-9;
    return Array.from(lane.start, (start, i) => {
      const own = start + lane.duration[i];
      let level = open.findIndex((end) => end <= start + overlap && end <= own + 1e-9);
      if (level < 0) level = open.length;
      open[level] = own;
      return level;
    });
  }

  /** Slices of a lane in a window; those narrower than a pixel become one block for each pixel. */
  function windowOf(lane, from, to, pixels) {
    const pixel = (to - from) / pixels;
    const out = { id: lane.id, start: [], duration: [], name: [], kind: [], count: [], busy: [] };
    out.depth = [];
    out.value = lane.value ? [] : undefined;
    const open = new Map(); // level -> {at: place in `out`, bucket, longest}
    for (let i = 0; i < upperBound(lane.start, to); i++) {
      const start = lane.start[i];
      const duration = lane.duration[i];
      if (start + duration < from) continue;
      const depth = lane.depth[i];
      const bucket = duration < pixel && !lane.value ? Math.floor((start - from) / pixel) : null;
      const block = open.get(depth);
      if (block && bucket !== null && block.bucket === bucket) {
        extend(out, block, lane, i);
        continue;
      }
      open.set(depth, { at: out.start.length, bucket, longest: duration });
      out.start.push(start);
      out.duration.push(duration);
      out.name.push(lane.name_of ? lane.name_of[i] : 0);
      out.kind.push(lane.kind_of ? lane.kind_of[i] : 0);
      out.count.push(1);
      out.busy.push(1);
      out.depth.push(depth);
      if (lane.value) out.value.push(lane.value[i]);
    }
    return out;
  }

  function extend(out, block, lane, i) {
    const at = block.at;
    const busy = out.busy[at] * out.duration[at] + lane.duration[i];
    out.duration[at] = lane.start[i] + lane.duration[i] - out.start[at];
    out.busy[at] = out.duration[at] > 0 ? Math.min(1, busy / out.duration[at]) : 1;
    out.count[at] += 1;
    if (lane.duration[i] > block.longest) {
      block.longest = lane.duration[i];
      out.name[at] = lane.name_of ? lane.name_of[i] : 0;
      out.kind[at] = lane.kind_of ? lane.kind_of[i] : 0;
    }
  }

  /** Slices whose name, or what is said of them, has the text; the longest first. */
  function hitsOf(data, lanes, text) {
    const wanted = text.toLowerCase();
    const named = data.names.map((name, i) => [name, data.readable?.[i], data.descriptions?.[i]]
      .some((text) => text && text.toLowerCase().includes(wanted)));
    const details = (data.details || []).map((detail) =>
      [detail.title, detail.source || "", ...detail.rows.map((row) => row.join(" "))]
        .join(" ").toLowerCase().includes(wanted));
    const hits = [];
    for (const lane of lanes) {
      for (let i = 0; i < lane.start.length; i++) {
        if (!named[lane.name_of[i]] && !(lane.detail_of && details[lane.detail_of[i]])) continue;
        const name = data.names[lane.name_of[i]];
        hits.push({ lane: lane.id, start_us: lane.start[i], duration_us: lane.duration[i], depth: lane.depth[i], name, isSpan: lane.kind === "structure" });
      }
    }
    // Slices first: spans of structure hold many of them.
    hits.sort((a, b) => a.isSpan - b.isSpan || b.duration_us - a.duration_us);
    const best = hits.slice(0, MOST_HITS).sort((a, b) => a.start_us - b.start_us);
    return Object.assign(best, { total: hits.length, best: Math.max(0, best.indexOf(hits[0])) });
  }

  function memorySource(data) {
    const lanes = data.lanes.map((lane) => ({ ...lane, depth: lane.depth || levels(lane) }));
    const byId = new Map(lanes.map((lane) => [lane.id, lane]));
    const kinds = data.kinds || ["compute"];
    return {
      start_us: data.start_us,
      end_us: data.end_us,
      steps: data.steps || [],
      members: data.members,
      lanes: lanes.map((lane) => ({
        id: lane.id, name: lane.name, group: lane.group, kind: lane.kind, unit: lane.unit,
        collapsed: lane.collapsed, member: lane.member, depths: 1 + lane.depth.reduce((a, b) => Math.max(a, b), 0),
      })),
      async slices(from, to, pixels) {
        const shown = lanes.map((lane) => windowOf(lane, from, to, pixels));
        return { lanes: shown, names: data.names, readable: data.readable, descriptions: data.descriptions, kinds };
      },
      async search(text) {
        return hitsOf(data, lanes.filter((lane) => lane.kind !== "counter" && !repeats(lane)), text);
      },
      async detail(id, start_us, depth) {
        const lane = byId.get(id);
        let at = upperBound(lane.start, start_us + 1e-6) - 1;
        while (at > 0 && Math.abs(lane.start[at - 1] - start_us) < 1e-6) at--;
        while (lane.depth[at] !== depth && Math.abs(lane.start[at + 1] - start_us) < 1e-6) at++;
        const said = lane.detail_of && lane.detail_of[at] >= 0 && data.details[lane.detail_of[at]];
        const partner = lane.partner_of && lane.partner_of[at];
        return {
          title: (said && said.title) || data.names[lane.name_of[at]],
          rows: (said && said.rows) || [],
          source: (said && said.source) || "",
          partner: partner ? { lane: partner[0], start_us: partner[1] } : null,
        };
      },
    };
  }

  /** Whether what a lane shows is on the streams, too. */
  function repeats(lane) {
    return lane.kind === "structure" && lane.name === "path";
  }

  Timeline.memorySource = memorySource;
})();
