/* The page: choices of context, figures that follow them, downloads, light and dark. */

const data = JSON.parse(document.getElementById("data").textContent);
const model = new Model(data.model);
const NAMED = 6;
const html = (tag, properties = {}, ...children) => {
  const node = Object.assign(document.createElement(tag), properties);
  node.append(...children);
  return node;
};

const state = {
  log: false,
  chosen: data.columns.map((column) => column.typical),
  segment: data.order.length ? data.order[0] : null,
  context(choices = this.chosen) {
    const x = new Float64Array(model.features);
    choices.forEach((choice, i) => x.set(choice.features, data.columns[i].start));
    return x;
  },
  series() {
    const typical = data.columns.map((column) => column.typical),
      chosen = this.chosen.some((choice, i) => choice !== typical[i]);
    const first = {
      name: data.columns.length ? "typical query" : "all queries",
      points: model.predictSupported(this.context(typical), typical),
    };
    if (!chosen) return [first];
    return [
      { name: "your context", points: model.predictSupported(this.context(), this.chosen) },
      { ...first, colour: "var(--soft)", dash: "5 4" },
    ];
  },
  /* The chosen context with another value of the segment's column; what never came together with it gives way. */
  together(choice) {
    const choices = this.chosen.map((own, i) => (i === this.segment ? choice : own)),
      kept = [this.segment];
    choices.forEach((own, i) => {
      if (i === this.segment) return;
      const fits = (each) => kept.every((j) => !model.areApart(i, each, j, choices[j]));
      choices[i] = [own, ...data.columns[i].choices.filter((each) => each.share > 0)].find(fits) ?? own;
      kept.push(i);
    });
    return choices;
  },
  segments() {
    const column = data.columns[this.segment];
    let choices = column.choices.filter((choice) => choice.share > 0 || column.range);
    if (choices.length > NAMED && column.kind === "numeric") {
      choices = Array.from({ length: NAMED }, (_, i) => choices[Math.round((i * (choices.length - 1)) / (NAMED - 1))]);
    }
    return choices.slice(0, NAMED).map((choice) => {
      const choices = this.together(choice),
        points = model.predictSupported(this.context(choices), choices);
      const none = points.every((point) => point.p === null);
      return { name: none ? `${choice.words}: not supported` : choice.words, points };
    });
  },
};
if (data.places) {
  placeLabel = (k) => data.places.short[k] ?? k;
  placeName = (k) => data.places.names[k] ?? k;
  placeGroup = (k) => data.places.group[k] ?? "";
}
const figures = makeFigures(data, state);

/* Controls: a menu where a column has few values, a slider where it has many. */
function makeControl(index) {
  const column = data.columns[index],
    name = html("bdi", { textContent: shorten(column.name, 60), title: column.name });
  const box = html("label", { className: "control" }, name);
  box.dataset.name = column.name.toLowerCase();
  const isMissing = (choice) => choice.label === "missing" && choice.features[choice.features.length - 1] === 1,
    isAverage = column.kind !== "categorical" && !isMissing(column.typical),
    options = isAverage ? [column.typical, ...column.choices] : column.choices;
  if (!column.range) {
    const menu = html("select");
    options.forEach((choice, i) => {
      const prefix = isAverage && i === 0 ? "average: " : "";
      menu.append(
        html("option", { value: i, textContent: prefix + shorten(choice.label, 80), title: choice.label, dir: "auto" }),
      );
    });
    menu.addEventListener("change", () => choose(index, options[menu.value]));
    box.append(menu);
    box.reset = () => {
      menu.value = options.findIndex((choice) => choice.label === column.typical.label);
    };
    box.reset();
    return box;
  }
  const [least, largest] = column.range,
    shown = html("output");
  const slider = html("input", { type: "range", min: 0, max: 1000, step: 1 });
  const value = () => least + ((largest - least) * slider.value) / 1000;
  slider.addEventListener("input", () => {
    const number = value(),
      features = [(number - column.mean) / column.sd, 0].slice(0, column.typical.features.length);
    shown.textContent = Number(number.toPrecision(4));
    const run = column.steps.find((each) => each.first <= slider.value && slider.value <= each.last);
    choose(index, { label: shown.textContent, features, value: 0, doubts: run ? run.doubts : [] });
  });
  box.reset = () => {
    slider.value = Math.round((1000 * (column.mean - least)) / (largest - least || 1));
    shown.textContent = column.typical.label;
  };
  box.reset();
  name.after(shown);
  box.append(slider);
  const missing = column.choices.find(isMissing);
  if (missing) {
    const tick = html("input", { type: "checkbox" });
    tick.addEventListener("change", () => {
      slider.disabled = tick.checked;
      if (tick.checked) choose(index, missing);
      else slider.dispatchEvent(new Event("input"));
    });
    const reset = box.reset;
    box.reset = () => {
      tick.checked = slider.disabled = isMissing(column.typical);
      reset();
    };
    box.reset();
    box.append(html("span", { className: "missing" }, tick, " missing"));
  }
  return box;
}

function choose(index, choice) {
  state.chosen[index] = choice;
  refresh(["curves", "places", "segments"]);
}

let waiting = null;
function refresh(ids) {
  const due = new Set([...(waiting || []), ...ids]),
    first = waiting === null;
  waiting = due;
  if (first)
    requestAnimationFrame(() => {
      const now = waiting;
      waiting = null;
      now.forEach(draw);
    });
}

/* Draw one figure at the width it has, and fill its table of numbers. */
function draw(id) {
  const figure = document.getElementById(`fig-${id}`);
  if (!figure || !figures[id]) return;
  const holder = figure.querySelector(".chart"),
    tip = figure.querySelector(".tip");
  const drawn = figures[id].draw(Math.max(280, Math.floor(holder.clientWidth)));
  holder.replaceChildren(drawn.svg);
  tip.hidden = true;
  if (drawn.hover) {
    drawn.svg.addEventListener("pointermove", (event) => {
      const box = drawn.svg.getBoundingClientRect(),
        scale = drawn.svg.viewBox.baseVal.width / box.width;
      const found = drawn.hover((event.clientX - box.left) * scale);
      const rows = found.rows.map((row) => {
        const swatch = html("i");
        swatch.style.background = row.colour;
        return html("div", {}, swatch, html("bdi", { textContent: row.text }));
      });
      tip.replaceChildren(html("b", { textContent: found.title }), ...rows);
      tip.hidden = false;
      tip.style.left = `${Math.max(0, Math.min(found.x / scale + 12, holder.clientWidth - tip.offsetWidth))}px`;
    });
    drawn.svg.addEventListener("pointerleave", () => {
      tip.hidden = true;
      drawn.leave();
    });
  }
  const notes = figure.querySelector(".notes"),
    told = figures[id].notes ? figures[id].notes() : [];
  notes.replaceChildren(...told.map((text) => html("span", { textContent: text })));
  notes.hidden = !told.length;
  const table = figure.querySelector("details table");
  if (figure.querySelector("details").open) fillTable(table, figures[id].rows());
}

function fillTable(table, [header, ...rows]) {
  const cell = (value) =>
    html("td", {
      textContent:
        typeof value === "number" ? (Number.isInteger(value) ? String(value) : spell(value)) : (value ?? "–"),
      className: typeof value === "number" ? "number" : "",
    });
  table.replaceChildren(
    html("thead", {}, html("tr", {}, ...header.map((name) => html("th", { textContent: name.replaceAll("_", " ") })))),
    html("tbody", {}, ...rows.slice(0, 500).map((row) => html("tr", {}, ...row.map(cell)))),
  );
}

/* CSV of a figure. A text that a spreadsheet may take for a formula gets an apostrophe. */
function toCsv(id) {
  const quote = (value) => {
    if (typeof value !== "string") return value === null || value === undefined ? "" : String(value);
    return `"${(/^(?:[\x00-\x20\xa0]*[=+\-@＝＋－＠]|[\t\r\n])/.test(value) ? `'${value}` : value).replaceAll('"', '""')}"`;
  };
  return (
    figures[id]
      .rows()
      .map((row) => row.map(quote).join(","))
      .join("\r\n") + "\r\n"
  );
}

const STYLES = [
  "fill",
  "fill-opacity",
  "stroke",
  "stroke-width",
  "stroke-opacity",
  "stroke-dasharray",
  "font-family",
  "font-size",
  "font-weight",
  "text-anchor",
  "visibility",
];

/* SVG of a figure by itself, with the colours it has on the page. */
function toSvg(id) {
  const shown = document.querySelector(`#fig-${id} .chart svg`),
    alone = shown.cloneNode(true);
  const copies = alone.querySelectorAll("*");
  shown.querySelectorAll("*").forEach((node, i) => {
    const style = getComputedStyle(node);
    copies[i].removeAttribute("class");
    copies[i].setAttribute("style", STYLES.map((name) => `${name}:${style.getPropertyValue(name)}`).join(";"));
  });
  alone.setAttribute("xmlns", SVG);
  alone.removeAttribute("class");
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--paper").trim();
  alone.prepend(element("rect", { width: "100%", height: "100%", fill: paper }));
  return new XMLSerializer().serializeToString(alone);
}

async function toPng(id) {
  const picture = new Image(),
    box = document.querySelector(`#fig-${id} .chart svg`).viewBox.baseVal;
  picture.src = URL.createObjectURL(new Blob([toSvg(id)], { type: "image/svg+xml" }));
  await picture.decode();
  const paper = html("canvas", { width: 2 * box.width, height: 2 * box.height });
  paper.getContext("2d").drawImage(picture, 0, 0, paper.width, paper.height);
  URL.revokeObjectURL(picture.src);
  return new Promise((done) => paper.toBlob(done, "image/png"));
}

const SAVERS = {
  png: toPng,
  svg: (id) => new Blob([toSvg(id)], { type: "image/svg+xml" }),
  csv: (id) => new Blob(["\ufeff", toCsv(id)], { type: "text/csv" }),
};

async function save(id, kind) {
  const link = html("a", { href: URL.createObjectURL(await SAVERS[kind](id)), download: `clickharvest-${id}.${kind}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

function setUp() {
  const controls = document.getElementById("controls");
  if (controls) {
    const boxes = data.order.map(makeControl),
      first = boxes.slice(0, NAMED),
      more = boxes.slice(NAMED);
    controls.querySelector(".first").append(...first);
    if (more.length) {
      const rest = controls.querySelector("details");
      rest.hidden = false;
      rest.querySelector("summary").textContent = `${more.length} more column${more.length > 1 ? "s" : ""}`;
      rest.querySelector(".rest").append(...more);
      rest.querySelector("input").addEventListener("input", (event) => {
        for (const box of more) box.hidden = !box.dataset.name.includes(event.target.value.toLowerCase());
      });
    }
    controls.querySelector("button").addEventListener("click", () => {
      state.chosen = data.columns.map((column) => column.typical);
      boxes.forEach((box) => box.reset());
      refresh(["curves", "places", "segments"]);
    });
    const menu = document.getElementById("segment");
    menu.append(
      ...data.order.map((i) =>
        html("option", {
          value: i,
          textContent: shorten(data.columns[i].name, 60),
          title: data.columns[i].name,
          dir: "auto",
        }),
      ),
    );
    menu.addEventListener("change", () => {
      state.segment = Number(menu.value);
      refresh(["segments"]);
    });
  }
  document.getElementById("log")?.addEventListener("change", (event) => {
    state.log = event.target.checked;
    refresh(Object.keys(figures));
  });
  document.getElementById("theme").addEventListener("click", () => {
    const root = document.documentElement,
      dark = getComputedStyle(root).colorScheme.includes("dark");
    root.dataset.theme = dark ? "light" : "dark";
  });
  for (const button of document.querySelectorAll("[data-save]")) {
    const id = button.closest("figure").id.slice(4);
    button.addEventListener("click", () => save(id, button.dataset.save));
  }
  for (const details of document.querySelectorAll("figure details")) {
    const id = details.closest("figure").id.slice(4);
    details.addEventListener(
      "toggle",
      () => details.open && fillTable(details.querySelector("table"), figures[id].rows()),
    );
  }
  addEventListener("beforeprint", () => {
    document.getElementById("checks")?.setAttribute("open", "");
  });
  let width = document.documentElement.clientWidth;
  addEventListener("resize", () => {
    if (document.documentElement.clientWidth === width) return;
    width = document.documentElement.clientWidth;
    refresh(Object.keys(figures));
  });
  Object.keys(figures).forEach(draw);
  document.documentElement.dataset.ready = "true";
}

/* For the curious, in the browser's console: clickharvest.predict(x) of encoded features, clickharvest.csv("curves"). */
window.clickharvest = {
  data,
  state,
  predict: (x) => model.predict(Float64Array.from(x)),
  svg: toSvg,
  csv: toCsv,
  png: toPng,
};
setUp();
