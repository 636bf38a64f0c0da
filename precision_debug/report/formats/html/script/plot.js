// The error along execution order: uPlot draws; zoom, hover, and the way to a row.
const SERIES = data.curves.map((one) => ({ ...one, values: one.key ? rows.map((row) => row[at[one.key]]) : null }));
const curve = { plot: null, rows: [], near: -1 };
const colour = (name) => getComputedStyle(root).getPropertyValue(`--${name}`).trim();
const usable = (value) => typeof value === "number" && value > 0;

function points() {
  const kept = [];
  rows.forEach((row, number) => { if (SERIES.some((one) => typeof one.values[number] === "number" || one.values[number])) kept.push(number); });
  return kept;
}

function buildPlot() {
  curve.rows = points();
  if (!curve.rows.length) { byId("plot").replaceChildren(both(["There is no error to draw: no tensor was compared, or all of them are NaN or Inf on both sides.", "没有可画的误差：没有张量被比较，或两侧全为 NaN、Inf。"], "p")); byId("series").hidden = true; return; }
  if (!data.broken.length && !SERIES.some((one) => one.values.some(usable))) {
    byId("plot").replaceChildren(both(["No error anywhere: what was compared is the same bit for bit.", "没有误差：所比较的张量逐位相同。"], "p"));
    byId("series").hidden = true;
    return;
  }
  const all = SERIES.filter((one) => one.first).flatMap((one) => curve.rows.map((n) => one.values[n]).filter(usable));
  const least = all.reduce((a, b) => Math.min(a, b), Infinity), most = all.reduce((a, b) => Math.max(a, b), 0);
  const low = 10 ** Math.max(-12, Math.floor(Math.log10(Number.isFinite(least) ? least : 1e-6)));
  const high = Math.max(100 * low, 10 ** Math.min(300, Math.ceil(Math.log10(most || 1))));
  const drawn = (value) => (usable(value) ? Math.min(high, Math.max(low, value)) : value === 0 ? low : null);
  const status = rows.map((row) => row[at.status]);
  const wild = new Set(data.broken);
  // NaN, Inf and other shapes stand between the last gridline of a number and the axis' end: no number is as bad.
  const top = wild.size ? 10 * high : high;
  const broken = curve.rows.map((n) => (wild.has(n) ? high * Math.sqrt(10) : null));
  const failed = curve.rows.map((n) => (status[n] === data.fail && !wild.has(n) ? drawn(SERIES[0].values[n]) : null));
  // A line ends where NaN or Inf are born (null), and passes over what has no error, mostly shapes and indices, and what was
  // not compared (undefined): falling to the edge there, it would hide its own course.
  const line = (one) => curve.rows.map((n) => (wild.has(n) ? null : usable(one.values[n]) ? drawn(one.values[n]) : undefined));
  const exact = curve.rows.map((n) => (SERIES[0].values[n] === 0 && !wild.has(n) ? low : null));
  const many = curve.rows.length > 400;
  const dots = (name, size) => ({ paths: () => null, points: { show: true, size, fill: colour(name), stroke: colour(name) } });
  const styles = {
    line: (one) => ({ width: many ? 1 : 1.6, stroke: colour(one.colour), points: { show: curve.rows.length < 60, size: 4, fill: colour(one.colour) }, spanGaps: false }),
    dots: (one) => ({ stroke: colour(one.colour), ...dots(one.colour, many ? 3 : 6) }),
  };
  const options = {
    width: byId("plot").clientWidth || 600, height: plotHeight(), legend: { show: false },
    padding: [8 + MARK * marked.length, null, null, null],
    cursor: { drag: { x: true, y: false, uni: 20 }, focus: { prox: 30 }, points: { size: 8 } },
    scales: { x: { time: false, range: (_u, a, b) => (a === b ? [a - 1, b + 1] : [a, b]) }, y: { distr: 3, log: 10, range: [low, top] } },
    axes: [
      { stroke: colour("soft"), grid: { show: false }, ticks: { stroke: colour("line") }, values: (_u, at_) => at_.map((v) => (Number.isInteger(v) ? thousands(v) : "")) },
      { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, size: 56, values: (_u, at_) => at_.map((v) => (v === null ? "" : `1e${Math.round(Math.log10(v))}`)), splits: () => powers(low, high) },
    ],
    series: [
      {},
      ...SERIES.map((one) => ({ label: one.key, show: one.shown ?? one.first, ...styles[one.style](one) })),
      { label: "fail", stroke: colour("red"), ...dots("red", many ? 3 : 6) },
      { label: "broken", stroke: colour("red"), ...dots("red", 9) },
      { label: "exact", show: SERIES[0].shown ?? SERIES[0].first, stroke: colour(SERIES[0].colour), ...dots(SERIES[0].colour, many ? 2 : 4) },
    ],
    hooks: { draw: [marks], setCursor: [hovered] },
  };
  const values = [curve.rows.map((n) => rows[n][at.index]), ...SERIES.map((one) => (one.style === "line" ? line(one) : curve.rows.map((n) => drawn(one.values[n])))), failed, broken, exact];
  curve.plot?.destroy();
  byId("plot").replaceChildren();
  curve.plot = new uPlot(options, values, byId("plot"));
  const over = curve.plot.over;
  let pressed = null;
  over.addEventListener("mousedown", (event) => { pressed = event.clientX; });
  over.addEventListener("click", (event) => { if (pressed !== null && Math.abs(event.clientX - pressed) < 4 && curve.near >= 0) openRow(curve.rows[curve.near], true); });
  over.addEventListener("mouseleave", () => { byId("hover").hidden = true; });
  const box = byId("plot");
  box.tabIndex = 0;
  box.setAttribute("role", "img");
  label(box, "aria-label", words.chart);
  box.onkeydown = stepped;
}

/** Whole powers of ten, at most nine. */
function powers(low, high) {
  const first = Math.round(Math.log10(low)), last = Math.round(Math.log10(high));
  const step = Math.ceil((last - first) / 8);
  return Array.from({ length: Math.floor((last - first) / step) + 1 }, (_, n) => 10 ** (first + n * step));
}

const marked = (data.culprits.length ? data.culprits : data.first === null ? [] : [data.first]).slice(0, 5);
const MARK = 17; // pixels of a name, which stands above the curve, where nothing is hidden by it
const plotHeight = () => (narrow() ? 220 : 300) + MARK * marked.length;

function marks(plot) {
  const { ctx } = plot, scale = devicePixelRatio;
  ctx.save();
  ctx.font = `${12 * scale}px sans-serif`;
  marked.forEach((number, order) => {
    const x = plot.valToPos(rows[number][at.index], "x", true);
    const { left, top, width, height } = plot.bbox;
    if (x < left || x > left + width) return;
    ctx.strokeStyle = ctx.fillStyle = colour("red");
    ctx.setLineDash([4 * scale, 4 * scale]);
    const at_ = top - (marked.length - 1 - order) * MARK * scale;
    ctx.beginPath(); ctx.moveTo(x, at_ - 12 * scale); ctx.lineTo(x, top + height); ctx.stroke();
    const name = rows[number][at.name];
    const most = narrow() ? 22 : 40, text = name.length > most ? `…${name.slice(1 - most)}` : name;
    const before = x > left + width / 2;
    ctx.textAlign = before ? "right" : "left";
    ctx.fillText(text, x + (before ? -6 : 6) * scale, at_ - 6 * scale);
  });
  ctx.restore();
}

function hovered(plot) {
  const box = byId("hover"), spot = plot.cursor.idx;
  if (spot === null || spot === undefined || plot.cursor.left < 0) { box.hidden = true; return; }
  curve.near = spot;
  const row = rows[curve.rows[spot]];
  box.replaceChildren(
    element("b", "", `#${row[at.index]} ${row[at.op_type]}`), element("div", "", row[at.name]),
    ...SERIES.filter((one) => one.values[curve.rows[spot]] !== null && one.values[curve.rows[spot]] !== "").map((one) => {
      const line = both(one.label, "div");
      line.append(` ${short(one.values[curve.rows[spot]])}`);
      return line;
    }),
  );
  const around = plot.over.getBoundingClientRect();
  box.hidden = false;
  const left = Math.min(innerWidth - box.offsetWidth - 8, around.left + plot.cursor.left + 14);
  box.style.left = `${Math.max(4, left)}px`;
  box.style.top = `${Math.max(4, around.top + Math.min(plot.cursor.top, around.height - 60) - 10)}px`;
}

function stepped(event) {
  const steps = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" && curve.near >= 0) { event.preventDefault(); openRow(curve.rows[curve.near], true); return; }
  if (!(event.key in steps)) return;
  event.preventDefault();
  curve.near = Math.min(curve.rows.length - 1, Math.max(0, (curve.near < 0 ? -1 : curve.near) + steps[event.key]));
  const number = curve.rows[curve.near];
  const top = curve.plot.valToPos(usable(SERIES[0].values[number]) ? SERIES[0].values[number] : 1, "y");
  curve.plot.setCursor({ left: curve.plot.valToPos(rows[number][at.index], "x"), top });
  byId("plot").setAttribute("aria-label", `${rows[number][at.op_type]} ${rows[number][at.name]} ${short(SERIES[0].values[number])}`);
}

function legend() {
  byId("series").replaceChildren(...SERIES.map((one, number) => {
    const line = element("label", "key"), tick = element("input");
    tick.type = "checkbox";
    tick.checked = one.shown ?? one.first;
    tick.onchange = () => {
      one.shown = tick.checked;
      curve.plot?.setSeries(number + 1, { show: tick.checked });
      if (!number) curve.plot?.setSeries(SERIES.length + 3, { show: tick.checked });
    };
    const swatch = element("i", `swatch ${one.style}`);
    swatch.style.setProperty("--swatch", `var(--${one.colour})`);
    line.append(tick, swatch, both(one.label));
    return line;
  }), ...[["fail", ["out of tolerance", "超出容差"]], ["broken", ["NaN, Inf or another shape (on top)", "NaN、Inf 或形状不一致（最上方）"]]].map(([kind, text]) => {
    const line = element("span", "key"), swatch = element("i", `swatch dots ${kind}`);
    swatch.style.setProperty("--swatch", "var(--red)");
    line.append(swatch, both(text));
    return line;
  }));
}
