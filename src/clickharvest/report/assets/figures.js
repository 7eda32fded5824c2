/* The figures: each draws itself at a width, and gives its numbers as a table. */

/* Effective clicks of position pairs; the lower triangle. */
function heatMap(width, diagnosis) {
  const positions = diagnosis.positions.slice(0, 60),
    n = positions.length,
    longest = Math.max(...positions.map((k) => Array.from(String(placeLabel(k))).length)),
    left = Math.max(40, 16 + 7 * Math.min(longest, 16));
  const size = Math.max(6, Math.min(44, (width - left - 6) / n)),
    top = 24,
    height = top + n * size + 40;
  const svg = canvas(width, height, "Effective clicks of every pair of positions");
  const at = new Map(positions.map((k, i) => [k, i])),
    linked = new Set(diagnosis.linked);
  const largest = Math.max(1, ...diagnosis.pairs.map((pair) => pair.effective_clicks));
  const strength = (value) => Math.sqrt(value / largest);
  const every = Math.ceil(18 / size);
  positions.forEach((k, i) => {
    const cross = linked.has(k) ? "" : " ✗",
      kind = linked.has(k) ? "tick" : "tick bad",
      middle = (i + 0.5) * size;
    if (i % every) return;
    const text = `${placeLabel(k)}${cross}`;
    svg.append(label(left - 7, round(top + middle + 4), text, { class: kind, "text-anchor": "end" }));
    if (i % Math.ceil((7 * longest) / size) && longest > 4) return;
    svg.append(label(round(left + middle), top + n * size + 16, text, { class: kind, "text-anchor": "middle" }));
  });
  for (let i = 0; i < n; i++) {
    for (let j = 0; j < i; j++)
      svg.append(
        element("rect", {
          x: round(left + j * size + 1),
          y: round(top + i * size + 1),
          width: round(size - 2),
          height: round(size - 2),
          rx: 2,
          class: "empty",
        }),
      );
  }
  for (const pair of diagnosis.pairs) {
    const i = at.get(pair.other),
      j = at.get(pair.position);
    if (i === undefined || j === undefined) continue;
    const depth = 0.08 + 0.92 * strength(pair.effective_clicks),
      x = left + j * size,
      y = top + i * size;
    const cell = element("rect", {
      x: round(x + 1),
      y: round(y + 1),
      width: round(size - 2),
      height: round(size - 2),
      rx: 2,
      style: `fill:${colour(0)}`,
      "fill-opacity": round(depth),
    });
    cell.append(
      element(
        "title",
        {},
        `${placeName(pair.position)} and ${placeName(pair.other)}: ${spell(pair.effective_clicks)} effective clicks of ${pair.units} documents`,
      ),
    );
    svg.append(cell);
    if (size >= 28)
      svg.append(
        label(round(x + size / 2), round(y + size / 2 + 4), compact(pair.effective_clicks), {
          class: depth > 0.62 ? "cell strong" : "cell",
          "text-anchor": "middle",
        }),
      );
  }
  svg.append(
    label(left + n * size, top + n * size + 34, diagnosis.upper, { class: "title", "text-anchor": "end" }),
    label(2, 13, diagnosis.lower, { class: "title" }),
  );
  return { svg };
}

/* Examination of the places of a grid of two numbers. */
function gridMap(width, points, places) {
  const axis = (i) => [...new Set(points.map((d) => places.grid[d.k][i]))].sort((a, b) => a - b);
  const rows = axis(0),
    columns = axis(1),
    left = 54,
    top = 30;
  const across = Math.min(110, (width - left - 6) / columns.length),
    down = Math.min(46, Math.max(16, across));
  const height = top + rows.length * down + 42,
    svg = canvas(width, height, `Examination by ${places.columns.join(" and ")}`);
  const largest = Math.max(...points.map((d) => d.p ?? 0), 1e-12);
  columns.forEach((value, j) => {
    if (j % Math.ceil(22 / across)) return;
    svg.append(
      label(round(left + (j + 0.5) * across), top + rows.length * down + 17, value, {
        class: "tick",
        "text-anchor": "middle",
      }),
    );
  });
  rows.forEach((value, i) =>
    svg.append(label(left - 8, round(top + (i + 0.5) * down + 4), value, { class: "tick", "text-anchor": "end" })),
  );
  for (const d of points) {
    const [row, column] = places.grid[d.k],
      x = left + columns.indexOf(column) * across,
      y = top + rows.indexOf(row) * down,
      depth = d.p === null ? 0 : 0.06 + 0.94 * Math.sqrt(d.p / largest);
    const cell = element("rect", {
      x: round(x + 1),
      y: round(y + 1),
      width: round(across - 2),
      height: round(down - 2),
      rx: 2,
      ...(d.p === null ? { class: "empty" } : { style: `fill:${colour(0)}`, "fill-opacity": round(depth) }),
    });
    const ends = d.lower === null ? "" : ` (${spell(d.lower)} to ${spell(d.upper)})`;
    const told = d.p === null ? (d.note ?? "no estimate") : spell(d.p) + ends;
    cell.append(element("title", {}, `${places.names[d.k]}: ${told}`));
    svg.append(cell);
    if (across >= 34)
      svg.append(
        label(round(x + across / 2), round(y + down / 2 + 4), d.p === null ? "✗" : d.wide ? "?" : d.p.toFixed(2), {
          class: d.p === null ? "tick bad" : depth > 0.62 ? "cell strong" : "cell",
          "text-anchor": "middle",
        }),
      );
  }
  svg.append(
    label(round(left + columns.length * across), height - 6, places.columns[1], { class: "title", "text-anchor": "end" }),
    label(2, 16, places.columns[0], { class: "title" }),
  );
  return { svg };
}

/* The position graph: arcs between positions with common documents, positions without a link hollow and crossed. */
function graphChart(width, diagnosis) {
  const positions = diagnosis.positions,
    linked = new Set(diagnosis.linked),
    n = positions.length;
  const longest = Math.max(...positions.map((k) => Array.from(String(placeLabel(k))).length)),
    edge = Math.max(15, Math.min(60, 3.5 * longest));
  const slot = (width - 2 * edge) / Math.max(n - 1, 1),
    x = (k) => round(edge + positions.indexOf(k) * slot);
  const tallest = Math.min(170, Math.max(60, width / 4)),
    base = tallest + 24,
    svg = canvas(width, base + 44, "Which positions common documents link");
  const pairs = [...diagnosis.pairs].sort((a, b) => b.effective_clicks - a.effective_clicks).slice(0, 150);
  const largest = Math.max(1, ...pairs.map((pair) => pair.effective_clicks));
  for (const pair of pairs.reverse()) {
    const from = x(pair.position),
      to = x(pair.other),
      share = Math.log1p(pair.effective_clicks) / Math.log1p(largest);
    const rise = Math.max(14, tallest * Math.sqrt((to - from) / (width - 30)) * 1.3),
      both = pair.clicks > 0 && pair.other_clicks > 0;
    const arc = element("path", {
      d: `M${from},${base}C${from},${round(base - rise)} ${to},${round(base - rise)} ${to},${base}`,
      class: "arc",
      "stroke-width": round(0.6 + 3.4 * share),
      "stroke-opacity": round(0.15 + 0.5 * share),
    });
    arc.setAttribute("style", `stroke:${both ? colour(0) : "var(--bad)"}`);
    if (!both) arc.setAttribute("stroke-dasharray", "4 4");
    arc.append(
      element(
        "title",
        {},
        `${placeName(pair.position)} and ${placeName(pair.other)}: ${spell(pair.effective_clicks)} effective clicks${both ? "" : ", on one side only"}`,
      ),
    );
    svg.append(arc);
  }
  const every = Math.ceil(Math.max(18, 7 * longest) / slot);
  positions.forEach((k, i) => {
    const is = linked.has(k),
      node = element("circle", { cx: x(k), cy: base, r: Math.min(7, Math.max(3, slot / 3)), "stroke-width": 2 });
    node.setAttribute(
      "style",
      is
        ? `fill:${k === diagnosis.anchor ? "var(--ink)" : colour(0)};stroke:var(--paper)`
        : "fill:var(--paper);stroke:var(--bad)",
    );
    svg.append(node);
    if (i % every === 0 || !is)
      svg.append(
        label(x(k), base + 25, is ? placeLabel(k) : `${placeLabel(k)} ✗`, { class: is ? "tick" : "tick bad", "text-anchor": "middle" }),
      );
  });
  svg.append(label(width - 2, base + 42, diagnosis.what, { class: "title", "text-anchor": "end" }));
  return { svg };
}

/* A curve's rows: position, propensity, lower, upper, what to know of it. */
const curveRows = (series) => [
  ["curve", "position", "propensity", "lower", "upper", "note"],
  ...series.flatMap((one) => one.points.map((d) => [one.name, placeName(d.k), d.p, d.lower, d.upper, d.note ?? null])),
];

/* Positions as people write them: 1-3, 7. */
function spellPositions(positions) {
  const runs = [];
  for (const k of positions) {
    if (runs.length && runs[runs.length - 1][1] === k - 1) runs[runs.length - 1][1] = k;
    else runs.push([k, k]);
  }
  return runs.map(([from, to]) => (from === to ? from : `${from}-${to}`)).join(", ");
}

/* What is to be known of a curve's points, each thing once. */
function curveNotes(points) {
  const where = new Map();
  for (const point of points) if (point.note) where.set(point.note, [...(where.get(point.note) || []), point.k]);
  return [...where].map(([note, positions]) => {
    if (positions.length === points.length) return `${note[0].toUpperCase()}${note.slice(1)}.`;
    if (data.places) return `${positions.map((k) => data.places.names[k]).join("; ")}: ${note}.`;
    return `Position${positions.length > 1 ? "s" : ""} ${spellPositions(positions)}: ${note}.`;
  });
}

function makeFigures(data, state) {
  const what = data.places ? data.places.columns.join(", ") : "position",
    anchor = data.places ? data.places.names[data.model.anchor] : `position ${data.model.anchor}`;
  const relative = `examination relative to ${anchor}`,
    figures = {};
  const unlinked = data.model.shown.filter((k) => !data.model.positions.includes(k));
  const curves = (id, title, series, more = {}) => {
    const draw = (width) => {
      const drawn = series(),
        lost = more.notes ? drawn[0].points.filter((point) => point.p === null).map((point) => point.k) : [];
      const missing = [...unlinked, ...lost];
      return lineChart(width, drawn, { log: state.log, missing, xTitle: what, yTitle: relative, title });
    };
    figures[id] = { draw, rows: () => curveRows(series()), ...more };
  };
  curves("curves", "Examination by position in the chosen context", () => state.series(), {
    notes: () => curveNotes(state.series()[0].points),
  });
  if (data.places && data.places.grid) {
    const points = () => state.series()[0].points;
    figures.places = {
      draw: (width) => gridMap(width, points(), data.places),
      rows: () => [
        [...data.places.columns, "propensity", "lower", "upper"],
        ...points().map((d) => [...data.places.grid[d.k], d.p, d.lower, d.upper]),
      ],
    };
  }
  if (data.columns.length) {
    curves("segments", "Examination by position and segment", () => state.segments());
    const top = data.importance.slice(0, 20);
    figures.importance = {
      draw: (width) =>
        barChart(
          width,
          top.map((d) => ({
            name: d.column,
            value: d.effect,
            text: `×${Math.exp(d.effect).toFixed(2)}`,
            hollow: !d.clear,
          })),
          { xTitle: "mean |Δ log examination| between two values", title: "Columns that move examination" },
        ),
      rows: () => [
        ["column", "mean_abs_log_ratio", "beyond_chance"],
        ...data.importance.map((d) => [d.column, d.effect, d.clear]),
      ],
    };
  }
  if (data.diagnosis) {
    const linked = new Set(data.diagnosis.linked),
      own = new Map(data.diagnosis.overlaps.map((d) => [d.position, d]));
    const bars = data.diagnosis.positions.map((k) => ({
      k,
      value: own.has(k) ? own.get(k).effective : 0,
      marked: !linked.has(k),
    }));
    const pairs = () => [
      ["position", "other", "units", "clicks", "other_clicks", "effective_clicks"],
      ...data.diagnosis.pairs.map((d) => [
        placeName(d.position),
        placeName(d.other),
        d.units,
        d.clicks,
        d.other_clicks,
        d.effective_clicks,
      ]),
    ];
    const words = data.places ? ["", ""] : ["upper position", "lower position"],
      told = { ...data.diagnosis, what, upper: words[0], lower: words[1] };
    figures.overlap = { draw: (width) => heatMap(width, told), rows: pairs };
    figures.graph = { draw: (width) => graphChart(width, told), rows: pairs };
    figures.effective = {
      draw: (width) =>
        columnChart(width, bars, {
          xTitle: what,
          yTitle: "effective clicks",
          title: "Effective clicks by position",
        }),
      rows: () => [["position", "effective_clicks", "linked"], ...bars.map((d) => [placeName(d.k), d.value, !d.marked])],
    };
  }
  if (data.traffic) {
    // Beyond, a plan calls it never.
    const MOST_TIMES = 1e4;
    const { days, segments, unlinked } = data.traffic,
      unit = days ?? 1,
      positions = segments[0].points.map((d) => d.k);
    const series = segments.map(({ name, points }) => ({
      name,
      points: points.map((d) => ({
        k: d.k,
        p: d.times === null ? null : d.times * unit,
        lower: d.times === null || d.most === d.least ? null : d.least * unit,
        upper: d.times === null || d.most === d.least ? null : (d.most ?? MOST_TIMES) * unit,
        note: d.times === null ? "never with these queries" : undefined,
      })),
    }));
    const own = positions.map((k) => ({ k, p: unit, lower: null, upper: null }));
    series.push({ name: "this log", points: own, colour: "var(--soft)", dash: "5 4" });
    figures.traffic = {
      draw: (width) =>
        lineChart(width, series, {
          log: true,
          missing: unlinked,
          xTitle: "position",
          yTitle: days === null ? "times as much traffic" : "days of such traffic",
          title: "Traffic that the wanted precision takes, by position",
        }),
      rows: () => [
        ["segment", "position", "half_width_now", "times_as_much", "at_least", "at_most", "days"],
        ...segments.flatMap(({ name, points }) =>
          points.map((d) => [
            name,
            d.k,
            d.margin,
            d.times,
            d.least,
            d.most,
            d.times === null || days === null ? null : d.times * days,
          ]),
        ),
      ],
    };
  }
  if (data.comparison) {
    const look = {
      model: { colour: colour(0) },
      pbm: { colour: colour(2) },
      rates: { colour: colour(1), dash: "3 4" },
    };
    curves("comparison", "Estimates side by side", () => data.comparison.map((one) => ({ ...one, ...look[one.kind] })));
  }
  if (data.sensitivity && data.sensitivity.length) {
    const look = [{ colour: colour(0) }, { colour: colour(1), dash: "3 4" }, { colour: colour(2), dash: "7 4" }];
    curves("sensitivity", "The curve with other penalties", () =>
      data.sensitivity.map((one, i) => ({ ...one, ...look[i] })),
    );
  }
  if (data.clipping && data.clipping.length) {
    const line = (name, key) => ({
      name,
      points: data.clipping.map((d, i) => ({ k: i, p: d[key], lower: null, upper: null })),
    });
    const series = [
      line("effective sample size, share of the clicks", "share"),
      line("share of clicks that are clipped", "clipped"),
    ];
    figures.clipping = {
      draw: (width) =>
        lineChart(width, series, {
          xTitle: "floor of the propensity",
          yTitle: "share of clicks",
          percent: true,
          ticks: (i) => data.clipping[i].clip || "none",
          title: "Effective sample size by clipping",
        }),
      rows: () => [
        ["clip", "effective_sample_size", "share_of_clicks", "share_clipped", "largest_weight"],
        ...data.clipping.map((d) => [d.clip, d.effective, d.share, d.clipped, d.largest]),
      ],
    };
  }
  return figures;
}
