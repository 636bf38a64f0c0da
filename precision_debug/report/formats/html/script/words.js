// What every other part uses: the data, both languages, and numbers as people read them.
const data = JSON.parse(document.getElementById("data").textContent);
const { columns, rows, statuses } = data;
for (const [column, texts] of Object.entries(data.texts)) { // what many rows share stands once
  for (const row of rows) if (row[column] !== null) row[column] = texts[row[column]];
}
const byId = (id) => document.getElementById(id);
const root = document.documentElement;
const at = Object.fromEntries(columns.map((column, number) => [column.key, number]));
const tones = Object.fromEntries(statuses.map((status) => [status.value, status.tone]));
const names = Object.fromEntries(statuses.map((status) => [status.value, status.name]));
const words = {
  search: ["Find a tensor, operator, node or layer", "查找张量、算子、节点或层"],
  of: ["of", "/"], shown: ["shown", "行显示"], close: ["Close", "关闭"], next: ["Next", "下一个"],
  previous: ["Previous", "上一个"], link: ["Link to this row", "该行的链接"], reads: ["Reads", "读取"],
  readers: ["Read by", "被读取"], layer: ["Layer", "层"], filter: ["filter", "筛选"], sort: ["sort", "排序"],
  all: ["all", "全部"], key: ["key columns", "主要列"], top: ["(no layer)", "（无层）"], failed: ["failed", "超差"],
  worst: ["worst Rel L2", "最大相对 L2"], values: ["Values: baseline and target", "数值分布：基线与目标"],
  errors: ["Absolute error", "绝对误差分布"], against: ["Error against magnitude", "误差与数值大小"],
  map: ["Error over the last two axes", "误差分布（最后两个维度）"],
  channels: ["Error by channel", "各通道误差"], elements: ["Worst elements", "误差最大的元素"],
  index: ["Index", "下标"], baseline: ["Baseline", "基线"], target: ["Target", "目标"], error: ["Error", "误差"],
  chart: ["Relative L2 error of every compared tensor, in execution order, on a logarithmic axis", "各张量的相对 L2 误差（按执行顺序，对数坐标）"],
  culprit: ["culprit", "元凶"], first: ["first mismatch", "首个超差"], mine: ["What this operator itself added", "该算子自身引入的误差"],
  more: ["First {0} of {1} rows are printed.", "仅打印前 {0} 行，共 {1} 行。"], folded: ["fold", "折叠"],
  copied: ["Copied", "已复制"], yes: ["yes", "是"], no: ["no", "否"],
  saved: ["Both sides are saved in", "两侧数据保存于"],
  lost: ["violet: NaN or Inf", "紫色：NaN 或 Inf"], numbers: ["All numbers", "全部数值"], graph: ["Around it", "周围的计算图"], around: ["around", "围绕"],
  place: ["Row:place (token)", "行:位置（词元）"], chance: ["Log-probability", "对数概率"], rank: ["Rank", "名次"],
  greedy: ["Greedy choice", "贪心选择"], lead: ["lead", "领先"], logits: ["Logits", "logits"],
  layers: ["Relative L2 error of every tensor at this token, in execution order", "该词元处各张量的相对 L2 误差（按执行顺序）"],
  grows: ["Grows most at", "误差增长最多处"], moves: ["Who moves it, by intervention", "谁造成其偏差（干预测得）"],
  errors_of: ["Errors of", "误差来自"], move: ["move log p by", "使 log p 变化"], left: ["left without them", "去除后剩余"],
};
const state = { language: 0 };
const spoken = [];

const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined && text !== null) made.textContent = text;
  return made;
};
/** Both languages; the style sheet shows one. Names of a model come in as text, never as markup. */
function both(pair, tag = "span", className = "") {
  const made = element(tag, className);
  const [english, chinese] = Array.isArray(pair) ? pair : [pair, pair];
  if (english === chinese) { made.textContent = english; return made; }
  const zh = element("span", "zh", chinese);
  zh.lang = "zh";
  made.append(element("span", "en", english), zh);
  return made;
}
function chip(status) {
  const made = both(names[status], "span", `chip ${tones[status]}`);
  made.dataset.status = status;
  return made;
}
/** An attribute that speaks the page's language. */
function label(target, attribute, pair) {
  spoken.push([target, attribute, pair]);
  target.setAttribute(attribute, pair[state.language]);
}
const inWords = (name, ...values) => words[name][state.language].replace(/\{(\d)\}/g, (_, place) => values[place]);
const thousands = (value) => value.toLocaleString("en-US");
const remember = (key, value) => { try { localStorage.setItem(`precision_debug.${key}`, value); } catch { /* file:// */ } };
const recall = (key) => { try { return localStorage.getItem(`precision_debug.${key}`); } catch { return null; } };

const numeric = (column) => column.kind === "int" || column.kind === "float" || column.kind === "share";
const significant = (value, digits) => Number(value.toPrecision(digits)).toString();
function figure(column, value) {
  if (value === null || value === undefined || value === "") return "";
  if (column.kind === "flag") return value ? "yes" : "no";
  if (!numeric(column) || typeof value === "string") return String(value);
  if (column.kind === "int") return thousands(value);
  if (column.kind === "share") return value > 0 && value < 1e-4 ? "<0.01%" : `${(100 * value).toFixed(2)}%`;
  if (value === 0) return "0";
  if (column.style === "error") return value.toExponential(2);
  if (column.style === "db") return value.toFixed(1);
  if (column.style === "ratio") return value >= 1000 ? value.toExponential(1) : value.toFixed(2);
  const size = Math.abs(value);
  return size < 1e-3 || size >= 1e6 ? value.toExponential(3) : significant(value, 6);
}
const short = (value) => (value === null || value === undefined ? "" : typeof value === "string" ? value : value === 0 ? "0" : value.toExponential(2));

const LARGEST = { nan: Infinity, inf: Number.MAX_VALUE, "-inf": -Number.MAX_VALUE };
/** A number to sort and to filter by; null where there is none. */
const amount = (value) => (typeof value === "string" ? (LARGEST[value] ?? null) : (value ?? null));

const unit = data.unit || 1e-7;
/** How bad a number is, from 0 to 1; null where the column's numbers are neither good nor bad. */
function badness(column, value) {
  if (typeof value === "string") return column.heat === "error" ? 1 : null;
  if (value === null) return null;
  const between = (low, high) => Math.min(1, Math.max(0, (value <= 0 ? -40 : Math.log10(value) - low) / (high - low)));
  if (column.heat === "error") return between(Math.log10(unit), 0);
  if (column.heat === "ratio") return between(0.3, 3);
  if (column.heat === "db") return Math.min(1, Math.max(0, (60 - value) / 60));
  if (column.heat === "share") return value;
  return null;
}
const heat = (share) => (share === null ? "" : `h${Math.min(5, Math.floor(share * 6))}`);
/** How long a number's bar is, from 0 to 1, among all numbers of its column; of errors by decades. */
const spans = columns.map((column, number) => {
  if (!column.heat || column.heat === "share") return null;
  const known = rows.map((row) => row[number]).filter((value) => typeof value === "number" && (value > 0 || column.heat === "db"));
  const scaled = known.map((value) => (column.heat === "db" ? -value : Math.log10(value)));
  return [scaled.reduce((a, b) => Math.min(a, b), Infinity), scaled.reduce((a, b) => Math.max(a, b), -Infinity)];
});
function barOf(column, value) {
  if (typeof value === "string") return 1;
  if (column.heat === "share") return value;
  if (value <= 0 && column.heat !== "db") return 0;
  const [low, high] = spans[at[column.key]];
  const scaled = column.heat === "db" ? -value : Math.log10(value);
  return 0.06 + 0.94 * (high > low ? (scaled - low) / (high - low) : 1);
}
