"use strict";
/* The program of a curve, as clickharvest.model.trace noted it, for one context at a time.

   Every step has an array of its own, made once. What depends on neither context nor parameters is computed when the
   program is made, what depends on the context alone when it begins with one, and the rest for every draw. */

/* Each operation has a loop of its own, which browsers compile to faster code than one loop for all of them. */
const UNARY = {
  abs(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.abs(a[i]);
  },
  exp(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.exp(a[i]);
  },
  expm1(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.expm1(a[i]);
  },
  log(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.log(a[i]);
  },
  log1p(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.log1p(a[i]);
  },
  negative(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = -a[i];
  },
  sqrt(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.sqrt(a[i]);
  },
  tanh(out, a) {
    for (let i = 0; i < out.length; i++) out[i] = Math.tanh(a[i]);
  },
};
/* Of two arrays; the strides s and t are 1, or 0 for an array of one number. */
const BINARY = {
  add(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = a[i * s] + b[i * t];
  },
  subtract(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = a[i * s] - b[i * t];
  },
  multiply(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = a[i * s] * b[i * t];
  },
  divide(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = a[i * s] / b[i * t];
  },
  power(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = a[i * s] ** b[i * t];
  },
  maximum(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = Math.max(a[i * s], b[i * t]);
  },
  minimum(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) out[i] = Math.min(a[i * s], b[i * t]);
  },
  logaddexp(out, a, b, s, t) {
    for (let i = 0; i < out.length; i++) {
      const p = a[i * s],
        q = b[i * t];
      out[i] = Math.max(p, q) + Math.log1p(Math.exp(-Math.abs(p - q)));
    }
  },
};
/* Along the last axis: from what came so far and the next number; where it begins; whether every step is kept. */
const ALONG = {
  sum: [(a, b) => a + b, 0, false],
  max: [Math.max, -Infinity, false],
  cumsum: [(a, b) => a + b, 0, true],
};
const FIXED = 0,
  OF_CONTEXT = 1,
  OF_PARAMETERS = 2;

const product = (sides) => sides.reduce((a, b) => a * b, 1);

/* For every number of an array of `sides` its place in one of `shape`; `find` turns an index of the first into one of
   the second. */
function places(sides, shape, find) {
  const found = new Uint32Array(product(sides)),
    index = sides.map(() => 0);
  for (let i = 0; i < found.length; i++) {
    found[i] = find(index).reduce((at, j, axis) => at * shape[axis] + j, 0);
    for (let axis = sides.length - 1; axis >= 0 && ++index[axis] === sides[axis]; axis--) index[axis] = 0;
  }
  return found;
}

function multiplyMatrices(out, a, b, inner, columns) {
  for (let r = 0, from = 0; from < out.length; r += inner, from += columns) {
    for (let j = 0; j < columns; j++) out[from + j] = 0;
    for (let i = 0; i < inner; i++) {
      const factor = a[r + i];
      if (factor === 0) continue;
      for (let j = 0, at = i * columns; j < columns; j++) out[from + j] += factor * b[at + j];
    }
  }
}

/* The same where there is one column. */
function multiplyVector(out, a, b, inner) {
  for (let r = 0; r < out.length; r++) {
    let sum = 0;
    for (let i = 0, at = r * inner; i < inner; i++) sum += a[at + i] * b[i];
    out[r] = sum;
  }
}

class Program {
  constructor(steps, layout, parameters, features) {
    this.params = new Float64Array(parameters);
    this.x = new Float64Array(features);
    this.layout = layout;
    this.acts = [[], [], []];
    const values = [];
    for (const step of steps) {
      const of = step.of.map((i) => values[i]);
      values.push({ shape: step.shape, ...this.prepare(step, of, product(step.shape)) });
    }
    this.result = values[values.length - 1].array;
    for (const act of this.acts[FIXED]) act();
  }

  /* Begin with a context; `run` then gives the result for parameters, in an array that the next run overwrites. */
  begin(x) {
    this.x.set(x);
    for (const act of this.acts[OF_CONTEXT]) act();
  }

  run(params) {
    this.params.set(params);
    for (const act of this.acts[OF_PARAMETERS]) act();
    return this.result;
  }

  /* The array of a step and what it depends on; what is to be done for it is added to the acts. */
  prepare(step, of, size) {
    const [a, b] = of;
    switch (step.op) {
      case "input":
        return { array: this.x, stage: OF_CONTEXT };
      case "parameter":
        return this.view(this.params, this.layout[step.name], size, OF_PARAMETERS);
      case "constant":
        return { array: Float64Array.from(step.value), stage: FIXED };
      case "full_like":
        return { array: new Float64Array(size).fill(step.fill), stage: FIXED };
      case "squeeze":
      case "expand":
        return { array: a.array, stage: a.stage };
      case "slice": {
        const begin = a.shape.map(() => 0);
        for (const [axis, from] of step.ranges) begin[axis] = from;
        return this.gather(a, places(step.shape, a.shape, (index) => index.map((i, axis) => i + begin[axis])));
      }
      case "transpose":
        return this.gather(a, places(step.shape, a.shape, ([i, j]) => [j, i]));
      case "concatenate":
        return this.concatenate(of, size, step.shape[step.shape.length - 1]);
      case "matmul": {
        const inner = b.shape[0],
          columns = b.shape.length === 1 ? 1 : b.shape[1],
          multiply = columns === 1 ? multiplyVector : multiplyMatrices;
        return this.add(of, size, (out) => () => multiply(out, a.array, b.array, inner, columns));
      }
    }
    if (step.op in ALONG) return this.along(step.op, a, size);
    if (step.op in UNARY) {
      const loop = UNARY[step.op];
      return this.add(of, size, (out) => () => loop(out, a.array));
    }
    const loop = BINARY[step.op],
      [left, right] = of.map((value) => this.broadcast(value, step.shape, size)),
      [s, t] = [left, right].map((array) => (array.length === 1 ? 0 : 1));
    return this.add(of, size, (out) => () => loop(out, left, right, s, t));
  }

  /* A new array, and what is to be done to fill it: `make` returns that, given the array. */
  add(of, size, make) {
    const array = new Float64Array(size),
      stage = Math.max(...of.map((value) => value.stage));
    this.acts[stage].push(make(array));
    return { array, stage };
  }

  view(array, begin, size, stage) {
    return { array: array.subarray(begin, begin + size), stage };
  }

  /* Numbers from these places; where they lie together they are looked at, not copied. */
  gather(a, found) {
    const from = a.array;
    if (found.every((place, i) => place === found[0] + i)) {
      return this.view(from, found.length ? found[0] : 0, found.length, a.stage);
    }
    return this.add([a], found.length, (out) => () => {
      for (let i = 0; i < out.length; i++) out[i] = from[found[i]];
    });
  }

  /* An operand as it is if it has the size of the result or is one number, else repeated to that size. */
  broadcast(value, shape, size) {
    if (value.array.length === size || value.array.length === 1) return value.array;
    const missing = shape.length - value.shape.length,
      find = (index) => value.shape.map((side, axis) => (side === 1 ? 0 : index[axis + missing]));
    return this.gather(value, places(shape, value.shape, find)).array;
  }

  concatenate(of, size, columns) {
    let begin = 0;
    const parts = of.map(({ array, shape }) => {
      const width = shape[shape.length - 1];
      begin += width;
      return { array, width, begin: begin - width };
    });
    return this.add(of, size, (out) => () => {
      for (let p = 0; p < parts.length; p++) {
        const { array, width, begin } = parts[p];
        for (let i = 0, at = begin, j = 0; i < array.length; i++) {
          out[at + j] = array[i];
          if (++j < width) continue;
          j = 0;
          at += columns;
        }
      }
    });
  }

  along(op, a, size) {
    const [f, start, kept] = ALONG[op],
      from = a.array,
      side = a.shape[a.shape.length - 1];
    return this.add([a], size, (out) => () => {
      for (let begin = 0, row = 0; begin < from.length; begin += side, row++) {
        let so = start;
        for (let i = 0; i < side; i++) {
          so = f(so, from[begin + i]);
          if (kept) out[begin + i] = so;
        }
        if (!kept) out[row] = so;
      }
    });
  }
}
