// The ribbon of time, the phase diagram, and the bars of a phase.

const LANES = ["prefill", "decode", "tool"];
const LANE_HEIGHT = 15;

// The run in time, one lane each for what was read, what was written and the tools. The time
// between two questions is left out.
function ribbon(run, select) {
  const width = 1000, height = LANES.length * LANE_HEIGHT;
  const total = run.turns.reduce((sum, turn) => sum + (turn.end - turn.start), 0) || 1;
  const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none" });
  const marks = new Map();
  let at = 0;
  run.turns.forEach((turn, n) => {
    const span = turn.end - turn.start;
    const x = (ms) => ((at + ms - turn.start) / total) * width;
    root.append(draw("rect", {
      x: x(turn.start), y: 0, width: (span / total) * width, height, class: n % 2 ? "band odd" : "band",
    }));
    for (let i = turn.leaves[0]; i < turn.leaves[1]; i++) {
      const leaf = run.leaves[i];
      const lane = LANES.indexOf(leaf.kind === "tool" ? "tool" : leaf.phase);
      const title = draw("title", {});
      title.textContent = `${nameOf(leaf)}, ${duration(secondsOf(leaf))}`;
      const mark = draw("rect", {
        x: x(leaf.start), y: lane * LANE_HEIGHT + 1.5, height: LANE_HEIGHT - 3,
        width: Math.max(x(leaf.end) - x(leaf.start), 1.2), class: `leaf ${kindOf(leaf)}`,
      }, title);
      mark.addEventListener("click", () => select(i));
      marks.set(i, mark);
      root.append(mark);
    }
    at += span;
  });
  const lanes = make("div", { class: "lanes" }, LANES.map((name) => make("span", {}, name)));
  return { node: make("div", { class: "ribbon" }, lanes, root), marks };
}

const AGENT_HEIGHT = 20, STRIP = 3, MOST_SEQUENCES = 8;

// Of each run, those that went on at the same time, directly or through others; by their start.
function atOnce(runs) {
  const groups = [];
  let group = [], until = -Infinity;
  for (const n of runs.map((_, n) => n).sort((a, b) => runs[a].at - runs[b].at || a - b)) {
    const { at, end } = runs[n];
    if (at >= until) group = [];
    group.push(n);
    groups[n] = group;
    until = Math.max(until, at + end);
  }
  return groups;
}

let groups;  // of the page's runs, made when the first is shown

// Agents that ran at the same time, a lane each: phases by their bound, tools, and below them a
// strip where others had rows in the same pass, the stronger the more.
function agentLanes(runs, current, name, choose) {
  groups ??= atOnce(runs);
  const group = groups[current];
  if (group.length < 2) return null;
  const first = Math.min(...group.map((n) => runs[n].at));
  const total = Math.max(...group.map((n) => runs[n].at + runs[n].end)) - first || 1;
  const width = 1000, height = group.length * AGENT_HEIGHT;
  const root = draw("svg", { viewBox: `0 0 ${width} ${height}`, preserveAspectRatio: "none", height });
  const marks = new Map();
  group.forEach((n, lane) => {
    const run = runs[n], top = lane * AGENT_HEIGHT;
    const x = (ms) => ((run.at - first + ms) / total) * width;
    root.append(draw("rect", { x: 0, y: top, width, height: AGENT_HEIGHT, class: n === current ? "lane current" : "band" }));
    run.leaves.forEach((leaf, i) => {
      const title = draw("title", {});
      title.textContent = `${nameOf(leaf)}, ${duration(secondsOf(leaf))}${sharedText(leaf)}`;
      const mark = draw("rect", {
        x: x(leaf.start), y: top + 2, width: Math.max(x(leaf.end) - x(leaf.start), 1),
        height: AGENT_HEIGHT - 4 - STRIP, class: `leaf ${kindOf(leaf)}`,
      }, title);
      mark.addEventListener("click", () => choose(n, i));
      if (n === current) marks.set(i, mark);
      root.append(mark);
      for (const [start, end, sequences] of merged(leaf.together || [], total / width)) {
        root.append(draw("rect", {
          x: x(start), y: top + AGENT_HEIGHT - STRIP - 1, width: Math.max(x(end) - x(start), 0.6), height: STRIP,
          class: "together", "fill-opacity": 0.2 + 0.7 * Math.min(sequences / MOST_SEQUENCES, 1),
        }));
      }
    });
  });
  const names = make("div", { class: "names" }, group.map((n) =>
    make("button", { type: "button", tabindex: "-1", "aria-current": n === current ? "true" : "false",
      on: { click: () => choose(n, 0) } }, name(runs[n]))));
  const node = [make("div", { class: "agents" }, names, root),
    make("p", { class: "note" }, `${group.length} agents at once, ${duration(total / 1e3)}; the strip below a lane: passes that others shared, the stronger the more`)];
  return { node, marks };
}

// Neighbors that are as good as one at this scale, of as many sequences.
function merged(passes, pixel) {
  const found = [];
  for (const [start, end, sequences] of passes) {
    const last = found[found.length - 1];
    if (last && last[2] === sequences && start - last[1] < pixel) last[1] = end;
    else found.push([start, end, sequences]);
  }
  return found;
}

function sharedText(leaf) {
  const shared = leaf.shared;
  return shared ? `; ${whole(shared.passes)} of ${whole(leaf.passes)} passes shared` : "";
}

const PLOT = { left: 46, right: 8, top: 10, bottom: 34, width: 420, height: 270 };
const LETTERS = { c: "compute", m: "memory", d: "dispatch" };

// Tokens in the pass over KV length, both logarithmic: the ground is what the cost model names,
// the line is the run.
function phaseDiagram(run, select) {
  const map = (run.header && run.header.map) || {};
  const phases = run.leaves.map((leaf, i) => ({ leaf, i })).filter(({ leaf }) => leaf.kind === "phase");
  const points = phases.map(({ leaf, i }) => ({
    i, leaf, kv: Math.max(leaf.kv_before, 1),
    tokens: leaf.phase === "decode" ? 1 : Math.max(leaf.tokens / Math.max(leaf.passes, 1), 1),
  }));
  const most = (list, least) => list.reduce((a, b) => Math.max(a, b), least);
  const kvs = Array.isArray(map.kv) ? map.kv : [], sizes = Array.isArray(map.tokens) ? map.tokens : [];
  const top = most([...points.map((p) => p.tokens), ...sizes], 16) * 1.3;
  const right = most([...points.map((p) => p.kv), ...kvs], 64) * 1.1;
  const across = PLOT.width - PLOT.left - PLOT.right, up = PLOT.height - PLOT.top - PLOT.bottom;
  const x = (kv) => PLOT.left + ((Math.log(kv) + 0.3) / (Math.log(right) + 0.3)) * across;
  const y = (n) => PLOT.top + up - (Math.log(n) + 0.25) / (Math.log(top) + 0.25) * up;
  const root = draw("svg", { viewBox: `0 0 ${PLOT.width} ${PLOT.height}`, class: "plot", role: "img" });
  root.append(ground(sizes, kvs, map.bounds, x, y, right, top));
  axes(root, x, y, right, top);
  const path = points.map((p) => `${x(p.kv).toFixed(1)},${y(p.tokens).toFixed(1)}`).join(" ");
  root.append(draw("polyline", { points: path, class: points.length > 80 ? "path dense" : "path" }));
  const marks = new Map();
  for (const point of points) {
    const mark = symbol(kindOf(point.leaf), x(point.kv), y(point.tokens));
    const title = draw("title", {});
    title.textContent = `${words(point.leaf.purpose)}: ${point.leaf.label}, ` +
      `${whole(point.leaf.tokens)} tokens after ${whole(point.leaf.kv_before)}`;
    mark.append(title);
    mark.addEventListener("click", () => select(point.i));
    marks.set(point.i, mark);
    root.append(mark);
  }
  return { node: root, marks };
}

function ground(sizes, kvs, bounds, x, y, right, top) {
  const group = draw("g", { class: "ground" });
  if (!Array.isArray(bounds)) return group;
  // A cell reaches half way to its neighbors; equal cells of a row are one rectangle.
  const edge = (list, i, last) =>
    i <= 0 ? list[0] / 1.19 : i >= list.length ? last : Math.sqrt(list[i - 1] * list[i]);
  sizes.forEach((_, row) => {
    const letters = String(bounds[row] || "");
    const y1 = y(Math.min(edge(sizes, row + 1, top), top)), y2 = y(Math.max(edge(sizes, row, top), 0.84));
    let from = 0;
    for (let col = 1; col <= kvs.length; col++) {
      if (col < kvs.length && letters[col] === letters[from]) continue;
      const x1 = x(Math.max(edge(kvs, from, right), 0.75)), x2 = x(Math.min(edge(kvs, col, right), right));
      const name = LETTERS[letters[from]] || "unknown";
      group.append(draw("rect", { x: x1, y: y1, width: x2 - x1, height: y2 - y1, class: name }));
      from = col;
    }
  });
  return group;
}

function axes(root, x, y, right, top) {
  const text = (place, label, extra) => {
    const node = draw("text", { ...place, class: `tick ${extra || ""}` });
    node.textContent = label;
    root.append(node);
  };
  const short = (n) => (n >= 1000 ? `${n / 1000}k` : `${n}`);
  for (let n = 1; n <= right; n *= 10) {
    root.append(draw("line", { x1: x(n), x2: x(n), y1: PLOT.top, y2: PLOT.height - PLOT.bottom, class: "grid" }));
    text({ x: x(n), y: PLOT.height - PLOT.bottom + 14, "text-anchor": "middle" }, short(n));
  }
  for (let n = 1; n <= top; n *= 10) {
    root.append(draw("line", { x1: PLOT.left, x2: PLOT.width - PLOT.right, y1: y(n), y2: y(n), class: "grid" }));
    text({ x: PLOT.left - 6, y: y(n) + 3.5, "text-anchor": "end" }, short(n));
  }
  text({ x: (PLOT.left + PLOT.width) / 2, y: PLOT.height - 4, "text-anchor": "middle" }, "tokens in the KV cache", "name");
  const middle = (PLOT.height - PLOT.bottom) / 2;
  text({ x: 11, y: middle, "text-anchor": "middle", transform: `rotate(-90 11 ${middle})` }, "tokens in the pass", "name");
}

// Triangle, square and circle, so that the bounds differ without their colors.
function symbol(kind, cx, cy) {
  const place = { class: `point ${kind}` };
  if (kind === "compute") {
    return draw("path", { ...place, d: `M${cx} ${cy - 5.5}L${cx + 5} ${cy + 4}H${cx - 5}Z` });
  }
  if (kind === "memory") return draw("rect", { ...place, x: cx - 4, y: cy - 4, width: 8, height: 8 });
  return draw("circle", { ...place, cx, cy, r: 4.4 });
}

function markFor(kind) {
  return make("span", { class: `mark ${kind}` }, BOUNDS[kind].mark);
}

// What each limit alone would have taken, beside what the phase took; all on one scale.
function predictedBars(leaf) {
  const times = Object.entries(leaf.predicted_s || {}).filter(([, s]) => Number.isFinite(s));
  if (!times.length) return null;
  const longest = Math.max(leaf.wall_s || 0, ...times.map(([, s]) => s)) || 1;
  const bar = (name, seconds, kind, note) =>
    make("div", { class: `bar-row ${note ? "chosen" : ""}` },
      make("span", { class: "bar-name" }, BOUNDS[kind] ? markFor(kind) : null, name),
      make("span", { class: "bar-track" },
        make("span", { class: `bar ${kind}`, css: { width: `${Math.max((seconds / longest) * 100, 0.6)}%` } })),
      make("span", { class: "bar-value" }, duration(seconds), note ? make("em", {}, note) : null));
  return make("div", { class: "bars" },
    times.map(([name, s]) =>
      bar(words(name), s, BOUNDS[name] ? name : "unknown", name === leaf.predicted ? "predicted" : "")),
    bar("observed", leaf.wall_s, "wall", ""));
}

// Shares of the limits that the phase reached.
function shareBars(leaf) {
  const rows = [
    ["arithmetic", leaf.mfu, "compute"],
    [`read ${leaf.memory_level || "memory"}`, leaf.mbu, "memory"],
    ["dispatch, waiting", leaf.dispatch_share, "dispatch"],
  ];
  return make("div", { class: "bars" }, rows.map(([name, share, kind]) =>
    make("div", { class: `bar-row ${kind === leaf.observed ? "chosen" : ""}` },
      make("span", { class: "bar-name" }, markFor(kind), name),
      make("span", { class: "bar-track" },
        make("span", { class: `bar ${kind}`, css: { width: `${Math.min(Math.max(share || 0, 0), 1) * 100}%` } })),
      make("span", { class: "bar-value" }, percent(share)))));
}

function layerBars(leaf) {
  if (!Array.isArray(leaf.layers) || !leaf.layers.length) return null;
  const longest = Math.max(...leaf.layers.map((layer) => layer.wall_s || 0)) || 1;
  const parts = [["attention_s", "attention"], ["ffn_s", "feed-forward"], ["other_s", "other"], ["wait_s", "waiting"]];
  const rows = leaf.layers.map((layer) =>
    make("div", { class: "bar-row slim" },
      make("span", { class: "bar-name" }, layer.layer === null ? "outside" : `layer ${layer.layer}`),
      make("span", { class: "bar-track" }, parts.map(([field, name]) =>
        make("span", { class: `bar part ${field}`, title: `${name}: ${duration(layer[field])}`,
          css: { width: `${((layer[field] || 0) / longest) * 100}%` } }))),
      make("span", { class: "bar-value" }, duration(layer.wall_s))));
  const legend = make("div", { class: "legend" }, parts.map(([field, name]) =>
    make("span", {}, make("i", { class: `bar part ${field}` }), name)));
  return make("div", { class: "bars" }, rows, legend);
}
