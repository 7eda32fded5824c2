"use strict";
/* The model: the formulas of clickharvest.model.curves, and intervals from the draws. x has d features, K positions. */

function decode(text, Type) {
  const characters = atob(text),
    bytes = new Uint8Array(characters.length);
  for (let i = 0; i < bytes.length; i++) bytes[i] = characters.charCodeAt(i);
  return new Type(bytes.buffer);
}

const softplus = (z) => Math.max(z, 0) + Math.log1p(Math.exp(-Math.abs(z)));
const logSigmoid = (z) => -softplus(-z);

/* Σ_i x_i M[i, j] of a row-major matrix M [d, columns] that begins at `begin`, added to `sums`. */
function addProduct(t, begin, x, columns, sums) {
  for (let i = 0; i < x.length; i++) {
    if (x[i] === 0) continue;
    for (let j = 0, at = begin + i * columns; j < columns; j++) sums[j] += x[i] * t[at + j];
  }
  return sums;
}

const copy = (t, begin, n) => Float64Array.from({ length: n }, (_, i) => t[begin + i]);

/* Each curve: (model m, parameters t with layout m.at, context x, out [K]) → log p_k(x) up to a term of x alone. */
const CURVES = {
  constant(m, t, x, out) {
    m.anchored(copy(t, m.at.b, m.K - 1), out);
  },
  power(m, t, x, out) {
    const line = addProduct(t, m.at.w, x, 1, [0])[0] + t[m.at.a];
    const steepness = softplus(m.sharpness * line) / m.sharpness;
    m.anchored(
      m.logDistance.map((distance) => -steepness * distance),
      out,
    );
  },
  linear(m, t, x, out) {
    m.anchored(addProduct(t, m.at.W, x, m.K - 1, copy(t, m.at.b, m.K - 1)), out);
  },
  lowrank(m, t, x, out) {
    const mix = addProduct(t, m.at.u, x, m.spec.rank, new Float64Array(m.spec.rank));
    m.anchored(addProduct(t, m.at.V, mix, m.K - 1, copy(t, m.at.b, m.K - 1)), out);
  },
  mlp(m, t, x, out) {
    let response = x;
    if (m.spec.width) {
      const hidden = addProduct(t, m.at.A, x, m.spec.width, copy(t, m.at.a, m.spec.width));
      response = hidden.map((z) => Math.exp(logSigmoid(z)));
    }
    const logits = addProduct(t, m.at.v, response, m.K, copy(t, m.at.c, m.K));
    for (let k = 0; k < m.K; k++) out[k] = logSigmoid(logits[k]);
  },
  recurrent(m, t, x, out) {
    const width = m.spec.width,
      context = addProduct(t, m.at.A, x, width, copy(t, m.at.a, width));
    let reader = context.map(Math.tanh);
    out[0] = 0;
    for (let j = 0; j < m.K - 1; j++) {
      out[j + 1] = out[j] + logSigmoid(addProduct(t, m.at.v, reader, 1, [t[m.at.c + j]])[0]);
      reader = addProduct(t, m.at.B, reader, width, context.slice()).map(Math.tanh);
    }
  },
  position(m, t, x, out) {
    const width = m.spec.width,
      context = addProduct(t, m.at.A, x, width, copy(t, m.at.a, width));
    for (let k = 0; k < m.K; k++) {
      out[k] = t[m.at.c + k];
      for (let i = 0; i < width; i++) out[k] += t[m.at.v + i] * Math.tanh(context[i] + t[m.at.phi + k * width + i]);
    }
  },
};

class Model {
  constructor(packed) {
    this.spec = packed.curve;
    this.at = packed.layout;
    this.sharpness = packed.sharpness;
    this.positions = packed.positions;
    this.shown = packed.shown;
    this.anchor = packed.anchor;
    this.z = packed.z;
    this.features = packed.features;
    this.K = packed.positions.length;
    this.anchorIndex = packed.positions.indexOf(packed.anchor);
    this.logDistance = packed.positions.filter((k) => k !== packed.anchor).map((k) => Math.log(k / packed.anchor));
    this.params = decode(packed.params, Float64Array);
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

  anchored(others, out) {
    for (let k = 0, j = 0; k < this.K; k++) out[k] = k === this.anchorIndex ? 0 : others[j++];
  }

  relative(t, x) {
    const out = new Float64Array(this.K);
    CURVES[this.spec.name](this, t, x, out);
    const anchor = out[this.anchorIndex];
    for (let k = 0; k < this.K; k++) out[k] -= anchor;
    return out;
  }

  /* p_k(x) / p_anchor(x) with the interval exp(log p ± z sd), sd over the draws; null where there is no estimate. */
  predict(x) {
    const logP = this.relative(this.params, x),
      sd = this.draws ? this.spread(x) : null;
    return this.shown.map((k) => {
      const i = this.positions.indexOf(k),
        margin = sd && i >= 0 ? this.z * sd[i] : null;
      return {
        k,
        p: i >= 0 ? Math.exp(logP[i]) : null,
        lower: margin === null ? null : Math.exp(logP[i] - margin),
        upper: margin === null ? null : Math.exp(logP[i] + margin),
      };
    });
  }

  spread(x) {
    const n = this.params.length,
      count = this.draws.length / n;
    const values = [],
      mean = new Float64Array(this.K),
      squares = new Float64Array(this.K);
    for (let b = 0; b < count; b++) {
      const logP = this.relative(this.draws.subarray(b * n, (b + 1) * n), x);
      values.push(logP);
      for (let k = 0; k < this.K; k++) mean[k] += logP[k] / count;
    }
    for (const logP of values) for (let k = 0; k < this.K; k++) squares[k] += (logP[k] - mean[k]) ** 2;
    return squares.map((square) => Math.sqrt(square / (count - 1)));
  }
}
