// A language model's tokens: a strip coloured by how far log-probabilities differ; a click shows that token's layers.
const SCALE = 0.5; // a difference in nats that is dark: one chance in e, half of it
function cellOf(number) {
  const [row, place, id, base, target, kl, rank, targetRank, chosen, targetChosen, margin, error] = data.tokens.tokens[number];
  const difference = base === null || target === null ? null : typeof base === "string" || typeof target === "string" ? NaN : target - base;
  return { row, place, id, base, target, difference, kl, rank, targetRank, chosen, targetChosen, margin, error, flips: chosen !== targetChosen };
}

function tokenStrip() {
  const held = byId("token-strip");
  if (!data.tokens || !held) return;
  byId("token-strip-card").hidden = false;
  const most = data.tokens.tokens.reduce((far, _, number) => Math.max(far, Math.abs(cellOf(number).difference) || 0), 0) || 1;
  let line = null, row = null;
  data.tokens.tokens.forEach((_, number) => {
    const one = cellOf(number);
    if (one.row !== row) {
      row = one.row;
      line = element("div", "token-line");
      line.append(element("small", "", `${row}`));
      held.append(line);
    }
    const cell = element("button", "token", one.id === null ? "→" : String(one.id));
    cell.type = "button";
    cell.dataset.token = number;
    const lost = Number.isNaN(one.difference);
    const share = one.difference === null ? 0 : lost ? 1 : Math.min(1, Math.abs(one.difference) / Math.max(most, SCALE / 50));
    cell.style.background = `color-mix(in srgb, var(--${lost ? "violet" : one.difference < 0 ? "red" : "blue"}) ${Math.round(55 * share)}%, var(--card))`;
    if (one.flips) cell.classList.add("flips");
    if (number === data.tokens.first) cell.classList.add("first");
    cell.title = one.difference === null ? `KL ${short(one.kl)}` : `Δ log p ${short(one.difference)}, KL ${short(one.kl)}`;
    cell.onclick = () => tokenLayers(number);
    line.append(cell);
  });
  const begin = data.tokens.first ?? data.tokens.worst;
  if (begin !== null) tokenLayers(begin);
}

function tokenLayers(number) {
  const one = cellOf(number), panel = byId("token-layers");
  for (const cell of byId("token-strip").querySelectorAll(".token")) cell.setAttribute("aria-pressed", String(Number(cell.dataset.token) === number));
  const list = element("dl");
  const say = (name, value) => { list.append(both(words[name], "dt"), element("dd", "", value)); };
  say("place", `${one.row}:${one.place}${one.id === null ? "" : ` (${one.id})`}`);
  if (one.id !== null) {
    say("chance", `${short(one.base)} → ${short(one.target)} (Δ ${short(one.difference)})`);
    say("rank", `${one.rank} → ${one.targetRank}`);
  }
  say("greedy", `${one.chosen} → ${one.targetChosen} (${words.lead[state.language]} ${short(one.margin)})`);
  say("logits", `KL ${short(one.kl)}, Rel L2 ${short(one.error)}`);
  const parts = [list], profile = data.tokens.profiles[number];
  if (profile) parts.push(layerCurve(profile), growing(profile));
  const effects = data.tokens.effects;
  if (effects && effects.token === number) parts.push(both(words.moves, "h3"), moves(effects));
  panel.replaceChildren(...parts);
}

/** The error of every tensor at this token, in execution order, on a logarithmic axis. */
function layerCurve(profile) {
  const [width, height, left, foot] = [900, 190, 46, 16];
  const logs = profile.map((value) => (typeof value === "number" && value > 0 ? Math.log10(value) : null));
  const known = logs.filter((value) => value !== null);
  const [low, high] = [Math.floor(Math.min(-7, ...known)), Math.ceil(Math.max(-6, ...known))];
  const x = (n) => left + (n / Math.max(1, profile.length - 1)) * (width - left - 8);
  const y = (value) => 8 + ((high - value) / (high - low)) * (height - foot - 8);
  const parts = [];
  for (let decade = low; decade <= high; decade += 1) {
    parts.push(svg("path", { d: `M${left} ${y(decade)}H${width - 8}`, class: "edge" }));
    const text = svg("text", { x: left - 4, y: y(decade) + 4, "text-anchor": "end" });
    text.textContent = `1e${decade}`;
    parts.push(text);
  }
  logs.forEach((value, n) => {
    const broken = typeof profile[n] === "string";
    if (value === null && !broken) return;
    const title = svg("title", {});
    title.textContent = `${data.tokens.tensors[n]}: ${short(profile[n])}`;
    const dot = svg("circle", { cx: x(n).toFixed(1), cy: (broken ? 8 : y(value)).toFixed(1), r: 3 }, title);
    dot.style.fill = broken ? "var(--violet)" : "var(--blue)";
    const place = data.tokens.rows[n];
    parts.push(place === null ? dot : svg("a", { href: `#row=${place}`, "data-row": place }, dot));
  });
  const picture = svg("svg", { viewBox: `0 0 ${width} ${height}`, role: "group", class: "layers" }, ...parts);
  label(picture, "aria-label", words.layers);
  return picture;
}

/** Where the error of this token grows most from one tensor to the next that has one. */
function growing(profile) {
  const known = profile.map((value, n) => [value, n]).filter(([value]) => typeof value === "number" && value > 0);
  const steps = known.slice(1).map(([value, n], at_) => [value / known[at_][0], value, n]).sort((a, b) => b[0] - a[0]).slice(0, 5);
  const line = both(words.grows, "p", "links");
  for (const [times, value, n] of steps) {
    const place = data.tokens.rows[n];
    line.append(" · ", place === null ? element("code", "", data.tokens.tensors[n]) : rowLink(place), ` ${short(value)} (×${significant(times, 3)})`);
  }
  return line;
}

function moves(effects) {
  const made = element("table", "list"), head = element("tr"), top = element("thead");
  for (const name of ["errors_of", "move", "left"]) head.append(both(words[name], "th"));
  top.append(head);
  made.append(top);
  for (const [name, moved, left] of effects.lines) {
    const line = element("tr");
    line.append(element("td", "", name), element("td", "right", short(moved)), element("td", "right", short(left)));
    made.append(line);
  }
  return made;
}
