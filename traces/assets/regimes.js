"use strict";
// The values under the pointer. Places of the axes are log2 of both lengths.
const data = JSON.parse(document.getElementById("data").textContent);
const tip = document.getElementById("tip"), names = ["compute", "memory", "dispatch"];
const low = Math.log2(data.low), mostKv = data.kv.at(-1), mostTokens = data.tokens.at(-1);
const nearest = (axis, value) => axis.reduce((best, at, i) => (Math.abs(at - value) < Math.abs(axis[best] - value) ? i : best), 0);
const whole = (n) => n.toLocaleString("en", { maximumFractionDigits: 0 });

document.querySelectorAll("svg.chart").forEach((svg, n) => {
  const [left, top, right, bottom] = data.plots[n];
  svg.addEventListener("pointermove", (event) => {
    const at = new DOMPoint(event.clientX, event.clientY).matrixTransform(svg.getScreenCTM().inverse());
    const row = nearest(data.tokens, Math.max(0, low + ((bottom - at.y) / (bottom - top)) * (mostTokens - low)));
    const column = nearest(data.kv, ((at.x - left) / (right - left)) * mostKv), cell = data.cells[row][column];
    tip.hidden = !cell || at.x < left || at.x > right || at.y < top || at.y > bottom;
    if (tip.hidden) return;
    const [rate, ...shares] = cell, first = shares.indexOf(Math.max(...shares));
    tip.textContent = `${whole(2 ** data.tokens[row])} tokens behind ${whole(2 ** data.kv[column])}: ${whole(rate)} tok/s, ` +
      `${names[first]}\n${names.map((name, k) => `${name} ${shares[k]} %`).join("   ")}`;
    tip.style.left = `${Math.max(8, Math.min(event.clientX + 16, innerWidth - tip.offsetWidth - 8))}px`;
    tip.style.top = `${Math.min(event.clientY + 16, innerHeight - tip.offsetHeight - 8)}px`;
  });
  svg.addEventListener("pointerleave", () => { tip.hidden = true; });
});
