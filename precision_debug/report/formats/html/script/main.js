// Start, language, colours, print, and what the address says.
function speak(language) {
  state.language = language;
  root.dataset.language = root.lang = language ? "zh" : "en";
  for (const [target, attribute, pair] of spoken) target.setAttribute(attribute, pair[language]);
  if (table) told(table.getDataCount("active"));
  if (opened >= 0) openRow(opened);
}

function paint(theme) {
  root.dataset.theme = theme;
  if (table) buildPlot();
}

/** Paper shows no scrolling table: a plain one with the same rows and columns, as many as are worth paper. */
const PRINTED = 1000;
const PAPER = "650px"; // what A4 and letter have beside their margins: a curve as wide as the screen would be cut off
let screen_ = null;
function toPaper() {
  if (screen_) return;
  screen_ = root.dataset.theme;
  byId("plot").style.width = PAPER;
  paint("light");
  const shownColumns = data.order.filter(isShown).slice(0, 12);
  const all = displayed();
  const made = element("table", "list"), head = element("tr"), top = element("thead"), body = element("tbody");
  for (const number of shownColumns) head.append(both(columns[number].title, "th", numeric(columns[number]) ? "right" : ""));
  top.append(head);
  for (const number of all.slice(0, PRINTED)) {
    const line = element("tr", `is-${tones[rows[number][at.status]]}`);
    for (const column of shownColumns) {
      const value = rows[number][column];
      line.append(column === at.status ? both(names[value], "td") : Array.isArray(value) ? both(value, "td") : element("td", numeric(columns[column]) ? "right" : "", figure(columns[column], value)));
    }
    body.append(line);
  }
  made.append(top, body);
  const parts = [made];
  if (all.length > PRINTED) parts.push(element("p", "", inWords("more", thousands(PRINTED), thousands(all.length))));
  byId("print").replaceChildren(...parts);
  for (const one of document.querySelectorAll("details.card, .details details")) { one.dataset.was = one.open; one.open = true; }
}
function toScreen() {
  if (!screen_) return;
  byId("print").replaceChildren();
  for (const one of document.querySelectorAll("details.card, .details details")) one.open = one.dataset.was === "true";
  const theme = screen_;
  screen_ = null;
  byId("plot").style.width = "";
  paint(theme);
}

function followed() {
  const asked = location.hash.match(/^#row=(\d+)$/);
  if (asked && Number(asked[1]) < rows.length) openRow(Number(asked[1]), true);
}

const dark = window.matchMedia && matchMedia("(prefers-color-scheme: dark)").matches;
root.dataset.theme = recall("theme") ?? (dark ? "dark" : "light");
const language = root.dataset.asked || recall("language") || navigator.language || "en";
state.language = language.startsWith("zh") ? 1 : 0;
root.dataset.language = root.lang = state.language ? "zh" : "en";

byId("language").onclick = () => { speak(1 - state.language); remember("language", root.lang); };
byId("theme").onclick = () => { paint(root.dataset.theme === "dark" ? "light" : "dark"); remember("theme", root.dataset.theme); };
document.addEventListener("keydown", (event) => {
  if (event.key === "Escape") closeRow();
  if (opened < 0 || event.target.closest("input, #grid")) return;
  const step = { ArrowLeft: 0, ArrowRight: 1 }[event.key];
  if (step !== undefined && byId("drawer").contains(event.target)) { event.preventDefault(); byId("drawer").querySelectorAll(".head button")[step].click(); }
});
document.addEventListener("click", (event) => {
  const link = event.target.closest("a[data-row]");
  if (!link) return;
  event.preventDefault();
  openRow(Number(link.dataset.row), !byId("drawer").contains(link));
});
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.onclick = () => {
    const selection = getSelection();
    selection.selectAllChildren(button.previousElementSibling); // stays marked: who cannot be given it copies it
    const copied = navigator.clipboard?.writeText(button.previousElementSibling.textContent) ?? Promise.reject();
    copied.catch(() => document.execCommand("copy")).then((said) => { if (said !== false) button.replaceChildren(both(words.copied)); });
  };
}
let wait = 0;
window.addEventListener("resize", () => { clearTimeout(wait); wait = setTimeout(() => { if (!screen_) curve.plot?.setSize({ width: byId("plot").clientWidth, height: plotHeight() }); }, 120); });
window.addEventListener("hashchange", followed);
window.addEventListener("beforeprint", toPaper);
window.addEventListener("afterprint", toScreen);

tokenStrip();
legend();
buildTable(() => {
  tools();
  buildPlot();
  const centre = data.culprits[0] ?? data.first;
  if (centre !== null && centre !== undefined && (data.reads[centre].length || readersOf[centre].length)) {
    byId("graph").hidden = false;
    byId("graphed").replaceChildren(both(words.around), ` ${rows[centre][at.name]}`);
    drawGraph(byId("drawn"), centre);
  }
  told(table.getDataCount("active"));
  followed();
  root.dataset.ready = "yes";
});
