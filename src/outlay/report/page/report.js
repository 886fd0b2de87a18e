"use strict";
const $ = (id) => document.getElementById(id);

/** An element with classes, text and children; text is never read as HTML. */
function make(name, classes, ...inside) {
  const element = document.createElement(name);
  if (classes) element.className = classes;
  element.append(...inside.filter((one) => one !== null && one !== undefined).map((one) => (one instanceof Node ? one : String(one))));
  return element;
}

// ---------------------------------------------------------------- light and dark

const KEPT = "outlay-report-theme";
const system = matchMedia("(prefers-color-scheme: dark)");
let chosen = null;
try { chosen = localStorage.getItem(KEPT); } catch { /* a page from a file may have no storage */ }

function theme() {
  const dark = chosen ? chosen === "dark" : system.matches;
  if (chosen) document.documentElement.dataset.theme = chosen;
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-pressed", String(dark));
  $("theme").setAttribute("aria-label", `Dark colours: ${dark ? "on" : "off"}`);
  return dark;
}
$("theme").addEventListener("click", () => {
  chosen = theme() ? "light" : "dark";
  try { localStorage.setItem(KEPT, chosen); } catch { /* then it holds for this visit */ }
  theme();
});
system.addEventListener("change", theme);
theme();

// ---------------------------------------------------------------- tables

function worth(cell) {
  if (!cell) return "";
  if (cell.dataset.v !== undefined) return Number(cell.dataset.v.replace("inf", "Infinity"));
  const text = cell.textContent.trim();
  const number = text.replace(/[−–]/g, "-").replace(/,/g, "").match(/^[<≥$]? ?([+-]?\d+(\.\d+)?(e[+-]?\d+)?)/);
  if (number) return Number(number[1]);
  return text === "∞" ? Infinity : text === "–" || text === "" ? NaN : text.toLowerCase();
}

function sort(heading) {
  const table = heading.closest("table"), body = table.tBodies[0];
  const at = [...heading.parentNode.children].indexOf(heading);
  const down = heading.getAttribute("aria-sort") === "ascending";
  for (const other of heading.parentNode.children) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", down ? "descending" : "ascending");
  const unknown = (value) => typeof value === "number" && Number.isNaN(value);
  const rows = [...body.rows].map((row) => [worth(row.cells[at]), row]);
  rows.sort(([a], [b]) => {
    if (unknown(a) || unknown(b)) return unknown(a) - unknown(b); // what is not known stands last either way
    const order = typeof a === typeof b ? (a < b ? -1 : a > b ? 1 : 0) : typeof a === "number" ? -1 : 1;
    return down ? -order : order;
  });
  body.append(...rows.map(([, row]) => row));
}
document.addEventListener("click", (event) => {
  const heading = event.target.closest("table.sorts th");
  if (heading && event.target.closest("button")) sort(heading);
});

// ---------------------------------------------------------------- charts

const tip = $("tip");
let spoken = 0; // where the page was scrolled to when the tip was placed

function say(point) {
  spoken = scrollY;
  tip.textContent = point.getAttribute("aria-label");
  tip.hidden = false;
  const spot = point.querySelector(".hit").getBoundingClientRect(), own = tip.getBoundingClientRect();
  const left = Math.min(Math.max(8, spot.left + spot.width / 2 - own.width / 2), innerWidth - own.width - 8);
  const above = spot.top - own.height - 6;
  tip.style.left = `${left}px`;
  tip.style.top = `${above < 4 ? spot.bottom + 6 : above}px`;
}
const hush = () => { tip.hidden = true; };

for (const chart of document.querySelectorAll("svg.chart")) {
  // Dots may lie on each other: the nearest one speaks, not the topmost.
  chart.addEventListener("mousemove", (event) => {
    let best = null, least = 24;
    for (const point of chart.querySelectorAll(".pt")) {
      if (point.closest(".off")) continue;
      const spot = point.querySelector(".hit").getBoundingClientRect();
      const far = Math.hypot(spot.left + spot.width / 2 - event.clientX, spot.top + spot.height / 2 - event.clientY);
      if (far < least) [best, least] = [point, far];
    }
    if (best) say(best); else hush();
  });
  chart.addEventListener("mouseleave", hush);
  chart.addEventListener("focusin", (event) => { if (event.target.closest(".pt")) say(event.target.closest(".pt")); });
  chart.addEventListener("focusout", hush);
  chart.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") hush();
    if (!step) return;
    event.preventDefault();
    const points = [...chart.querySelectorAll(".pt")].filter((one) => !one.closest(".off"));
    const now = points.indexOf(document.activeElement);
    const next = points[(now + step + points.length) % points.length];
    if (!next) return;
    for (const one of points) one.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  });
}
// The browser tells of a scroll a frame late: one that came before the tip was placed must not take it away.
addEventListener("scroll", () => { if (scrollY !== spoken) hush(); }, { passive: true });

for (const button of document.querySelectorAll(".legend button")) {
  button.addEventListener("click", () => {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    for (const line of button.closest("figure").querySelectorAll("g.series")) {
      if (line.dataset.line === button.dataset.line) line.classList.toggle("off", !on);
    }
    for (const chart of button.closest("figure").querySelectorAll("svg.chart")) {
      const points = [...chart.querySelectorAll(".pt")].filter((one) => !one.closest(".off"));
      if (points.length && !points.some((one) => one.tabIndex === 0)) points[0].tabIndex = 0;
    }
  });
}

// ---------------------------------------------------------------- examples

const data = JSON.parse($("data").textContent);
const answersOf = new Map();
for (const one of data.answers) {
  if (!answersOf.has(one.example)) answersOf.set(one.example, []);
  answersOf.get(one.example).push(one);
}
const count = (value) => (value === null || value === undefined ? "–" : Math.round(value).toLocaleString("en"));
const dollars = (value) => (value ? `$${value < 0.001 ? value.toPrecision(2) : value.toFixed(4)}` : "$0");
const short = (value) => (typeof value === "number" ? Number(value.toPrecision(3)).toLocaleString("en", { maximumFractionDigits: 3 }) : "–");

function verdict(answer) {
  if (answer.correct === null) return make("span", "", "–");
  return make("span", answer.correct ? "right" : "wrong", answer.correct ? "right" : "wrong");
}

function row(cells, classes) {
  const line = make("tr", classes);
  for (const [text, kind] of cells) line.append(make("td", kind, text));
  return line;
}

function tableOf(headings, rows, label) {
  const head = make("tr");
  for (const [text, kind] of headings) {
    const cell = make("th", kind, text);
    cell.scope = "col";
    head.append(cell);
  }
  const box = make("div", "scroll", make("table", "", make("thead", "", head), make("tbody", "", ...rows)));
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", label);
  return box;
}

/** The document with kept spans and sources marked. Offsets count code points, as Python does; JavaScript counts halves. */
function documentOf(text, answer) {
  const box = make("div", "document");
  const letters = Array.from(text);
  const sources = answer.links.map((link) => [link[2], link[3]]);
  const edges = new Set([0, letters.length]);
  for (const [start, end] of [...answer.spans, ...sources]) { edges.add(start); edges.add(end); }
  const places = [...edges].filter((at) => at >= 0 && at <= letters.length).sort((a, b) => a - b);
  const within = (list, start, end) => list.find(([a, b]) => a <= start && end <= b);
  for (let at = 0; at + 1 < places.length; at += 1) {
    const [start, end] = [places[at], places[at + 1]], piece = letters.slice(start, end).join("");
    const source = within(sources, start, end);
    if (source) {
      const mark = make("mark", "source", piece);
      mark.dataset.source = source.join("-");
      box.append(mark);
    } else box.append(within(answer.spans, start, end) ? make("mark", "kept", piece) : piece);
  }
  box.tabIndex = 0;
  box.setAttribute("role", "region");
  box.setAttribute("aria-label", "Document");
  return box;
}

/** The reply; a sentence with a source is a button that lights it up. */
function replyOf(answer, documentBox) {
  const box = make("p", "reply");
  const letters = Array.from(answer.reply || "");
  let done = 0;
  for (const [start, end, from, to, score] of [...answer.links].sort((a, b) => a[0] - b[0])) {
    if (start > done) box.append(letters.slice(done, start).join(""));
    const said = make("button", score < 0.3 ? "said weak" : "said", letters.slice(start, end).join(""), make("small", "", score.toFixed(2)));
    said.type = "button";
    said.setAttribute("aria-pressed", "false");
    said.title = "Show its source in the document";
    said.addEventListener("click", () => light(said, box, documentBox, `${from}-${to}`));
    box.append(said);
    done = end;
  }
  box.append(letters.slice(done).join("") || (done ? "" : "(nothing)"));
  return box;
}

function light(said, box, documentBox, name) {
  const on = said.getAttribute("aria-pressed") !== "true";
  for (const other of box.querySelectorAll(".said")) other.setAttribute("aria-pressed", "false");
  said.setAttribute("aria-pressed", String(on));
  let first = null;
  for (const mark of documentBox ? documentBox.querySelectorAll("mark.source") : []) {
    const hot = on && mark.dataset.source === name;
    mark.classList.toggle("hot", hot);
    if (hot && !first) first = mark;
  }
  if (first) documentBox.scrollTop = Math.max(0, first.offsetTop - documentBox.clientHeight / 3);
}

function callsOf(answer) {
  const rows = answer.calls.map((call) => {
    const name = call.kind === "verify" ? `verify: ${call.verifier}` : call.attempt ? `${call.kind} ${call.attempt}` : call.kind;
    const result = call.error ? make("span", "wrong", call.error)
      : call.kind === "verify" ? (call.verdict === null ? "–" : call.verdict ? "accepts" : "rejects")
      : call.answer ?? "–";
    const said = call.oracle ? make("span", "", result, " *") : result;
    const judged = call.kind === "verify" || call.score === null ? "–" : call.score > 0 ? make("span", "right", "right") : make("span", "wrong", "wrong");
    const text = make("details", "", make("summary", "", "text"), make("p", "reply", call.text || "(nothing)"));
    return row([[name, "word"], [call.tier, "word"], [call.context, "word"], [count(call.prompt_tokens)], [count(call.completion_tokens)],
      [short(call.cost_units)], [dollars(call.usd)], [said, "word wide"], [judged, "word"], [call.text ? text : "", "word wide"]]);
  });
  const heads = [["call", "word"], ["tier", "word"], ["shown", "word"], ["prompt"], ["reply"], ["units"], ["cost"], ["answer", "word"], ["", "word"], ["", "word"]];
  return tableOf(heads, rows, "Calls, with tokens and cost");
}

function show(at, wanted, focus) {
  const example = data.examples[at], answers = answersOf.get(at);
  const answer = answers.find((one) => one.run === wanted) || answers[0];
  const run = data.runs[answer.run], box = $("shown");
  const text = example.document >= 0 ? data.documents[example.document] : "";
  const documentBox = text ? documentOf(text, answer) : null;
  const rows = answers.map((one) => {
    const pick = make("button", "pick", data.runs[one.run].name);
    pick.type = "button";
    if (one === answer) pick.setAttribute("aria-current", "true");
    pick.addEventListener("click", () => { show(at, one.run, false); box.querySelector('.pick[aria-current="true"]').focus({ preventScroll: true }); });
    const first = Object.entries(one.metrics)[0];
    return row([[pick, "word"], [verdict(one), "word"], [first ? `${short(first[1])}` : "–"], [count(one.context_tokens)],
      [count(one.calls.filter((call) => call.kind !== "verify").length)], [count(one.tokens)], [dollars(one.usd)], [one.inflation ? `${short(one.inflation)} ×` : "–"]], one === answer ? "chosen" : "");
  });
  const firstMetric = Object.keys(answer.metrics)[0] || "metric";
  const heads = [["run", "word"], ["", "word"], [firstMetric.replaceAll("_", " ")], ["context"], ["calls"], ["tokens"], ["cost"], ["inflation"]];
  const link = make("a", "mono", run.id.slice(0, 8));
  link.href = `#run-${run.id}`;
  const left = make("div", "");
  if (documentBox) {
    const kept = answer.spans.reduce((sum, [start, end]) => sum + end - start, 0) / Array.from(text).length;
    left.append(make("h4", "", `Document · ${count(answer.context_tokens)} tokens kept, ${Math.round(100 * kept)} % of the text`), documentBox);
  }
  const right = make("div", "");
  if (example.question) right.append(make("h4", "", "Question"), make("p", "reply", example.question));
  right.append(make("h4", "", "Reply"), replyOf(answer, documentBox));
  if (answer.correct !== null) right.append(make("h4", "", "Answer read from it"), make("p", "reply", answer.answer ?? "(none)", " ", verdict(answer)));
  right.append(make("h4", "", example.references.length === 1 ? "Reference" : "References"), ...example.references.map((one) => make("p", "reference", one)));
  const metrics = Object.entries(answer.metrics).map(([name, value]) => `${name.replaceAll("_", " ")} ${short(value)}`).join(" · ");
  if (metrics) right.append(make("h4", "", "Metrics"), make("p", "note", metrics));
  box.replaceChildren(
    make("h3", "", example.id), make("p", "note", example.dataset, example.difficulty === null ? "" : ` · difficulty ${example.difficulty}`),
    make("h4", "", "Every run on it"), tableOf(heads, rows, "Every run on this example"),
    make("h4", "plain", "Shown: ", `${run.name} `, link), make("div", documentBox ? "both" : "", left, right),
    make("h4", "", "Calls"), callsOf(answer));
  for (const one of document.querySelectorAll("#list button")) one.setAttribute("aria-current", String(Number(one.dataset.at) === at));
  if (focus) box.focus({ preventScroll: innerWidth > 900 });
}

if ($("list")) {
  const several = new Set(data.examples.map((one) => one.dataset)).size > 1;
  const texts = data.examples.map((one) => [one.id, one.question, one.dataset, one.document >= 0 ? data.documents[one.document] : ""].join("\n").toLowerCase());
  const names = data.runs.map((one) => one.dataset);
  const order = data.examples.map((_, at) => at).sort((a, b) => names.indexOf(data.examples[a].dataset) - names.indexOf(data.examples[b].dataset) || a - b);
  const buttons = order.map((at) => {
    const one = data.examples[at];
    const answers = answersOf.get(at), right = answers.filter((answer) => answer.correct).length;
    const judged = answers.some((answer) => answer.correct !== null);
    const button = make("button", "", one.id, make("small", "", [several ? one.dataset : "", judged ? `${right} of ${answers.length} runs right` : `${answers.length} runs`].filter(Boolean).join(" · ")));
    button.type = "button";
    button.dataset.at = at;
    button.addEventListener("click", () => show(at, null, true));
    return button;
  });
  const find = () => {
    const wanted = $("search").value.trim().toLowerCase();
    const found = buttons.filter((button) => texts[button.dataset.at].includes(wanted));
    $("list").replaceChildren(...found.map((button) => make("li", "", button)));
    $("found").textContent = `${found.length} of ${buttons.length} examples`;
  };
  $("search").addEventListener("input", find);
  find();
  if (order.length) show(order[0], null, false);
}
