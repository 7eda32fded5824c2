/* The figures: each draws itself at a width, and gives its numbers as a table. */

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
  const told = data.budget.some((d) => d.most !== null),
    known = data.budget.some((d) => d.lower !== null);
  figures.budget = {
    draw: (width) => {
      const bands = [
        ...(known ? [{ name: `${data.model.level * 100} % interval`, least: "lower", most: "upper", opacity: 0.34 }] : []),
        ...(told ? [{ name: "budget", least: "least", most: "most", opacity: 0.15 }] : []),
      ];
      const missing = data.budget.filter((d) => d.p === null).map((d) => d.k),
        title = "The curve with its interval and its budget";
      const yTitle = `${relative}, logarithmic`;
      return lineChart(width, [{ name: "curve", points: data.budget }], { log: true, bands, missing, xTitle: what, yTitle, title });
    },
    rows: () => [
      ["position", "propensity", "lower", "upper", "budget_from", "budget_to", "state"],
      ...data.budget.map((d) => [placeName(d.k), d.p, d.lower, d.upper, d.least, d.most, d.state]),
    ],
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
        note: d.times === null ? "needs more queries" : undefined,
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
  return figures;
}
