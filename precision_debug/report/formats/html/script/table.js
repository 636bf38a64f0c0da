// The table: Tabulator draws, sorts, filters and groups; here is what its columns hold.
const SEARCHED = ["name", "op_type", "node", "target_name", "target_op_type", "reason"].map((key) => at[key]);
const narrow = () => innerWidth < 700;
const view = { hidden: new Set(), folded: true, query: "" };
let table = null;
let place = -1;
/** Columns that the table has: the others are made when they are asked for, so that a large page opens sooner. */
const made_ = new Set();
let order_ = [], layer_ = null;

/** What Tabulator sees of a row: its fields are read from the row itself, so that 50,000 of them are made at once. */
class Record {
  constructor(number) { this.id = number; this.layer = data.layers[number]; }
}
columns.forEach((_, number) => {
  // Tabulator writes back what it has read, when it makes a cell
  Object.defineProperty(Record.prototype, `c${number}`, { get() { return rows[this.id][number]; }, set() {} });
});
const records = rows.map((_, number) => new Record(number));
const fieldOf = (key) => `c${at[key]}`;
const textOf = (value) => (Array.isArray(value) ? value[state.language] : value);
const collator = new Intl.Collator("en", { numeric: true });

function sorter(column) {
  const number = numeric(column) || column.kind === "flag";
  const value = (given) => (number ? amount(typeof given === "boolean" ? Number(given) : given) : textOf(given) || null);
  return (a, b, one, two, _column, direction) => {
    const first = value(a), second = value(b);
    const same = one.getData().id - two.getData().id;
    if (first === null || second === null) {
      const last = (first === null) - (second === null);
      return last ? (direction === "asc" ? last : -last) : direction === "asc" ? same : -same;
    }
    const order = number ? first - second || 0 : collator.compare(first, second);
    return order || (direction === "asc" ? same : -same);
  };
}

/** ">1e-3", "<=2", "1e-4..1e-2", "nan", "=0"; other text is looked for in what the cell shows. */
function condition(text, column) {
  const asked = text.trim().toLowerCase();
  const range = asked.match(/^(-?[\d.][\d.e+-]*?)\s*\.\.\s*(-?[\d.][\d.e+-]*)$/);
  const bound = asked.match(/^(>=|<=|>|<|=)\s*(-?[\d.][\d.e+-]*)$/);
  if (column.key === "status") return (value) => [value, ...names[value]].some((one) => one.includes(asked));
  const numbers = (check) => (value) => { const found = amount(value); return found !== null && check(found); };
  if (numeric(column) && range) return numbers((found) => found >= Number(range[1]) && found <= Number(range[2]));
  if (numeric(column) && bound) {
    const limit = Number(bound[2]);
    const checks = { ">": (v) => v > limit, "<": (v) => v < limit, ">=": (v) => v >= limit, "<=": (v) => v <= limit, "=": (v) => v === limit };
    return numbers(checks[bound[1]]);
  }
  return (value) => (Array.isArray(value) ? value : [figure(column, value)]).some((one) => String(one).toLowerCase().includes(asked));
}
const conditions = new Map();
function passes(text, value, _record, { number }) {
  const key = `${number} ${text}`;
  if (!conditions.has(key)) conditions.set(key, condition(text, columns[number] ?? { kind: "text" }));
  return conditions.get(key)(value);
}

function heading(column) {
  const made = both(column.title, "span", "heading");
  made.tabIndex = 0;
  label(made, "title", column.help.map((help, language) => `${column.title[language]}\n${help}`));
  made.onkeydown = (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    made.closest(".tabulator-col").dispatchEvent(new MouseEvent("click", { bubbles: true }));
    made.focus();
  };
  return made;
}

/** A name whose end is seen where it is too long: that tells one layer's tensors apart. */
function tail(text) {
  const made = element("span", "tail");
  made.append(element("bdi", "", text));
  made.title = text;
  return made;
}

function shown(column, value, cell) {
  if (column.key === "status") return chip(value);
  if (column.key === "name") return tail(value);
  if (column.kind === "flag" && value !== null) {
    const made = both(words[value ? "yes" : "no"]);
    if (column.style === "alarm") made.className = value ? "alarm" : "quiet";
    return made;
  }
  if (Array.isArray(value)) { const made = both(value); made.title = value.join("\n"); return made; }
  const text = figure(column, value);
  const made = element("span", "", text);
  if (text.length > 12) made.title = text;
  if (numeric(column) && typeof value === "string" && column.heat !== "ratio" && column.heat !== "db") made.className = "alarm";
  else if (column.style === "alarm" && value !== null) made.className = value ? "alarm" : "quiet";
  const bad = text === "" ? null : badness(column, value);
  if (bad !== null) {
    const around = cell.getElement();
    around.classList.add("bar", heat(bad));
    around.style.setProperty("--bar", `${Math.round(100 * barOf(column, value))}%`);
  }
  return made;
}

function definition(column, number) {
  const wide = Math.round(Math.min(column.key === "name" ? (narrow() ? 132 : 330) : 300, column.width * 7 + 18));
  return {
    field: `c${number}`, title: column.title[0], titleFormatter: () => heading(column), visible: column.first,
    formatter: (cell) => shown(column, cell.getValue(), cell), sorter: sorter(column), headerSortTristate: true,
    headerSortStartingDir: numeric(column) ? "desc" : "asc", hozAlign: numeric(column) ? "right" : "left",
    frozen: column.key === "name", width: column.key === "name" ? wide : Math.max(84, wide), minWidth: 60,
    headerFilter: "input", headerFilterFunc: passes, headerFilterFuncParams: { number },
    headerFilterPlaceholder: numeric(column) ? ">1e-3" : "…",
  };
}

function wanted(record) {
  if (view.folded && data.noise[record.id]) return false;
  if (view.hidden.has(record[fieldOf("status")])) return false;
  if (!view.query) return true;
  if (record.layer.toLowerCase().includes(view.query)) return true;
  const row = rows[record.id];
  return SEARCHED.some((column) => row[column] && String(row[column]).toLowerCase().includes(view.query));
}

function groupHead(value, count, members) {
  const made = element("span");
  made.setAttribute("role", "gridcell");
  queueMicrotask(() => made.closest(".tabulator-group")?.setAttribute("role", "row")); // a group of rows holds rows alone
  made.append(value ? element("b", "", value) : both(words.top, "b"), element("small", "", `  ${thousands(count)}`));
  let worst = 0, failed = 0;
  for (const member of members) {
    worst = Math.max(worst, amount(member[fieldOf("relative_l2")]) ?? 0);
    failed += member[fieldOf("status")] === data.fail;
  }
  if (worst) { const said = both(words.worst, "small"); said.prepend("  "); said.append(` ${worst === Infinity ? "inf" : short(worst)}`); made.append(said); }
  if (failed) { const said = element("span", "chip bad"); said.append(`${thousands(failed)} `, both(words.failed)); made.append(" ", said); }
  return made;
}

function buildTable(done) {
  const layer = {
    field: "layer", title: "Layer", titleFormatter: () => heading({ title: words.layer, help: ["From the names of nodes.", "取自节点名。"] }),
    formatter: (cell) => tail(cell.getValue()),
    visible: data.layers.some(Boolean) && !narrow(), width: 150, minWidth: 60, sorter: sorter({ kind: "text" }),
    headerFilter: "input", headerFilterFunc: passes, headerFilterFuncParams: { number: -1 }, headerFilterPlaceholder: "…",
  };
  const order = [...data.order];
  if (narrow()) order.splice(order.indexOf(at.status), 0, ...order.splice(order.indexOf(at.op_type), 1)); // numbers first
  order_ = order;
  layer_ = layer;
  for (const number of order) if (columns[number].first) made_.add(number);
  const first = records.find(wanted)?.id;
  const ordered = [...order.filter((number) => made_.has(number)).map((number) => definition(columns[number], number)), layer];
  table = new Tabulator(byId("grid"), {
    data: records, columns: ordered, index: "id", layout: "fitData", nestedFieldSeparator: false, rowHeight: 27,
    ...(rows.length > 18 ? { maxHeight: "min(72vh, 860px)" } : {}), columnHeaderVertAlign: "bottom", movableColumns: true,
    columnDefaults: { resizable: "header" }, headerFilterLiveFilterDelay: 200, initialFilter: wanted, placeholder: "–",
    groupHeader: (value, count, members) => groupHead(value, count, members),
    groupStartOpen: (_value, _count, members) => rows.length < 200 || members.some((member) => member[fieldOf("status")] === data.fail),
    rowFormatter: (row) => {
      const made = row.getElement(), record = row.getData();
      if (record.id === undefined) return;
      made.id = `row-${record.id}`;
      made.classList.add(`is-${tones[record[fieldOf("status")]]}`);
      made.classList.toggle("is-culprit", data.culprits.includes(record.id));
      made.classList.toggle("is-here", record.id === place);
      made.tabIndex = record.id === (place < 0 ? first : place) ? 0 : -1;
    },
  });
  table.on("rowClick", (_event, row) => openRow(row.getData().id));
  table.on("dataFiltered", (_filters, found) => told(found.length));
  const named = () => { // only what is drawn can be named, and one row has to take the focus
    if (!byId(`row-${place}`)) byId("grid").removeAttribute("aria-activedescendant");
    const drawn = byId("grid").querySelectorAll(".tabulator-row");
    if (drawn.length && ![...drawn].some((row) => row.tabIndex === 0)) drawn[0].tabIndex = 0;
  };
  for (const event of ["renderComplete", "scrollVertical"]) table.on(event, named);
  table.on("tableBuilt", () => {
    const grid = byId("grid"), holder = grid.querySelector(".tabulator-tableholder");
    // the grid has the focus, as its role asks: what scrolls inside it is neither a row nor a group of rows
    grid.tabIndex = 0;
    holder.removeAttribute("tabindex");
    holder.setAttribute("role", "presentation");
    label(grid, "aria-label", ["Rows: arrows move, Enter opens", "行：方向键移动，回车打开"]);
    nameFilters();
    grid.addEventListener("keydown", walked);
    done();
  });
}

function showColumn(number, on) {
  if (made_.has(number)) { table.getColumn(`c${number}`)[on ? "show" : "hide"](); return; }
  if (!on) return;
  const before = order_.slice(0, order_.indexOf(number)).filter((one) => made_.has(one)).at(-1);
  made_.add(number);
  table.addColumn({ ...definition(columns[number], number), visible: true }, false, `c${before}`);
  nameFilters();
}
/** Those that are chosen, and no others; many new ones are made in one go. */
function showColumns(chosen) {
  const missing = order_.filter((number) => chosen.has(number) && !made_.has(number));
  if (missing.length > 3) {
    const filters = table.getHeaderFilters(), sorted = table.getSorters().map(({ field, dir }) => ({ column: field, dir }));
    missing.forEach((number) => made_.add(number));
    const all = order_.filter((number) => made_.has(number)).map((number) => ({ ...definition(columns[number], number), visible: chosen.has(number) }));
    table.setColumns([...all, layer_]);
    for (const { field, value } of filters) table.setHeaderFilterValue(field, value);
    if (sorted.length) table.setSort(sorted);
    nameFilters();
    return;
  }
  table.blockRedraw();
  for (const number of order_) if (chosen.has(number) !== isShown(number)) showColumn(number, chosen.has(number));
  table.restoreRedraw();
}
const isShown = (number) => made_.has(number) && table.getColumn(`c${number}`).isVisible();

/** Tabulator makes these inputs anew whenever they are cleared. */
function nameFilters() {
  for (const input of byId("grid").querySelectorAll(".tabulator-header-filter input:not([aria-label])")) {
    const title = input.closest(".tabulator-col").querySelector(".heading");
    const named = (language) => title.querySelector(language ? ".zh" : ".en")?.textContent ?? title.textContent;
    label(input, "aria-label", [0, 1].map((language) => `${words.filter[language]}: ${named(language)}`));
  }
}

function told(count) {
  const total = thousands(rows.length);
  byId("shown").textContent = count === rows.length ? total : `${thousands(count)} ${inWords("of")} ${total} ${inWords("shown")}`;
}

/** The rows as they are shown, in their order. */
const displayed = () => table.getRows("active").map((row) => row.getData().id);

function walked(event) {
  if (event.target !== byId("grid") && !event.target.classList.contains("tabulator-row")) return; // a heading, a filter
  const steps = { ArrowDown: 1, ArrowUp: -1, PageDown: 15, PageUp: -15, Home: -Infinity, End: Infinity };
  if (event.key === "Enter" && place >= 0) { event.preventDefault(); openRow(place); return; }
  if (!(event.key in steps) || event.altKey || event.ctrlKey || event.metaKey) return;
  event.preventDefault();
  const shownRows = displayed();
  if (!shownRows.length) return;
  const now = shownRows.indexOf(place);
  const next = now < 0 ? 0 : Math.min(shownRows.length - 1, Math.max(0, now + steps[event.key]));
  stand(shownRows[next]);
}

/** Make a row the current one, and bring it into view. */
function stand(number) {
  byId(`row-${place}`)?.classList.remove("is-here");
  for (const other of byId("grid").querySelectorAll('.tabulator-row[tabindex="0"]')) other.tabIndex = -1;
  place = number;
  const row = table.getRow(number);
  if (!row) return Promise.resolve();
  const mark = () => {
    const made = byId(`row-${number}`);
    if (made) { made.classList.add("is-here"); made.tabIndex = 0; }
    byId("grid").setAttribute("aria-activedescendant", `row-${number}`);
  };
  return table.scrollToRow(row, "center", false).then(mark, mark);
}

/** Show a row in the table whatever is filtered, and open it. */
function go(number, scroll = true) {
  if (!wanted(records[number]) || !displayed().includes(number)) {
    if (data.noise[number]) unfold(true);
    if (!wanted(records[number]) || table.getHeaderFilters().length) resetTable(data.noise[number] !== 0);
  }
  const group = table.getRow(number)?.getGroup?.();
  if (group) group.show();
  if (scroll) byId("table").scrollIntoView({ block: "start" });
  return stand(number);
}

function refilter() { table.setFilter(wanted); }

function unfold(open) {
  view.folded = !open;
  byId("fold").querySelector("input").checked = !open;
  refilter();
}

function resetTable(keepOpen = false) {
  view.hidden.clear();
  Object.assign(view, { query: "", folded: !keepOpen });
  byId("search").value = "";
  byId("fold").querySelector("input").checked = view.folded;
  if (byId("group").checked) { byId("group").checked = false; table.setGroupBy(false); }
  table.clearHeaderFilter();
  nameFilters();
  table.clearSort();
  refilter();
  chips();
}

function chips() {
  byId("chips").replaceChildren(...statuses.filter((status) => status.count).map((status) => {
    const button = both(status.name, "button", `chip ${status.tone}`);
    button.append(` ${thousands(status.count)}`);
    button.dataset.status = status.value;
    const off = view.hidden.has(status.value);
    button.type = "button";
    label(button, "title", status.help);
    button.classList.toggle("off", off);
    button.setAttribute("aria-pressed", String(!off));
    button.onclick = () => {
      if (!view.hidden.delete(status.value)) view.hidden.add(status.value);
      if (data.folds.length && status.quiet && !view.hidden.has(status.value)) view.folded = false;
      byId("fold").querySelector("input").checked = view.folded;
      const focused = document.activeElement === button;
      chips();
      if (focused) [...byId("chips").children].find((one) => one.dataset.status === status.value)?.focus();
      refilter();
    };
    return button;
  }));
}

function tools() {
  label(byId("search"), "placeholder", words.search);
  label(byId("search"), "aria-label", words.search);
  byId("search").oninput = (event) => { view.query = event.target.value.trim().toLowerCase(); refilter(); };
  byId("reset").onclick = () => resetTable();
  byId("group").onchange = (event) => table.setGroupBy(event.target.checked ? "layer" : false);
  if (data.folds.length) {
    const parts = [0, 1].map((n) => `${words.folded[n]} ${data.folds.map(([count, text]) => `${thousands(count)} ${text[n]}`).join(n ? "、" : ", ")}`);
    const fold = byId("fold");
    fold.hidden = false;
    fold.querySelector("span").replaceChildren(both(parts));
    fold.querySelector("input").checked = view.folded;
    fold.querySelector("input").onchange = (event) => unfold(!event.target.checked);
  }
  chips();
  picker();
}

function picker() {
  const box = byId("picker").querySelector("div");
  const every = element("button");
  every.type = "button";
  every.append(both(words.all));
  const few = element("button");
  few.type = "button";
  few.append(both(words.key));
  const boxes = data.order.map((number) => {
    const line = element("label"), tick = element("input");
    tick.type = "checkbox";
    tick.checked = columns[number].first;
    tick.onchange = () => showColumn(number, tick.checked);
    line.append(tick, " ", both(columns[number].title));
    return [number, tick, line];
  });
  const set = (choose) => {
    for (const [number, tick] of boxes) tick.checked = choose(columns[number]);
    showColumns(new Set(boxes.filter(([, tick]) => tick.checked).map(([number]) => number)));
  };
  every.onclick = () => set(() => true);
  few.onclick = () => set((column) => column.first);
  box.append(every, " ", few, ...boxes.map(([, , line]) => line));
}
