// A step that a page holds, unpacked for the timeline; see slipstream.outputs.html.step_data.
(() => {
  "use strict";

  /** What memorySource takes: starts are differences, labels say name, kind and op. */
  function unpacked(step, ops, detail) {
    const names = step.labels.map(([name, , at]) => (at >= 0 ? ops[at].instruction : name));
    const readable = step.labels.map(([, , at]) => (at >= 0 ? ops[at].text || "" : ""));
    const extra = new Map(); // names of blocks that stand for several slices
    const blockName = (count, label) => {
      const name = `${count.toLocaleString("en")} slices, mostly ${readable[label] || names[label]}`;
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
    const all = { names: [...names, ...extra.keys()], readable, descriptions: [] };
    const structure = structureLanes(step.structure, all);
    const groups = Map.groupBy([...structure, ...lanes], (lane) => lane.group);
    return {
      start_us: 0, end_us: step.end_ns / 1000, kinds: step.kinds, ...all, lanes: [...groups.values()].flat(),
      steps: [{ start_us: step.step[0] / 1000, end_us: step.step[1] / 1000, name: `step ${step.step[2]}` }],
      details: step.labels.map(([name, , at]) => detail(name, at)),
    };
  }

  /** Lanes of structure: the levels of one name and group are the depths of one lane. */
  function structureLanes(levels, all) {
    const found = Map.groupBy(levels, (level) => `${level.group}/${level.name}`);
    return [...found.values()].map((own, number) => {
      const rows = own.flatMap((level) => {
        const first = all.names.length;
        for (const [text, said] of level.texts) {
          all.names.push(text);
          all.descriptions[all.names.length - 1] = said === text ? "" : said;
        }
        let at = 0;
        return level.starts.map((by, i) => {
          at += by;
          const kind = Array.isArray(level.kind) ? level.kind[i] : level.kind;
          return { start: at / 1000, us: level.durations[i] / 1000, name: first + level.text[i], kind, depth: level.depth };
        });
      }).sort((a, b) => a.start - b.start || a.depth - b.depth);
      return {
        id: `structure-${number}`, name: own[0].name, group: own[0].group, kind: "structure",
        start: rows.map((row) => row.start), duration: rows.map((row) => row.us), depth: rows.map((row) => row.depth),
        name_of: rows.map((row) => row.name), kind_of: rows.map((row) => row.kind), detail_of: rows.map(() => -1), partner_of: [],
      };
    });
  }

  window.SlipstreamSteps = { unpacked };
})();
