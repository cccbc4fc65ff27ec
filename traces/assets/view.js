// The page: one run at a time, one selected phase or call, and what belongs to it.

const data = JSON.parse(byId("data").textContent);
const texts = data.texts;
const state = { run: 0, leaf: -1 };
let shown = null; // what is drawn of the current run: elements by number

const FOLD_LINES = 14, FOLD_CHARACTERS = 1400;
const SHORT_RUN = 12;  // messages and calls: there is room to show what is folded in longer ones

function showRun(number) {
  state.run = number;
  state.leaf = -1;
  const run = data.runs[number];
  shown = { items: new Map(), rows: new Map() };
  byId("about").replaceChildren(...about(run));
  byId("figures").replaceChildren(...figures(run));
  const time = ribbon(run), diagram = byId("diagrams").content.children[number].cloneNode(true);
  shown.ribbon = time.marks;
  shown.points = new Map();
  for (const point of diagram.querySelectorAll("[data-leaf]")) {
    shown.points.set(Number(point.dataset.leaf), point);
    point.addEventListener("click", () => select(Number(point.dataset.leaf)));
  }
  byId("ribbon").replaceChildren(time.node);
  showLanes(number);
  byId("diagram").replaceChildren(make("h2", {}, "Phase diagram"), diagram, legend(),
    make("p", { class: "quiet small" }, "ground: predicted, marks: observed"));
  byId("talk").replaceChildren(...run.turns.map((turn, n) => conversation(run, turn, n)));
  byId("phases").replaceChildren(...run.turns.map((turn, n) => phaseList(run, turn, n)));
  byId("talk").scrollTop = byId("phases").scrollTop = 0;
  byId("runs").value = String(number);
  document.title = `${questionOf(run) || run.run} · triplepoint trace`;
  if (run.leaves.length) select(0);
  else byId("detail").replaceChildren(make("p", { class: "quiet" }, "No phase was recorded."));
}

// What a phase or call is, for its marks.

function kindOf(leaf) {
  return leaf.kind === "tool" ? "tool" : leaf.observed !== "tool" && BOUNDS[leaf.observed] ? leaf.observed : "unknown";
}

function secondsOf(leaf) {
  return leaf.kind === "tool" ? leaf.duration_s : leaf.wall_s;
}

function nameOf(leaf) {
  return leaf.kind === "tool" ? leaf.name : words(leaf.purpose);
}

function titleOf(leaf) {
  const shared = leaf.shared ? `; ${whole(leaf.shared.passes)} of ${whole(leaf.passes)} passes shared` : "";
  return `${nameOf(leaf)}, ${duration(secondsOf(leaf))}${shared}`;
}

// The run in time, a lane each for what was read, what was written and the tools. The time between two
// questions is left out.
function ribbon(run) {
  const lanes = { prefill: [], decode: [], tool: [] }, bands = [];
  let at = 0;
  run.turns.forEach((turn, n) => {
    const span = turn.end - turn.start;
    if (n % 2) bands.push([at, at + span]);
    for (let i = turn.leaves[0]; i < turn.leaves[1]; i++) {
      const leaf = run.leaves[i], start = at + leaf.start - turn.start;
      lanes[leaf.kind === "tool" ? "tool" : leaf.phase].push({ id: i, start, end: start + leaf.end - leaf.start,
        kind: kindOf(leaf), title: titleOf(leaf), pick: () => select(i) });
    }
    at += span;
  });
  const names = make("div", { class: "names" }, Object.keys(lanes).map((name) => make("span", {}, name)));
  const { node, marks } = timeLanes(Object.values(lanes).map((bars) => ({ bars })), at || 1, 15, bands);
  return { node: make("div", { class: "ribbon" }, names, node), marks };
}

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

// The agents that ran beside this one, where there were any: a lane each, and below it a strip where others had
// rows in the same pass, the stronger the more.
function showLanes(number) {
  groups ??= atOnce(data.runs);
  const group = groups[number];
  byId("agents").hidden = group.length < 2;
  document.body.classList.toggle("many", group.length > 1);
  shown.lanes = new Map();
  if (group.length < 2) return;
  const first = Math.min(...group.map((n) => data.runs[n].at));
  const total = Math.max(...group.map((n) => data.runs[n].at + data.runs[n].end)) - first || 1;
  const go = (n, leaf) => { if (n !== state.run) showRun(n); select(leaf); };
  const rows = group.map((n) => {
    const run = data.runs[n], from = run.at - first, mine = n === number;
    return {
      current: mine,
      bars: run.leaves.map((leaf, i) => ({ id: mine ? i : undefined, start: from + leaf.start, end: from + leaf.end,
        kind: kindOf(leaf), title: titleOf(leaf), pick: () => go(n, i) })),
      strips: run.leaves.flatMap((leaf) => merged(leaf.together || [], total / 1000).map(([start, end, sequences]) =>
        [from + start, from + end, 0.2 + 0.7 * Math.min(sequences / 8, 1)])),
    };
  });
  const { node, marks } = timeLanes(rows, total, 20);
  shown.lanes = marks;
  const names = make("div", { class: "names" }, group.map((n) =>
    make("button", { type: "button", tabindex: "-1", "aria-current": n === number ? "true" : "false", on: { click: () => go(n, 0) } },
      questionOf(data.runs[n]) || data.runs[n].run)));
  byId("agents").replaceChildren(make("div", { class: "ribbon" }, names, node), make("p", { class: "quiet small" },
    `${group.length} agents at once, ${duration(total / 1e3)}; the strip below a lane: passes that others shared, the stronger the more`));
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

function questionOf(run) {
  return run.turns.length ? texts[run.turns[0].question] : "";
}

function about(run) {
  const head = run.header;
  const chips = head
    ? [`${head.model}${head.quant ? ` ${head.quant}` : ""}`, head.target, `${head.threads} threads`,
        head.kv ? `kv ${head.kv}` : "", head.cpu].filter(Boolean)
    : ["no header"];
  const notes = [];
  if (run.redacted) notes.push(make("span", { class: "warn" }, "redacted: no text was recorded"));
  if (run.status !== "answered") notes.push(make("span", { class: "warn" }, `${run.status}${run.message ? `: ${run.message}` : ""}`));
  return [
    make("h1", {}, questionOf(run) || run.run),
    make("div", { class: "chips" }, make("span", { class: "mono" }, run.run), chips.map((text) => make("span", {}, text)),
      make("span", {}, `${run.began} UTC`), notes),
  ];
}

function figures(run) {
  const t = run.totals, share = t.input_tokens ? t.cached_tokens / t.input_tokens : NaN;
  const list = [
    ["time to first token", duration(t.ttft_s ?? NaN)],
    ["time per token", duration(t.tpot_s ?? NaN)],
    ["engine", duration(t.engine_s)],
    ["tools", t.tool_calls ? `${duration(t.tool_s)}` : "–", t.tool_calls ? `${whole(t.tool_calls)} calls` : ""],
    ["read", whole(t.input_tokens), `${percent(share)} from cache`],
    ["written", whole(t.output_tokens), "tokens"],
    ["turns", whole(run.turns.length)],
    ["regime changes", whole(run.transitions)],
  ];
  return figureBoxes(list);
}

// The conversation.

function conversation(run, turn, n) {
  const section = make("section", { class: "turn" }, make("h2", {}, `Turn ${turn.number}`));
  for (let i = turn.items[0]; i < turn.items[1]; i++) section.append(message(run, run.items[i], i));
  if (!turn.answered) section.append(make("p", { class: "quiet" }, "This turn has no answer."));
  const notes = turn.sources.map(([fact, path, line]) => make("li", {}, `${fact}: `, make("code", {}, line ? `${path}:${line}` : path)));
  notes.push(...turn.unsupported.map((fact) => make("li", { class: "warn" }, `${fact}: no source`)));
  if (notes.length) section.append(make("ul", { class: "quiet" }, notes));
  section.dataset.turn = n;
  return section;
}

function message(run, item, i) {
  const leaf = item.leaf === null ? null : run.leaves[item.leaf];
  const head = make("div", { class: "head" },
    make("span", { class: "role" }, item.call || item.role),
    leaf ? markOf(kindOf(leaf)) : null,
    leaf ? make("span", { class: "quiet" }, duration(secondsOf(leaf))) : null);
  const called = leaf !== null && leaf.purpose === "tool_call";
  const answer = item.role === "assistant" && !called, folded = !answer && item.role !== "user";
  const node = make("article", { class: `message ${item.role}`, tabindex: "-1",
    on: { click: () => { if (item.leaf !== null && !String(getSelection())) select(item.leaf); } } },
    head, item.error ? make("p", { class: "warn" }, item.error) : null,
    body(texts[item.text] || "", answer, folded, run.items.length <= SHORT_RUN));
  shown.items.set(i, node);
  return node;
}

// A text, folded where it is long or was not said by anyone, but an answer never; what is folded is made when opened.
function body(text, answer, folded, open) {
  const lines = text.split("\n");
  if (!text) return make("div", { class: "text quiet" }, "(empty)");
  if (answer || (!folded && lines.length <= FOLD_LINES && text.length <= FOLD_CHARACTERS)) {
    return make("div", { class: "text" }, text);
  }
  const size = lines.length > 1 ? `${whole(lines.length)} lines, ${whole(text.length)} characters`
    : `${whole(text.length)} characters`;
  const first = text.slice(0, 400).replace(/\s+/g, " ");
  const fold = make("details", {}, make("summary", {}, make("span", { class: "first" }, first), make("span", { class: "size" }, size)));
  fold.addEventListener("toggle", () => {
    if (fold.open && fold.childElementCount === 1) fold.append(make("pre", { class: "text" }, text));
  });
  fold.addEventListener("click", (event) => event.stopPropagation());
  fold.open = open;
  return fold;
}

// The phases.

function phaseList(run, turn, n) {
  const longest = Math.max(...run.leaves.map(secondsOf).filter(Number.isFinite), 1e-9);
  const section = make("section", { class: "turn" },
    make("h2", {}, `Turn ${turn.number}`, make("span", { class: "quiet" }, duration((turn.end - turn.start) / 1e3))));
  for (let i = turn.leaves[0]; i < turn.leaves[1]; i++) section.append(row(run.leaves[i], i, longest));
  section.dataset.turn = n;
  return section;
}

function row(leaf, i, longest) {
  const seconds = secondsOf(leaf), tool = leaf.kind === "tool";
  const quiet = (name, text) => make("span", { class: `${name} quiet` }, text);
  const node = make("button", { type: "button", class: tool ? "row tool-row" : "row", tabindex: "-1", on: { click: () => select(i) } },
    markOf(kindOf(leaf)),
    make("b", { class: "what" }, nameOf(leaf)),
    make("span", { class: "tokens" }, tool ? "" : `${whole(leaf.tokens)} tok`),
    make("span", { class: "time" }, duration(seconds)),
    quiet("regime", tool ? (leaf.error ? "error" : "tool") : leaf.label),
    quiet("speed", tool ? `${whole(leaf.characters)} characters` : `${rate(leaf.tokens_per_s)} tok/s`),
    quiet("other", !tool && leaf.predicted !== leaf.observed && leaf.source !== "remote" ? `${BOUNDS[leaf.predicted]} predicted` : ""),
    make("span", { class: `length ${kindOf(leaf)}`, css: { width: `${Math.max(((seconds || 0) / longest) * 100, 0.4)}%` } }));
  shown.rows.set(i, node);
  return node;
}

// One phase or call.

function detail(run, leaf) {
  const facts = (pairs) => make("dl", {}, pairs.filter(([, value]) => value !== null && value !== undefined && value !== "")
    .map(([name, value]) => make("div", {}, make("dt", {}, name), make("dd", {}, value))));
  const title = make("h2", {}, markOf(kindOf(leaf)), ` ${nameOf(leaf)}`);
  const where = `turn ${leaf.turn}, step ${leaf.step}, ${duration(leaf.start / 1e3)} after the start`;
  if (leaf.kind === "tool") {
    return [title, make("p", { class: "quiet" }, where), facts([
      ["time", duration(leaf.duration_s)], ["result", `${whole(leaf.characters)} characters`], ["effect", leaf.effect],
      ["policy", [leaf.decision, leaf.decided_by].filter(Boolean).join(" by ")],
      ["asked for", leaf.asked_s ? duration(leaf.asked_s) : ""], ["error", leaf.error]]),
      make("h3", {}, "Arguments"), make("pre", { class: "text" }, leaf.arguments)];
  }
  const perSecond = (value, unit) => (leaf.wall_s > 0 && value ? `${rate(value / leaf.wall_s / 1e9)} ${unit}` : null);
  const nodes = [title,
    make("p", { class: "regime" }, make("b", {}, leaf.label),
      leaf.predicted === leaf.observed ? ", as predicted" : `; predicted: ${leaf.predicted_regime}`),
    make("p", { class: "quiet" }, where),
    facts([
      ["time", duration(leaf.wall_s)], [leaf.phase === "decode" ? "sampled" : "fed", `${whole(leaf.tokens)} tokens`],
      ["speed", `${rate(leaf.tokens_per_s)} tok/s`], ["KV cache", `${whole(leaf.kv_before)} → ${whole(leaf.kv_after)}`],
      ["first token", leaf.ttft_s ? duration(leaf.ttft_s) : ""], ["reused", leaf.phase === "prefill" ? `${whole(leaf.cached_tokens)} tokens` : ""],
      ["arithmetic", perSecond(leaf.flops, "GFLOP/s")], ["memory", perSecond(leaf.bytes, "GB/s")],
      ["passes", leaf.passes ? whole(leaf.passes) : ""],
      ["shared passes", leaf.shared ? `${whole(leaf.shared.passes)}, ${digits(leaf.shared.sequences)} sequences each` : ""],
      ["its share of them", leaf.shared ? duration(leaf.shared.seconds) : ""], ["threads", leaf.threads ? whole(leaf.threads) : ""],
      ["time without a core", leaf.run_delay_share === null ? "" : percent(leaf.run_delay_share)],
      ["plan", leaf.plan], ["experts a layer", leaf.experts], ["grammar", leaf.constraint]])];
  const bars = predictedBars(leaf), layers = layerBars(leaf);
  if (bars) nodes.push(make("h3", {}, "Predicted and observed"), bars);
  if (leaf.source !== "remote") nodes.push(make("h3", {}, "Share of the limit"), shareBars(leaf));
  if (layers) nodes.push(make("h3", {}, "By layer"), layers);
  return nodes;
}

// What each limit alone would have taken, beside what the phase took; all on one scale.
function predictedBars(leaf) {
  const times = Object.entries(leaf.predicted_s || {}).filter(([, s]) => Number.isFinite(s));
  if (!times.length) return null;
  const longest = Math.max(leaf.wall_s || 0, ...times.map(([, s]) => s)) || 1;
  const row = (name, seconds, kind, note) => ({ name: words(name), mark: BOUNDS[kind] ? kind : "", note, chosen: note,
    parts: [[kind, Math.max(seconds / longest, 0.006)]], value: duration(seconds) });
  return barRows([
    ...times.map(([name, s]) => row(name, s, BOUNDS[name] ? name : "unknown", name === leaf.predicted ? "predicted" : "")),
    row("observed", leaf.wall_s, "wall", "")]);
}

// Shares of the limits that the phase reached.
function shareBars(leaf) {
  const shares = [["arithmetic", leaf.mfu, "compute"], [`read ${leaf.memory_level || "memory"}`, leaf.mbu, "memory"],
    ["dispatch, waiting", leaf.dispatch_share, "dispatch"]];
  return barRows(shares.map(([name, share, kind]) =>
    ({ name, mark: kind, parts: [[kind, share]], value: percent(share), chosen: kind === leaf.observed })));
}

function layerBars(leaf) {
  if (!Array.isArray(leaf.layers) || !leaf.layers.length) return null;
  const longest = Math.max(...leaf.layers.map((layer) => layer.wall_s || 0)) || 1;
  const parts = [["attention_s", "attention", "s1"], ["ffn_s", "feed-forward", "s4"], ["other_s", "other", "s2"], ["wait_s", "waiting", "unknown"]];
  const rows = leaf.layers.map((layer) => ({
    name: layer.layer === null ? "outside" : `layer ${layer.layer}`, value: duration(layer.wall_s),
    parts: parts.map(([field, name, kind]) => [kind, (layer[field] || 0) / longest, `${name}: ${duration(layer[field])}`]) }));
  return make("div", {}, barRows(rows), legend(parts.map(([, name, kind]) => [kind, name])));
}

function select(number) {
  const run = data.runs[state.run], before = run.leaves[state.leaf], leaf = run.leaves[number];
  if (!leaf) return;
  const mark = (i, on) => {
    for (const list of [shown.rows, shown.ribbon, shown.points, shown.lanes]) {
      const node = list.get(i);
      if (node) node.classList.toggle("selected", on);
    }
    const row = shown.rows.get(i);
    if (row) row.setAttribute("aria-current", on ? "true" : "false");
  };
  if (before) {
    mark(state.leaf, false);
    if (before.item !== null) shown.items.get(before.item).classList.remove("selected");
  }
  state.leaf = number;
  mark(number, true);
  const point = shown.points.get(number);
  if (point) point.parentNode.append(point); // on top of its neighbors
  byId("detail").replaceChildren(...detail(run, leaf));
  reveal(shown.rows.get(number), byId("phases"));
  if (leaf.item !== null) {
    const item = shown.items.get(leaf.item);
    item.classList.add("selected");
    reveal(item, byId("talk"));
  }
}

// Into view, by as little as it takes; only the pane scrolls, never the page.
function reveal(node, pane) {
  const a = node.getBoundingClientRect(), b = pane.getBoundingClientRect(), room = 28;
  if (a.top < b.top + room) pane.scrollTop += a.top - b.top - room;
  else if (a.bottom > b.bottom - room) pane.scrollTop += Math.min(a.bottom - b.bottom + room, a.top - b.top - room);
}

function turnOf(run, leaf) {
  return run.turns.findIndex((turn) => leaf >= turn.leaves[0] && leaf < turn.leaves[1]);
}

function toTurn(by) {
  const run = data.runs[state.run];
  for (let n = turnOf(run, state.leaf) + by; n >= 0 && n < run.turns.length; n += by) {
    if (run.turns[n].leaves[0] < run.turns[n].leaves[1]) return select(run.turns[n].leaves[0]);
  }
}

function fold() {
  const leaf = data.runs[state.run].leaves[state.leaf];
  const item = leaf && leaf.item !== null ? shown.items.get(leaf.item) : null;
  const part = item && item.querySelector("details");
  if (part) part.open = !part.open;
  if (item) requestAnimationFrame(() => reveal(item, byId("talk")));
}

function toggleTheme() {
  const dark = document.documentElement.dataset.theme === "dark" ||
    (!document.documentElement.dataset.theme && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = dark ? "light" : "dark";
}

function toRun(by) {
  const next = state.run + by;
  if (next >= 0 && next < data.runs.length) showRun(next);
}

const KEYS = [
  [["j", "ArrowDown"], "next phase or call", () => select(state.leaf + 1)],
  [["k", "ArrowUp"], "the one before", () => select(state.leaf - 1)],
  [["l", "ArrowRight"], "next turn", () => toTurn(1)],
  [["h", "ArrowLeft"], "the turn before", () => toTurn(-1)],
  [["g", "Home"], "first", () => select(0)],
  [["G", "End"], "last", () => select(data.runs[state.run].leaves.length - 1)],
  [["Enter"], "open or close the text", fold],
  [["]"], "next run", () => toRun(1)],
  [["["], "the run before", () => toRun(-1)],
  [["t"], "light or dark", toggleTheme],
  [["?"], "these keys", () => byId("help").showModal()],
];

document.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.altKey || event.metaKey || byId("help").open) return;
  if (event.target instanceof HTMLSelectElement) return;
  const own = event.target instanceof HTMLElement && event.target.closest("summary, #buttons button");
  if (own && event.key === "Enter") return;
  const found = KEYS.find(([names]) => names.includes(event.key));
  if (!found) return;
  event.preventDefault();
  found[2]();
});

function start() {
  const names = { ArrowDown: "↓", ArrowUp: "↑", ArrowLeft: "←", ArrowRight: "→" };
  byId("help").append(make("h2", {}, "Keys"), make("dl", { class: "keys" }, KEYS.map(([keys, what]) =>
    make("div", {}, make("dt", {}, keys.map((key) => make("kbd", {}, names[key] || key))), make("dd", {}, what)))),
    make("button", { type: "button", on: { click: () => byId("help").close() } }, "Close"));
  byId("theme").addEventListener("click", toggleTheme);
  byId("help-button").addEventListener("click", () => byId("help").showModal());
  const picker = byId("runs");
  data.runs.forEach((run, n) => {
    picker.append(make("option", { value: n }, `${run.began} · ${(questionOf(run) || run.run).slice(0, 60)}`));
  });
  picker.hidden = data.runs.length < 2;
  picker.addEventListener("change", () => { showRun(Number(picker.value)); picker.blur(); });
  if (data.runs.length) showRun(0);
  document.documentElement.dataset.ready = "yes";
}

start();
