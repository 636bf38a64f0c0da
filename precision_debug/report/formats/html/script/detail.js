// One row in full: what it means, its neighbours, pictures of its values and errors, and every number.
let opened = -1;
let before = null;

const rowLink = (number) => {
  const link = element("a", "", rows[number][at.name]);
  link.href = `#row=${number}`;
  link.dataset.row = number;
  return link;
};

function button(name, text, act) {
  const made = element("button", "", text);
  made.type = "button";
  made.title = inWords(name);
  made.setAttribute("aria-label", inWords(name));
  made.onclick = act;
  return made;
}

function openRow(number, scroll = false) {
  const drawer = byId("drawer");
  if (drawer.hidden) before = document.activeElement;
  opened = number;
  go(number, scroll);
  const row = rows[number];
  const head = element("div", "head");
  const beside = (step) => { const all = displayed(); const next = all[all.indexOf(opened) + step]; if (next !== undefined) openRow(next); };
  const permalink = element("a", "button", "#");
  permalink.href = `#row=${number}`;
  permalink.title = inWords("link");
  permalink.setAttribute("aria-label", inWords("link"));
  head.append(button("previous", "←", () => beside(-1)), button("next", "→", () => beside(1)), permalink, button("close", "✕", closeRow));
  const name = element("h2", "", row[at.name]);
  name.id = "drawn-name";
  const about = element("p", "");
  about.append(chip(row[at.status]), ` ${row[at.op_type]} `, element("small", "", row[at.node] || ""));
  const parts = [head, name, about];
  if (row[at.reason]) parts.push(both(row[at.reason], "p"));
  for (const text of data.advice[number] ?? []) parts.push(both(text, "p", "advice"));
  for (const [title, list] of [["reads", data.reads[number]], ["readers", readersOf[number]]]) {
    if (!list.length) continue;
    const line = both(words[title], "p", "links");
    for (const one of list.slice(0, 12)) { line.append(" · ", rowLink(one)); }
    if (list.length > 12) line.append(` … (+${list.length - 12})`);
    parts.push(line);
  }
  parts.push(...savedIn(number), ...portraits(number));
  const connected = data.reads[number].length || readersOf[number].length;
  const around = element("div", "wide");
  if (connected) parts.push(both(words.graph, "h3"), around);
  parts.push(both(words.numbers, "h3"), everyNumber(row));
  drawer.replaceChildren(...parts);
  drawer.hidden = false;
  if (connected) drawGraph(around, number);
  drawer.scrollTop = 0;
  drawer.focus({ preventScroll: true });
  if (location.hash !== `#row=${number}`) history.replaceState(null, "", `#row=${number}`);
}

function closeRow() {
  if (byId("drawer").hidden) return;
  byId("drawer").hidden = true;
  opened = -1;
  history.replaceState(null, "", location.pathname + location.search);
  before?.focus?.({ preventScroll: true });
}

function everyNumber(row) {
  const list = element("dl");
  for (const number of data.order) {
    const column = columns[number], value = row[number];
    if (value === null || value === "") continue;
    const term = both(column.title, "dt");
    const text = numeric(column) && typeof value === "number" && column.kind !== "share" ? String(value) : null;
    const named = column.key === "status" ? names[value] : column.kind === "flag" ? words[value ? "yes" : "no"] : null;
    const told_ = named ? both(named, "dd") : text === null && Array.isArray(value) ? both(value, "dd") : element("dd", "", text ?? figure(column, value));
    told_.append(both(column.help, "small"));
    list.append(term, told_);
  }
  return list;
}

function savedIn(number) {
  const place = data.saved[number];
  if (!place) return [];
  const line = both(words.saved, "p", "links");
  const link = element(data.tensors[1] ? "a" : "code", "", data.tensors[0]);
  if (data.tensors[1]) Object.assign(link, { href: data.tensors[1], download: "" });
  line.append(" ", link, " ", element("code", "", `${place}.baseline`), " ", element("code", "", `${place}.target`));
  return [line];
}

function portraits(number) {
  const parts = [];
  for (const one of data.portraits[number] ?? []) {
    if (one.introduced) parts.push(both(words.mine, "h3"));
    const pictures = element("div", "pictures");
    if (one.values) pictures.append(histogram(words.values, one.values.edges, [["blue", one.values.base], ["orange", one.values.target]], false));
    if (one.errors) pictures.append(histogram(words.errors, one.errors.edges, [["red", one.errors.counts]], true));
    if (one.against) pictures.append(density(words.against, one.against));
    if (one.map) pictures.append(heatmap(words.map, one.map.rows, one.map.shape));
    if (one.channels) pictures.append(heatmap(words.channels, [one.channels.values], [1, one.channels.size]));
    parts.push(pictures);
    if (one.worst.length) parts.push(worstElements(one.worst));
  }
  return parts;
}

/** Steps over bins; edges: one more than counts, in log10 where ``log``. */
function histogram(title, edges, lines, log) {
  const box = element("figure");
  const [width, height] = [300, 120];
  const most = Math.max(1, ...lines.flatMap(([, counts]) => counts));
  const x = (edge) => 8 + ((edge - edges[0]) / (edges.at(-1) - edges[0] || 1)) * (width - 16);
  const y = (count) => height - 18 - (Math.log1p(count) / Math.log1p(most)) * (height - 26);
  const parts = lines.map(([name, counts]) => {
    const steps = counts.map((count, n) => `L${x(edges[n]).toFixed(1)} ${y(count).toFixed(1)}L${x(edges[n + 1]).toFixed(1)} ${y(count).toFixed(1)}`).join("");
    const path = svg("path", { d: `M${x(edges[0])} ${height - 18}${steps}L${x(edges.at(-1))} ${height - 18}z` });
    path.style.fill = path.style.stroke = `var(--${name})`;
    path.style.fillOpacity = 0.18;
    return path;
  });
  const ends = [edges[0], edges.at(-1)].map((edge, n) => {
    const text = svg("text", { x: n ? width - 8 : 8, y: height - 4, "text-anchor": n ? "end" : "start" });
    text.textContent = log ? `1e${edge.toFixed(1)}` : significant(edge, 3);
    return text;
  });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, ...parts, ...ends);
  picture.setAttribute("aria-label", title[state.language]);
  box.append(both(title, "figcaption"), picture);
  return box;
}

/** How many elements have which error (upwards) at which magnitude (to the right), both in log10. */
function density(title, { x: columns, y: lines, counts }) {
  const box = element("figure");
  const [width, height, left, foot] = [300, 150, 34, 18];
  const most = Math.max(1, ...counts.flat());
  const across = (width - left - 8) / (columns.length - 1), up = (height - foot - 8) / (lines.length - 1);
  const parts = [];
  counts.forEach((line, row) => line.forEach((count, column) => {
    if (!count) return;
    const cell = svg("rect", { x: (left + column * across).toFixed(1), y: (height - foot - (row + 1) * up).toFixed(1), width: (across + 0.3).toFixed(1), height: (up + 0.3).toFixed(1) });
    cell.style.fill = "var(--red)";
    cell.style.fillOpacity = 0.12 + 0.88 * (Math.log1p(count) / Math.log1p(most));
    parts.push(cell);
  }));
  const label = (value, x, y, anchor) => { const text = svg("text", { x, y, "text-anchor": anchor }); text.textContent = `1e${value.toFixed(1)}`; parts.push(text); };
  label(columns[0], left, height - 4, "start");
  label(columns.at(-1), width - 8, height - 4, "end");
  label(lines[0], left - 3, height - foot, "end");
  label(lines.at(-1), left - 3, 16, "end");
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img" }, ...parts);
  picture.setAttribute("aria-label", title[state.language]);
  box.append(both(title, "figcaption"), picture);
  return box;
}

function heatmap(title, lines, shape) {
  const box = element("figure");
  const canvas = element("canvas");
  canvas.width = lines[0].length;
  canvas.height = lines.length;
  canvas.className = lines.length === 1 ? "strip" : "map";
  const known = lines.flat().filter((value) => value > 0);
  const low = Math.log10(known.reduce((a, b) => Math.min(a, b), Infinity)), high = Math.log10(known.reduce((a, b) => Math.max(a, b), 0));
  const paint = canvas.getContext("2d");
  lines.forEach((line, row) => line.forEach((value, column) => {
    const share = value === null ? 1 : value > 0 ? 0.12 + 0.88 * ((Math.log10(value) - low) / (high - low || 1)) : 0;
    paint.fillStyle = value === null ? colour("violet") : colour("red");
    paint.globalAlpha = share;
    paint.fillRect(column, row, 1, 1);
  }));
  canvas.setAttribute("role", "img");
  canvas.setAttribute("aria-label", `${title[state.language]}: ${short(known.length ? 10 ** low : 0)} … ${short(known.length ? 10 ** high : 0)}`);
  canvas.onmousemove = (event) => {
    const column = Math.min(canvas.width - 1, Math.floor((event.offsetX / canvas.clientWidth) * canvas.width));
    const row = Math.min(canvas.height - 1, Math.floor((event.offsetY / canvas.clientHeight) * canvas.height));
    const span = (n, cells, whole) => { const from = Math.floor((n * whole) / cells), to = Math.max(from, Math.floor(((n + 1) * whole) / cells) - 1); return from === to ? `${from}` : `${from}…${to}`; };
    canvas.title = `[${span(row, canvas.height, shape[0])}, ${span(column, canvas.width, shape[1])}]: ${lines[row][column] === null ? "nan / inf" : short(lines[row][column])}`;
  };
  const caption = both(title, "figcaption");
  caption.append(` ${shape[0] === 1 ? shape[1] : shape.join(" × ")}`, known.length ? `, ${short(10 ** low)} … ${short(10 ** high)}` : "");
  if (lines.flat().includes(null)) caption.append(" · ", both(words.lost, "span", "lost"));
  box.append(caption, canvas);
  return box;
}

function worstElements(worst) {
  const made = element("table", "list"), head = element("tr"), body = element("tbody");
  for (const name of ["index", "baseline", "target", "error"]) head.append(both(words[name], "th", name === "index" ? "" : "right"));
  const top = element("thead");
  top.append(head);
  for (const [index, base, target, error] of worst) {
    const line = element("tr");
    line.append(element("td", "", `[${index.join(", ")}]`), ...[base, target].map((value) => element("td", "right", typeof value === "number" ? significant(value, 6) : value)), element("td", "right", short(error)));
    body.append(line);
  }
  made.append(both(words.elements, "caption"), top, body);
  return made;
}
