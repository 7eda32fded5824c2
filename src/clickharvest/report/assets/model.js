"use strict";
/* The model: its program with its parameters, and intervals from the draws. x has d features, K positions. */

function decode(text, Type) {
  const characters = atob(text),
    bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return new Type(bytes.buffer);
}

class Model {
  constructor(packed) {
    this.positions = packed.positions;
    this.shown = packed.shown;
    this.z = packed.z;
    this.limits = packed.limits;
    this.beside = packed.beside;
    this.untold = packed.untold;
    this.doubts = packed.doubts;
    this.apart = packed.apart;
    this.never = new Set(this.apart.flatMap(({ columns: [i, j], pairs }) => pairs.map(([a, b]) => [i, a, j, b].join())));
    this.features = packed.features;
    this.K = packed.positions.length;
    this.params = decode(packed.params, Float64Array);
    this.program = new Program(packed.program, packed.layout, this.params.length, packed.features);
    this.ofDraws = packed.program_of_draws
      ? new Program(packed.program_of_draws, packed.layout, this.params.length, packed.features)
      : this.program;
    this.draws = packed.draws && this.unpack(packed.draws);
  }

  /* The draws as one array [B, n]; each value is low + step · q, with the q that was stored. */
  unpack(packed) {
    const n = this.params.length,
      steps = decode(packed.steps, packed.bits === 8 ? Uint8Array : Uint16Array);
    const low = decode(packed.low, Float64Array),
      step = decode(packed.step, Float64Array);
    const values = new Float64Array(steps.length);
    for (let i = 0, j = 0; i < steps.length; i++, j = j + 1 === n ? 0 : j + 1) values[i] = low[j] + step[j] * steps[i];
    return values;
  }

  /* p_k(x) / p_anchor(x) with the interval exp(log p ± z sd), sd over the draws; null where there is no estimate.
     wide: whether its state is cannot tell; note: what to know of the number. */
  predict(x) {
    this.program.begin(x);
    if (this.ofDraws !== this.program) this.ofDraws.begin(x);
    const logP = this.program.run(this.params).slice(),
      sd = this.draws ? this.spread() : null;
    return this.shown.map((k) => {
      const i = this.positions.indexOf(k),
        margin = sd && i >= 0 ? this.z * sd[i] : null;
      const lower = margin === null ? null : Math.exp(logP[i] - margin),
        upper = margin === null ? null : Math.exp(logP[i] + margin);
      const wide = i >= 0 && (margin ?? 0) > this.limits[i];
      const beside = this.beside.find((each) => each.at === k && (each.feature === null || x[each.feature] !== 0));
      const note = wide ? this.untold : (beside?.note ?? null);
      return { k, p: i >= 0 ? Math.exp(logP[i]) : null, lower, upper, wide, note };
    });
  }

  /* The same for chosen values [{features, value, doubts: [{why, at}]}], without numbers that the data do not support. */
  predictSupported(x, choices) {
    const points = this.predict(x),
      apart = this.apart.filter(({ columns: [i, j] }) => this.areApart(i, choices[i], j, choices[j])),
      never = apart.map(({ why }) => ({ why, at: this.shown })),
      doubts = [...this.doubts, ...choices.flatMap((choice) => choice.doubts), ...never];
    return points.map((point) => {
      const found = doubts.find((doubt) => doubt.at.includes(point.k));
      if (!found) return point;
      return { k: point.k, p: null, lower: null, upper: null, wide: false, note: `not supported: ${found.why}` };
    });
  }

  /* Whether training never had two choices, of columns i and j, together. */
  areApart(i, one, j, other) {
    return this.never.has((i < j ? [i, one.value, j, other.value] : [j, other.value, i, one.value]).join());
  }

  /* The standard deviation of log p_k over the draws, [K], in the context that the programs have begun with. */
  spread() {
    const n = this.params.length,
      count = this.draws.length / n,
      values = new Float64Array(count * this.K);
    const mean = new Float64Array(this.K),
      squares = new Float64Array(this.K);
    for (let b = 0; b < count; b++) {
      const logP = this.ofDraws.run(this.draws.subarray(b * n, (b + 1) * n));
      values.set(logP, b * this.K);
      for (let k = 0; k < this.K; k++) mean[k] += logP[k] / count;
    }
    for (let i = 0; i < values.length; i += this.K)
      for (let k = 0; k < this.K; k++) squares[k] += (values[i + k] - mean[k]) ** 2;
    return squares.map((square) => Math.sqrt(square / (count - 1)));
  }
}
