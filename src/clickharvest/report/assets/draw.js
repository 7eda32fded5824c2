/* Drawing: SVG elements, axes, lines with bands, and bars. Texts are set as text, never as markup. */

const SVG = "http://www.w3.org/2000/svg";

function element(tag, attributes = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
  node.append(...children);
  return node;
}

const label = (x, y, text, attributes = {}) => element("text", { x, y, ...attributes }, String(text));
const shorten = (text, longest) => {
  const characters = Array.from(text);
  return characters.length <= longest ? text : characters.slice(0, longest - 1).join("") + "…";
};
const round = (value) => Math.round(value * 100) / 100;
const colour = (i) => `var(--c${(i % 8) + 1})`;
const isolate = (text) => `\u2068${text}\u2069`;

/* A number with few digits, for people. */
function spell(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-4 || size >= 1e6)) return value.toPrecision(3);
  return size >= 1000
    ? Math.round(value).toLocaleString("en-GB")
    : size >= 100
      ? value.toFixed(0)
      : size >= 0.1
        ? value.toFixed(3)
        : value.toPrecision(3);
}

function compact(value) {
  if (value >= 1e6) return `${(value / 1e6).toFixed(value < 1e7 ? 1 : 0)}M`;
  if (value >= 1e3) return `${(value / 1e3).toFixed(value < 1e4 ? 1 : 0)}k`;
  return value >= 10 || value === 0 ? value.toFixed(0) : value.toPrecision(1);
}

function canvas(width, height, title) {
  const svg = element("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", class: "plot" });
  svg.setAttribute("aria-label", title);
  return svg;
}

/* Ticks of a linear axis from 0, about `count` of them. */
function ticksTo(largest, count) {
  const rough = largest / count,
    power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((factor) => factor * power >= rough) * power;
  return Array.from({ length: Math.floor(largest / step + 1e-9) + 1 }, (_, i) => Number((i * step).toPrecision(12)));
}

/* Ticks of a logarithmic axis: 1, 2, 5 times powers of ten; powers alone where the range is wide. */
function ticksBetween(least, largest) {
  const factors = largest / least > 300 ? [1] : largest / least > 30 ? [1, 3] : [1, 2, 5],
    ticks = [];
  for (let e = Math.floor(Math.log10(least)); e <= Math.ceil(Math.log10(largest)); e++) {
    for (const factor of factors) {
      const tick = Number(`${factor}e${e}`);
      if (tick >= least * 0.999 && tick <= largest * 1.001) ticks.push(tick);
    }
  }
  return ticks;
}

/* A line for each of several series, and a patch for each band that has a name. */
function drawLegend(svg, series, bands, width) {
  let x = 2,
    y = 14;
  const entries = [...(series.length > 1 || bands.length ? series : []), ...bands];
  if (!entries.length) return 6;
  entries.forEach((one, i) => {
    const text = shorten(one.name, width < 480 ? 34 : 44),
      size = 30 + Array.from(text).length * 7;
    if (x > 2 && x + size > width) {
      x = 2;
      y += 20;
    }
    const stroke = one.colour || colour(one.opacity ? 0 : i);
    svg.append(
      one.opacity
        ? element("rect", { x, y: y - 10, width: 18, height: 11, rx: 2, style: `fill:${stroke}`, "fill-opacity": one.opacity })
        : element("line", {
            x1: x,
            x2: x + 18,
            y1: y - 4,
            y2: y - 4,
            style: `stroke:${stroke}`,
            "stroke-width": 2.5,
            "stroke-dasharray": one.dash || "none",
          }),
    );
    svg.append(label(x + 24, y, isolate(text), { class: "legend" }));
    x += size + 14;
  });
  return y + 12;
}

/* How a position is written: its number, or the values of its place, short or in full; and which points a line may join. */
let placeLabel = (k) => k,
  placeName = (k) => k,
  placeGroup = () => "";

/* The band of a line where nothing else is asked for: its interval. */
const INTERVAL = [{ least: "lower", most: "upper", opacity: 0.16 }];

/* Lines with bands over positions. series: [{name, points: [{k, p, lower, upper}], colour, dash}].
   options: {log, xTitle, yTitle, missing: positions without an estimate, title,
   bands: [{name, least, most, opacity}], names of what bands lie between, the narrowest first}. */
function lineChart(width, series, options) {
  const small = width < 520,
    left = 46,
    right = 14;
  const svg = canvas(width, 10, options.title);
  const bands = options.bands || INTERVAL,
    top = drawLegend(svg, series, options.bands || [], width) + 22,
    height = top + (small ? 210 : 270) + 44,
    bottom = height - 44;
  svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
  svg.setAttribute("height", height);
  const points = series.flatMap((one) => one.points).filter((point) => point.p !== null);
  const missing = new Set(options.missing || []);
  const xs = [...new Set([...points.map((point) => point.k), ...missing])].sort((a, b) => a - b);
  if (!points.length) points.push({ k: xs[0], p: 1, lower: null, upper: null });
  const highest = Math.max(...points.map((point) => point.p));
  const ends = points.flatMap((point) => bands.map(({ most }) => point[most] ?? 0));
  const largest = Math.min(Math.max(highest, ...ends), 1.5 * highest);
  const lowest = Math.min(...points.filter((point) => point.p > 0).map((point) => point.p));
  const beneath = points.flatMap((point) => bands.map((band) => point[band.least] || Infinity));
  const least = Math.max(Math.min(lowest, ...beneath), lowest / (options.bands ? 10 : 3));
  const span = xs.length > 1 ? xs[xs.length - 1] - xs[0] : 1;
  const x = (k) => round(left + 8 + ((k - xs[0]) / span) * (width - left - right - 16));
  const y = options.log
    ? (p) => round(bottom - (Math.log(Math.max(p, 1e-300) / least) / (Math.log(largest / least) || 1)) * (bottom - top))
    : (p) => round(bottom - (p / largest) * (bottom - top));
  const ticks = options.log ? ticksBetween(least, largest) : ticksTo(largest, small ? 4 : 5);
  for (const tick of ticks) {
    svg.append(
      element("line", { x1: left, x2: width - right, y1: y(tick), y2: y(tick), class: tick ? "grid" : "axis" }),
    );
    const text = tick < 1e4 ? String(tick) : compact(tick);
    svg.append(label(left - 8, y(tick) + 4, text, { class: "tick", "text-anchor": "end" }));
  }
  let last = -Infinity;
  const written = placeLabel;
  const room = Math.max(24, ...xs.slice(0, 40).map((k) => 7 * Array.from(String(written(k))).length));
  for (const k of xs) {
    if (x(k) - last < room) continue;
    last = x(k);
    const text = missing.has(k) ? `${written(k)} ✗` : written(k);
    svg.append(
      label(x(k), bottom + 18, text, { class: missing.has(k) ? "tick bad" : "tick", "text-anchor": "middle" }),
    );
  }
  svg.append(label(width - right, bottom + 37, options.xTitle, { class: "title", "text-anchor": "end" }));
  svg.append(label(2, top - 12, options.yTitle, { class: "title" }));
  const clip = `clip-${(lineChart.count = (lineChart.count || 0) + 1)}`;
  svg.append(
    element(
      "clipPath",
      { id: clip },
      element("rect", { x: left, y: top - 4, width: width - left - right + 8, height: bottom - top + 9 }),
    ),
  );
  const marks = element("g", { "clip-path": `url(#${clip})` });
  svg.append(marks);
  series.forEach((one, i) => {
    const shown = one.points.filter((point) => point.p !== null),
      stroke = one.colour || colour(i);
    if (!shown.length) return;
    for (const name of new Set(shown.map((d) => placeGroup(d.k)))) {
      const own = shown.filter((d) => placeGroup(d.k) === name);
      for (const { least: low, most: high, opacity } of [...bands].reverse()) {
        const banded = own.filter((d) => d[low] !== null && d[high] !== null);
        const edge = [
          ...banded.map((d) => `${x(d.k)},${y(Math.min(d[high], 1e6))}`),
          ...[...banded].reverse().map((d) => `${x(d.k)},${y(d[low])}`),
        ];
        if (banded.length > 1)
          marks.append(element("path", { d: `M${edge.join("L")}Z`, style: `fill:${stroke}`, "fill-opacity": opacity }));
        else if (banded.length)
          marks.append(
            element("path", {
              d: `M${edge.join("L")}`,
              style: `stroke:${stroke}`,
              class: "line",
              ...(options.bands && { "stroke-opacity": 2 * opacity, style: `stroke:${stroke};stroke-width:${high === "most" ? 9 : 4}` }),
            }),
          );
      }
      marks.append(
        element("path", {
          d: `M${own.map((d) => `${x(d.k)},${y(d.p)}`).join("L")}`,
          style: `stroke:${stroke}`,
          class: "line",
          "stroke-dasharray": one.dash || "none",
        }),
      );
    }
    for (const d of shown) {
      const hollow = `fill:var(--paper);stroke:${d.wide ? "var(--bad)" : stroke};stroke-width:1.75`;
      const look = { r: xs.length > 40 ? 1.5 : d.note ? 4 : 3, style: d.note ? hollow : `fill:${stroke}` };
      marks.append(element("circle", { cx: x(d.k), cy: y(d.p), ...look }));
    }
  });
  const guide = element("line", { y1: top, y2: bottom, class: "guide", visibility: "hidden" });
  svg.append(guide);
  const hover = (px) => {
    const k = xs.reduce((best, each) => (Math.abs(x(each) - px) < Math.abs(x(best) - px) ? each : best), xs[0]);
    guide.setAttribute("x1", x(k));
    guide.setAttribute("x2", x(k));
    guide.setAttribute("visibility", "visible");
    const rows = series.map((one, i) => {
      const d = one.points.find((point) => point.k === k);
      const between = bands.filter(({ least, most }) => d && d[least] !== null && d[most] !== null),
        told = between.map((band) => `${options.bands ? `${band.name} ` : ""}${spell(d[band.least])} to ${spell(d[band.most])}`),
        ends = told.length ? ` (${told.join("; ")})` : "";
      const number = !d || d.p === null ? ((d && d.note) ?? "no estimate") : d.wide ? "cannot tell" : spell(d.p);
      const few = d && d.p !== null && d.note && !d.wide ? `, ${d.note}` : "";
      return {
        colour: one.colour || colour(i),
        text: `${isolate(shorten(one.name, 40))}: ${number}${ends}${few}`,
      };
    });
    return { x: x(k), title: `${options.xTitle} ${isolate(written(k))}`, rows };
  };
  return { svg, hover, leave: () => guide.setAttribute("visibility", "hidden") };
}

/* Horizontal bars. rows: [{name, value, text, hollow}]. */
function barChart(width, rows, options) {
  const step = 26,
    letter = 8.4, // wide ones, such as < and W, are in the names of columns, too
    names = Math.min(width * 0.42, 14 + letter * Math.max(...rows.map((row) => Array.from(row.name).length)));
  const height = rows.length * step + 34,
    svg = canvas(width, height, options.title);
  const largest = Math.max(...rows.map((row) => row.value), 1e-12),
    room = width - names - 64;
  rows.forEach((row, i) => {
    const y = i * step + 4,
      size = Math.max(1, (row.value / largest) * room),
      style = row.hollow ? `fill:none;stroke:${colour(0)}` : `fill:${colour(0)}`;
    const name = label(names - 10, y + 15, isolate(shorten(row.name, Math.floor((names - 14) / letter))), {
      class: "legend",
      "text-anchor": "end",
    });
    name.append(element("title", {}, row.name));
    svg.append(
      name,
      element("rect", { x: names, y, width: round(size), height: step - 7, rx: 2, style }),
    );
    svg.append(label(names + size + 8, y + 15, row.text, { class: "tick" }));
  });
  svg.append(label(width - 2, height - 8, options.xTitle, { class: "title", "text-anchor": "end" }));
  return { svg };
}
