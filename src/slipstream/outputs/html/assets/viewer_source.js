// A timeline's source that asks the viewer's server; see slipstream.serve.encoding for the message.
(() => {
  "use strict";
  const Viewer = (window.SlipstreamViewer = window.SlipstreamViewer || {});
  const COLUMNS = [
    ["start", Float64Array], ["duration", Float64Array], ["name", Int32Array], ["count", Int32Array],
    ["busy", Float32Array], ["kind", Uint8Array], ["depth", Uint8Array],
  ];

  /** Ask the server; its error message is thrown. */
  async function ask(what, parameters, kind) {
    const text = new URLSearchParams(parameters || {}).toString();
    const answer = await fetch(`api/${what}${text ? `?${text}` : ""}`);
    if (!answer.ok) {
      const said = await answer.text();
      let message = said.trim() || `the server answered ${answer.status}`;
      try {
        message = JSON.parse(said).error || message;
      } catch {
        // It was plain text.
      }
      throw Object.assign(new Error(message), { status: answer.status });
    }
    return kind === "bytes" ? answer.arrayBuffer() : answer.json();
  }

  /** Numbers as `0-3,8`. */
  function ranges(numbers) {
    const sorted = [...numbers].sort((a, b) => a - b);
    const parts = [];
    for (const number of sorted) {
      const last = parts.at(-1);
      if (last && last[1] === number - 1) last[1] = number;
      else parts.push([number, number]);
    }
    return parts.map(([from, to]) => (from === to ? `${from}` : `${from}-${to}`)).join(",");
  }

  /** The message's columns, cut into lanes; nothing is copied where alignment allows. */
  function unpacked(buffer) {
    const length = Number(new DataView(buffer).getBigUint64(0, true));
    const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
    const rows = header.lanes.reduce((sum, [, count]) => sum + count, 0);
    const columns = {};
    let at = 8 + length;
    for (const [name, Kind] of COLUMNS) {
      const size = rows * Kind.BYTES_PER_ELEMENT;
      columns[name] = at % Kind.BYTES_PER_ELEMENT
        ? new Kind(buffer.slice(at, at + size)) : new Kind(buffer, at, rows);
      at += size;
    }
    let first = 0;
    const lanes = header.lanes.map(([id, count]) => {
      const lane = { id };
      for (const [name] of COLUMNS) lane[name] = columns[name].subarray(first, first + count);
      first += count;
      return lane;
    });
    const steps = header.steps.map(([member, number, start_us, end_us]) =>
      ({ member, number, start_us, end_us, name: `step ${number}` }));
    const { names, readable, descriptions, kinds } = header;
    return { lanes, steps, names, readable, descriptions, kinds };
  }

  function serverSource(scene) {
    // The server refuses to mix readings: lanes and times of one mean nothing in another.
    const { generation } = scene;
    const around = (from_us, to_us) => ({ from_us, to_us, generation });
    return {
      start_us: 0,
      end_us: scene.end_us,
      lanes: scene.lanes,
      stepped: scene.stepped,
      members: scene.members,
      async slices(from_us, to_us, pixels, wanted) {
        const which = { lanes: ranges(wanted.lanes), tops: ranges(wanted.tops) };
        return unpacked(await ask("slices", { ...around(from_us, to_us), pixels, ...which }, "bytes"));
      },
      async search(text, from_us, to_us) {
        const found = await ask("search", { text, ...around(from_us, to_us) });
        return Object.assign(found.hits, { total: found.total, best: found.best });
      },
      detail: (lane, start_us, depth) => ask("detail", { lane, start_us, depth, generation }),
    };
  }

  /** The scene's lanes with those of structure, which come first in their groups. */
  function withStructure(scene, found) {
    const groups = Map.groupBy([...found, ...scene.lanes], (lane) => lane.group);
    return { ...scene, lanes: [...new Set(scene.lanes.map((lane) => lane.group))].flatMap((name) => groups.get(name)) };
  }

  Object.assign(Viewer, { ask, serverSource, withStructure });
})();
