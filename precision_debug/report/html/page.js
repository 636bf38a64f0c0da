"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const byId = (id) => document.getElementById(id);
  const root = document.documentElement;
  const { columns, rows, statuses } = data;
  const at = Object.fromEntries(columns.map((column, number) => [column.key, number]));
  const tones = Object.fromEntries(statuses.map((status) => [status.value, status.tone]));
  const words = {
    search: ["Find a tensor, operator or node", "查找张量、算子或节点"],
    more: ["All columns", "全部列"], fewer: ["Key columns", "主要列"], reset: ["Reset", "重置"],
    shown: ["shown", "行显示"], of: ["of", "/"], sort: ["click to sort", "点击排序"], close: ["close", "关闭"],
  };
  const ROW = 26;
  const PINNED = 2;
  const SEARCHED = ["name", "op_type", "node", "target_name", "target_op_type", "reason"].map((key) => at[key]);
  const state = { language: 0, all: false, query: "", hidden: new Set(), sort: null, down: false, view: [], flash: null };

  const remember = (key, value) => { try { localStorage.setItem(`precision_debug.${key}`, value); } catch { /* file:// */ } };
  const recall = (key) => { try { return localStorage.getItem(`precision_debug.${key}`); } catch { return null; } };
  const say = (name) => words[name][state.language];
  const element = (tag, className, text) => {
    const made = document.createElement(tag);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  };

  const numeric = (column) => column.kind === "int" || column.kind === "float" || column.kind === "share";
  const significant = (value, digits) => Number(value.toPrecision(digits)).toString();
  const spoken = (value) => (Array.isArray(value) ? value[state.language] : value);
  function show(column, given) {
    const value = spoken(given);
    if (value === null || value === "") return "";
    if (column.kind === "flag") return value ? "yes" : "no";
    if (!numeric(column) || typeof value === "string") return String(value);
    if (column.kind === "int") return value.toLocaleString("en-US");
    if (column.kind === "share") return value > 0 && value < 1e-4 ? "<0.01%" : `${(100 * value).toFixed(2)}%`;
    if (value === 0) return "0";
    if (column.style === "error") return value.toExponential(2);
    if (column.style === "db") return value.toFixed(1);
    if (column.style === "ratio") return value >= 1000 ? value.toExponential(1) : value.toFixed(2);
    const size = Math.abs(value);
    return size < 1e-3 || size >= 1e6 ? value.toExponential(3) : significant(value, 6);
  }

  const WORDS = { nan: Infinity, inf: Number.MAX_VALUE, "-inf": -Number.MAX_VALUE };
  function order(column, given) {
    const value = spoken(given);
    if (value === null || value === "") return null;
    if (numeric(column)) return typeof value === "string" ? (WORDS[value] ?? null) : value;
    return column.kind === "flag" ? Number(value) : value;
  }
  const collator = new Intl.Collator("en", { numeric: true });

  function refresh() {
    const query = state.query.trim().toLowerCase();
    let view = [];
    for (let number = 0; number < rows.length; number += 1) {
      const row = rows[number];
      if (state.hidden.has(row[at.status])) continue;
      if (query && !SEARCHED.some((column) => row[column] && String(row[column]).toLowerCase().includes(query))) continue;
      view.push(number);
    }
    if (state.sort !== null) {
      const column = columns[state.sort];
      const keys = new Map(view.map((number) => [number, order(column, rows[number][state.sort])]));
      const text = !numeric(column) && column.kind !== "flag";
      const sign = state.down ? -1 : 1;
      view.sort((one, other) => {
        const a = keys.get(one), b = keys.get(other);
        if (a === null || b === null) return (a === null) - (b === null) || one - other;
        const compared = text ? collator.compare(a, b) : a < b ? -1 : a > b ? 1 : 0;
        return sign * compared || one - other;
      });
    }
    state.view = view;
    const total = rows.length.toLocaleString("en-US"), shown = view.length.toLocaleString("en-US");
    byId("shown").textContent = view.length === rows.length ? total : `${shown} ${say("of")} ${total} ${say("shown")}`;
    draw(true);
  }

  const visible = () => columns.map((_, number) => number).filter((number) => state.all || columns[number].first);
  const pixels = (column) => Math.round(Math.min(420, column.width * 7 + 14)) + (column.key === "status" ? 14 : 0);

  function head() {
    const shown = visible();
    const group = byId("grid").querySelector("colgroup");
    group.replaceChildren(...shown.map((number) => {
      const col = element("col");
      col.style.width = `${pixels(columns[number])}px`;
      return col;
    }));
    byId("grid").style.width = `${shown.reduce((sum, number) => sum + pixels(columns[number]), 0)}px`;
    const line = element("tr");
    let left = 0;
    shown.forEach((number, place) => {
      const column = columns[number];
      const cell = element("th", numeric(column) ? "number" : "");
      const arrow = state.sort === number ? (state.down ? " ▼" : " ▲") : "";
      cell.textContent = column.title[state.language] + arrow;
      cell.title = `${column.title[0]} / ${column.title[1]}\n${column.help[state.language]}\n(${say("sort")})`;
      cell.setAttribute("aria-sort", state.sort === number ? (state.down ? "descending" : "ascending") : "none");
      if (place < PINNED) { cell.classList.add("pinned"); cell.style.left = `${left}px`; left += pixels(column); }
      cell.onclick = () => {
        if (state.sort !== number) { state.sort = number; state.down = numeric(column); }
        else if (state.down === numeric(column)) state.down = !state.down;
        else state.sort = null;
        head();
        refresh();
      };
      line.append(cell);
    });
    byId("grid").querySelector("thead").replaceChildren(line);
  }

  let drawn = [-1, -1];
  function draw(force) {
    const port = byId("viewport");
    const first = Math.max(0, Math.floor(port.scrollTop / ROW) - 10);
    const last = Math.min(state.view.length, first + Math.ceil(Math.min(0.72 * innerHeight, 900) / ROW) + 20);
    if (!force && first === drawn[0] && last === drawn[1]) return;
    drawn = [first, last];
    const shown = visible();
    const lines = [space(first, shown.length)];
    for (let place = first; place < last; place += 1) lines.push(line(state.view[place], shown));
    lines.push(space(state.view.length - last, shown.length));
    byId("grid").querySelector("tbody").replaceChildren(...lines);
  }

  function space(count, span) {
    const made = element("tr", "space");
    const cell = element("td");
    cell.colSpan = span;
    cell.style.height = `${count * ROW}px`;
    made.append(cell);
    made.hidden = count === 0;
    return made;
  }

  function line(number, shown) {
    const row = rows[number];
    const tone = tones[row[at.status]];
    const made = element("tr", tone === "good" ? "" : tone);
    if (state.flash === number) made.classList.add("flash");
    let left = 0;
    shown.forEach((index, place) => {
      const column = columns[index];
      const value = row[index];
      const text = show(column, value);
      const cell = element("td", numeric(column) ? "number" : "");
      if (column.key === "status") cell.append(element("span", `chip ${tone}`, text));
      else cell.textContent = text;
      if (text.length > 12) cell.title = text;
      if (numeric(column) && typeof value === "string") cell.classList.add("alarm");
      if (column.style === "alarm" && value !== null) cell.classList.add(value ? "alarm" : "quiet");
      if (place < PINNED) { cell.classList.add("pinned"); cell.style.left = `${left}px`; left += pixels(column); }
      made.append(cell);
    });
    made.onclick = () => detail(number);
    return made;
  }

  function detail(number) {
    const drawer = byId("drawer");
    const row = rows[number];
    const close = element("button", "close", "✕");
    close.type = "button";
    close.title = say("close");
    close.onclick = () => { drawer.hidden = true; };
    const list = element("dl");
    columns.forEach((column, index) => {
      const value = row[index];
      if (value === null || value === "") return;
      list.append(element("dt", "", column.title[state.language]));
      const text = numeric(column) && typeof value === "number" && column.kind !== "share" ? String(value) : show(column, value);
      const about = element("dd", "", text);
      about.append(element("small", "", column.help[state.language]));
      list.append(about);
    });
    drawer.replaceChildren(close, element("h2", "", row[at.name]), list);
    drawer.hidden = false;
  }

  function find(order) {
    const number = rows.findIndex((row) => row[at.index] === order);
    if (number < 0) return;
    if (!state.view.includes(number)) reset();
    state.flash = number;
    byId("table").scrollIntoView({ behavior: "smooth", block: "start" });
    byId("viewport").scrollTop = Math.max(0, state.view.indexOf(number) * ROW - 4 * ROW);
    draw(true);
  }

  function reset() {
    Object.assign(state, { query: "", sort: null, down: false, flash: null });
    state.hidden.clear();
    byId("search").value = "";
    chips();
    head();
    refresh();
  }

  function chips() {
    byId("chips").replaceChildren(...statuses.filter((status) => status.count).map((status) => {
      const button = element("button", `chip ${status.tone}`, `${status.value} ${status.count.toLocaleString("en-US")}`);
      button.type = "button";
      button.title = status.help[state.language];
      button.classList.toggle("off", state.hidden.has(status.value));
      button.setAttribute("aria-pressed", String(!state.hidden.has(status.value)));
      button.onclick = () => {
        if (!state.hidden.delete(status.value)) state.hidden.add(status.value);
        chips();
        byId("viewport").scrollTop = 0;
        refresh();
      };
      return button;
    }));
  }

  function speak(language) {
    state.language = language;
    root.dataset.language = language ? "zh" : "en";
    root.lang = language ? "zh" : "en";
    byId("search").placeholder = say("search");
    byId("more").textContent = state.all ? say("fewer") : say("more");
    byId("reset").textContent = say("reset");
    byId("drawer").hidden = true;
    chips();
    head();
    refresh();
  }

  byId("language").onclick = () => { speak(1 - state.language); remember("language", root.lang); };
  byId("theme").onclick = () => {
    root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
    remember("theme", root.dataset.theme);
  };
  byId("more").onclick = () => { state.all = !state.all; speak(state.language); };
  byId("reset").onclick = reset;
  byId("search").oninput = (event) => { state.query = event.target.value; byId("viewport").scrollTop = 0; refresh(); };
  byId("viewport").addEventListener("scroll", () => draw(false), { passive: true });
  window.addEventListener("resize", () => draw(true));
  document.addEventListener("keydown", (event) => { if (event.key === "Escape") byId("drawer").hidden = true; });
  document.addEventListener("click", (event) => {
    const link = event.target.closest("[data-row]");
    if (link) { event.preventDefault(); find(Number(link.dataset.row)); }
  });

  const dark = window.matchMedia && matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = recall("theme") ?? (dark ? "dark" : "light");
  const language = recall("language") ?? navigator.language ?? "en";
  speak(language.startsWith("zh") ? 1 : 0);
})();
