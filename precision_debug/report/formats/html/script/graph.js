// A piece of the graph around one row, coloured by its error: dagre lays it out.
const readersOf = rows.map(() => []);
data.reads.forEach((sources, number) => { for (const source of sources) readersOf[source].push(number); });
const MOST = 22;

/** Rows around one, nearest first: two steps up and two down. */
function neighbours(centre) {
  const found = new Map([[centre, 0]]);
  for (const [next, steps] of [[data.reads, 3], [readersOf, 2]]) {
    let edge = [centre];
    for (let step = 1; step <= steps; step += 1) {
      const further = [];
      for (const one of edge) for (const other of next[one]) if (!found.has(other)) { found.set(other, step); further.push(other); }
      edge = further;
    }
  }
  return [...found].sort((a, b) => a[1] - b[1]).slice(0, MOST).map(([number]) => number);
}

const svg = (tag, attributes, ...inside) => {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...inside);
  return made;
};

/** Fill a box with the graph around a row: as wide as the box where it can still be read, else scrolled to the row. */
function drawGraph(box, centre) {
  const picture = graphOf(centre);
  box.replaceChildren(picture);
  const width = Number(picture.getAttribute("width"));
  if (width > box.clientWidth && box.clientWidth / width >= 0.7) picture.style.maxWidth = "100%";
  else if (width > box.clientWidth) box.scrollLeft = Number(picture.dataset.centre) - box.clientWidth / 2;
}

function graphOf(centre) {
  const kept = neighbours(centre);
  const graph = new dagre.graphlib.Graph();
  graph.setGraph({ rankdir: narrow() ? "TB" : "LR", nodesep: 14, ranksep: 34, marginx: 6, marginy: 6 });
  graph.setDefaultEdgeLabel(() => ({}));
  for (const number of kept) graph.setNode(String(number), { width: 168, height: 46 });
  for (const number of kept) for (const source of data.reads[number]) if (kept.includes(source)) graph.setEdge(String(source), String(number));
  dagre.layout(graph);
  const size = graph.graph();
  const parts = [svg("defs", {}, svg("marker", { id: "tip", viewBox: "0 0 8 8", refX: 8, refY: 4, markerWidth: 7, markerHeight: 7, orient: "auto" }, svg("path", { d: "M0 0L8 4L0 8z", class: "tip" })))];
  for (const edge of graph.edges()) {
    const line = graph.edge(edge).points.map((point, place_) => `${place_ ? "L" : "M"}${point.x.toFixed(1)} ${point.y.toFixed(1)}`).join("");
    parts.push(svg("path", { d: line, class: "edge", "marker-end": "url(#tip)" }));
  }
  const error = columns[at.relative_l2];
  for (const number of kept) {
    const { x, y } = graph.node(String(number)), row = rows[number];
    const value = row[at.relative_l2];
    const bad = value === null ? null : badness(error, value);
    const cut = (text, most) => (text.length > most ? `…${text.slice(1 - most)}` : text);
    const title = svg("title", {});
    title.textContent = `${row[at.op_type]} ${row[at.name]}`;
    const box = svg("rect", { x: x - 84, y: y - 23, width: 168, height: 46, rx: 6, class: `${heat(bad)} ${bad === null ? "unseen" : ""}` });
    const top = svg("text", { x, y: y - 6, class: "op" }), bottom = svg("text", { x, y: y + 12, class: "of" });
    top.textContent = `${cut(row[at.op_type], 14)}  ${value === null ? "" : short(value)}`;
    bottom.textContent = cut(row[at.name], 25);
    const link = svg("a", { href: `#row=${number}`, "data-row": number, class: data.culprits.includes(number) ? "who" : number === centre ? "centre" : "" }, title, box, top, bottom);
    parts.push(link);
  }
  const picture = svg("svg", { viewBox: `0 0 ${size.width} ${size.height}`, width: size.width, height: size.height, class: "graph", role: "group" }, ...parts);
  picture.dataset.centre = graph.node(String(centre)).x;
  return picture;
}
