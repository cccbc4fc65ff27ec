// Lanes of time, and rows of bars.

const BOUNDS = Object.assign(Object.create(null), {  // by color and by shape: each alone tells them apart
  compute: "▲", memory: "■", dispatch: "●", unknown: "○", tool: "◇",
});

function markOf(kind) {
  return make("i", { class: `mark ${kind}` }, BOUNDS[kind]);
}

// What colors mean: kinds with their words; by default the bounds.
function legend(kinds = ["compute", "memory", "dispatch"].map((kind) => [kind, `${kind}-bound`])) {
  return make("div", { class: "legend" }, kinds.map(([kind, text]) =>
    make("span", {}, kinds.length > 3 ? make("i", { class: `swatch ${kind}` }) : markOf(kind), text)));
}

// Rows of bars over one axis of time from 0 to `total`. A row has bars of {start, end, kind, title, pick, id},
// and perhaps strips below them of [start, end, opacity]. Gives the drawing, and the bars that have an id.
function timeLanes(rows, total, height, bands = []) {
  const width = 1000, strip = 3, whole = rows.length * height;
  const x = (t) => Math.min(Math.max(t / total, 0), 1) * width;
  const root = draw("svg", { viewBox: `0 0 ${width} ${whole}`, preserveAspectRatio: "none", height: whole, class: "lanes" });
  const marks = new Map();
  for (const [start, end] of bands) root.append(draw("rect", { x: x(start), y: 0, width: x(end) - x(start), height: whole, class: "band" }));
  rows.forEach((row, n) => {
    const top = n * height, below = row.strips ? strip : 0;
    const lane = draw("g", row.name ? { role: "img", "aria-label": row.name } : {});
    if (row.current) lane.append(draw("rect", { x: 0, y: top, width, height, class: "band" }));
    for (const { start, end, kind, title, pick, id } of row.bars) {
      const mark = draw("rect", { x: x(start), y: top + 2, width: Math.max(x(end) - x(start), 1.2), height: height - 4 - below, class: `leaf ${kind}` },
        draw("title", {}, title));
      if (pick) mark.addEventListener("click", pick);
      if (id !== undefined) marks.set(id, mark);
      lane.append(mark);
    }
    for (const [start, end, opacity] of row.strips || []) {
      lane.append(draw("rect", { x: x(start), y: top + height - strip - 1, width: Math.max(x(end) - x(start), 0.6), height: strip,
        class: "together", "fill-opacity": opacity }));
    }
    root.append(lane);
  });
  return { node: root, marks };
}

// A row: its name, perhaps with a mark; parts of [kind, share, title], which make up the bar; a value and a note.
function barRows(rows) {
  return make("div", { class: "bars" }, rows.map(({ name, mark, parts, value, note, chosen }) =>
    make("div", { class: `bar-row${chosen ? " chosen" : ""}` },
      make("span", { class: "bar-name" }, mark ? markOf(mark) : null, name),
      make("span", { class: "bar-track" }, parts.map(([kind, share, title]) =>
        make("span", { class: `bar ${kind}`, title, css: { width: `${Math.min(Math.max(share || 0, 0), 1) * 100}%` } }))),
      make("span", { class: "bar-value" }, value, note ? make("em", {}, note) : null))));
}
