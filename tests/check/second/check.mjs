// A second checker of three mechanisms (gaussian, laplace, response), from docs/reference/format.md.
// Whole numbers alone: an interval [lo, hi] of 2^-BITS, every operation rounded outwards.
// node check.mjs < vectors.jsonl prints one verdict a line.
import { readFileSync } from "node:fs";

const BITS = 320n, ONE = 1n << BITS;

// Fractions {n, d}, d > 0, read exactly from decimals.
function fraction(text) {
  if (typeof text !== "string" || !/^-?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]{1,4})?$/.test(text))
    throw new Error("refused: a decimal number");
  const [mantissa, power = "0"] = text.toLowerCase().split("e");
  const [whole, part = ""] = mantissa.split(".");
  const shift = BigInt(power) - BigInt(part.length), digits = BigInt(whole + part);
  return shift >= 0n ? { n: digits * 10n ** shift, d: 1n } : { n: digits, d: 10n ** -shift };
}
const F = (n, d = 1n) => ({ n: BigInt(n), d: BigInt(d) });
const fadd = (a, b) => ({ n: a.n * b.d + b.n * a.d, d: a.d * b.d });
const fmul = (a, b) => ({ n: a.n * b.n, d: a.d * b.d });
const fsub = (a, b) => fadd(a, { n: -b.n, d: b.d });
const fdiv = (a, b) => (b.n < 0n ? { n: -a.n * b.d, d: -a.d * b.n } : { n: a.n * b.d, d: a.d * b.n });
const fcmp = (a, b) => { const x = a.n * b.d - b.n * a.d; return x < 0n ? -1 : x > 0n ? 1 : 0; };

// Intervals.
const floor = (a, b) => { const q = a / b; return a % b !== 0n && (a < 0n) !== (b < 0n) ? q - 1n : q; };
const ceil = (a, b) => -floor(-a, b);
const of = (f) => ({ lo: floor(f.n << BITS, f.d), hi: ceil(f.n << BITS, f.d) });
const whole = (k) => ({ lo: BigInt(k) << BITS, hi: BigInt(k) << BITS });
const add = (a, b) => ({ lo: a.lo + b.lo, hi: a.hi + b.hi });
const neg = (a) => ({ lo: -a.hi, hi: -a.lo });
const sub = (a, b) => add(a, neg(b));
const least = (...all) => all.reduce((a, b) => (a < b ? a : b));
const most = (...all) => all.reduce((a, b) => (a > b ? a : b));
function mul(a, b) {
  const all = [a.lo * b.lo, a.lo * b.hi, a.hi * b.lo, a.hi * b.hi];
  return { lo: least(...all) >> BITS, hi: -(-most(...all) >> BITS) };
}
function div(a, b) {
  if (b.lo <= 0n) throw new Error("refused: a division by what may be 0");
  return {
    lo: least(floor(a.lo << BITS, b.hi), floor(a.lo << BITS, b.lo)),
    hi: most(ceil(a.hi << BITS, b.lo), ceil(a.hi << BITS, b.hi)),
  };
}
const max = (a, b) => ({ lo: most(a.lo, b.lo), hi: most(a.hi, b.hi) });
function root(n) {
  if (n < 2n) return n;
  let x = 1n << BigInt((n.toString(2).length + 1) >> 1);
  for (;;) { const y = (x + n / x) >> 1n; if (y >= x) return x; x = y; }
}
const sqrt = (a) => ({ lo: root(a.lo << BITS), hi: root(a.hi << BITS) + 1n });

// e^x by halving, Taylor's series on |y| <= 2^-4 and squaring again.
function expPoint(x) {
  let y = x, halvings = 0n;
  while (most(y, -y) > ONE >> 4n) { halvings += 1n; y = x >> halvings; }
  // y is within one unit of x/2^halvings
  const argument = { lo: y, hi: y + 1n };
  let term = whole(1), total = whole(1);
  for (let k = 1; k < 100; k++) {
    term = div(mul(term, argument), whole(k));
    total = add(total, term);
  }
  // what is left is below the last term
  const rest = most(term.hi, -term.lo) + 1n;
  total = { lo: total.lo - rest, hi: total.hi + rest };
  for (let k = 0n; k < halvings; k++) total = mul(total, total);
  return total;
}
const exp = (a) => ({ lo: most(0n, expPoint(a.lo).lo), hi: expPoint(a.hi).hi });

// ln of a fraction: bisection of e^x, which increases.
function log(f) {
  const value = of(f);
  let lo = -64n * ONE, hi = 64n * ONE;
  for (let k = 0; k < 300; k++) {
    const middle = (lo + hi) >> 1n, e = expPoint(middle);
    if (e.hi < value.lo) lo = middle;
    else if (e.lo > value.hi) hi = middle;
    else {
      // too near to be told apart: a little to either side is
      const near = middle - (1n << 40n), far = middle + (1n << 40n);
      if (expPoint(near).hi < value.lo && expPoint(far).lo > value.hi) return { lo: near, hi: far };
      break;
    }
  }
  return { lo, hi };
}

// π = 16 atan(1/5) − 4 atan(1/239), each series alternating.
function atanInverse(q) {
  let total = whole(0), power = div(whole(1), whole(q));
  for (let k = 0; k < 300; k++) {
    const term = div(power, whole(2 * k + 1));
    total = k % 2 ? sub(total, term) : add(total, term);
    power = div(power, whole(q * q));
  }
  return { lo: total.lo - power.hi - 1n, hi: total.hi + power.hi + 1n };
}
const PI = sub(mul(whole(16), atanInverse(5)), mul(whole(4), atanInverse(239)));

// Φ(−x) = ½ − φ(x) Σ x^{2n+1}/(2n+1)!!, all terms of one sign; at each end of x, as it decreases.
function tailPoint(x) {
  const size = most(x, -x), point = { lo: size, hi: size };
  // beyond 18 the tail is below 1e-71
  const tiny = { lo: 0n, hi: ONE >> 230n };
  let upper;
  if (size > 18n * ONE) upper = tiny;
  else {
    const square = mul(point, point);
    let term = point, total = point;
    for (let n = 1; n < 2000; n++) {
      term = div(mul(term, square), whole(2 * n + 1));
      total = add(total, term);
      if (term.hi < 4n && n > 400) break;
    }
    // terms fall by half and more by then: the rest is below the last
    total = { lo: total.lo, hi: total.hi + 16n };
    const density = div(exp(neg(div(square, whole(2)))), sqrt(mul(whole(2), PI)));
    upper = sub(div(whole(1), whole(2)), mul(density, total));
    upper = { lo: most(upper.lo, 0n), hi: most(upper.hi, 0n) };
  }
  return x >= 0n ? upper : sub(whole(1), upper);
}
const tail = (x) => ({ lo: tailPoint(x.hi).lo, hi: tailPoint(x.lo).hi });

// H(ε) of each mechanism; ε an interval, and γ = e^ε a fraction where it is one.
const H = {
  gaussian(node, epsilon) {
    const ratio = fdiv(fraction(node.sensitivity), fraction(node.noise));
    const mu = of(ratio), half = of(fdiv(ratio, F(2))), place = divSigned(epsilon, mu);
    return sub(tail(sub(place, half)), mul(exp(epsilon), tail(add(place, half))));
  },
  laplace(node, epsilon) {
    const loss = of(fdiv(fraction(node.sensitivity), fraction(node.scale)));
    if (epsilon.lo >= loss.hi) return whole(0);
    if (epsilon.hi <= -loss.hi) return sub(whole(1), exp(epsilon));
    // x > t = (L + ε)/2: P = 1 − e^{t − L}/2, Q = e^{−t}/2
    const place = div(add(loss, epsilon), whole(2));
    const own = sub(whole(1), div(exp(sub(place, loss)), whole(2)));
    return sub(own, mul(exp(epsilon), div(exp(neg(place)), whole(2))));
  },
  response(node, epsilon, gamma) {
    const answers = BigInt(node.categories), scale = exp(epsilon);
    if (node.truth !== undefined) {
      const p = fraction(node.truth), r = fdiv(fsub(F(1), p), F(answers - 1n));
      const rest = fmul(F(answers - 2n), r);
      if (gamma) {
        const gain = (a, b) => { const g = fsub(a, fmul(gamma, b)); return g.n > 0n ? g : F(0); };
        return { exact: fadd(fadd(gain(p, r), gain(r, p)), gain(rest, rest)) };
      }
      return finite([of(p), of(r), of(rest)], [of(r), of(p), of(rest)], scale);
    }
    const odds = exp(of(fraction(node.epsilon)));
    const total = add(odds, whole(answers - 1n)), p = div(odds, total), r = div(whole(1), total);
    const rest = mul(whole(answers - 2n), r);
    return finite([p, r, rest], [r, p, rest], scale);
  },
};
function divSigned(a, b) {
  const all = [a.lo, a.hi].flatMap((x) => [b.lo, b.hi].map((y) => [x << BITS, y]));
  return { lo: least(...all.map(([x, y]) => floor(x, y))), hi: most(...all.map(([x, y]) => ceil(x, y))) };
}
function finite(own, other, scale) {
  let total = whole(0);
  own.forEach((p, k) => { total = add(total, max(whole(0), sub(p, mul(scale, other[k])))); });
  return total;
}

function verdict(value, bound) {
  if (value.exact) return fcmp(value.exact, bound) <= 0 ? "holds" : "false";
  const limit = of(bound);
  return value.hi <= limit.lo ? "holds" : value.lo > limit.hi ? "false" : "not shown";
}

export function check(proof) {
  if (proof.format !== "tacit-proof" || proof.version !== 1) throw new Error("refused: format");
  const node = proof.mechanism, curve = H[node.kind];
  if (!curve) return null;
  return proof.claims.map((claim) => {
    if (claim.kind === "approximate-dp") {
      const epsilon = fraction(claim.epsilon), gamma = epsilon.n === 0n ? F(1) : null;
      return verdict(curve(node, of(epsilon), gamma), fraction(claim.delta));
    }
    if (claim.kind === "success") {
      // 1 − p + p H(ln((1 − p)/p)); all pairs here are equal in both orders
      const p = fraction(claim.prior), gamma = fdiv(fsub(F(1), p), p);
      const height = curve(node, log(gamma), gamma), blind = fsub(F(1), p);
      const value = height.exact
        ? { exact: fadd(blind, fmul(p, height.exact)) }
        : add(of(blind), mul(of(p), height));
      return verdict(value, fraction(claim.success));
    }
    return "not checkable";
  });
}

for (const line of readFileSync(0, "utf8").split("\n").filter(Boolean)) {
  const found = check(JSON.parse(line).proof);
  console.log(found === null ? "-" : found.join(","));
}
