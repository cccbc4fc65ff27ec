"""Float weights to K-quants: Q2_K, Q3_K, Q4_K, Q5_K and Q6_K, by weighted least squares.

A super-block of 256 weights has sub-blocks of 16 or 32; lane = sub-block. What is minimised is

    E = sum w (a q - b - x)^2        w: what an error of this column costs (the imatrix), or 1

over the sub-block's scale a, its min b >= 0 (Q3_K and Q6_K have none) and the integers q:

1. For each of `STEPS` grids, from much finer than the sub-block's range needs to slightly coarser,
   q = round((x - low) / grid). For these q the best a and b have a closed form: two normal
   equations. The pair with the least E is kept.
2. `ROUNDS` times: q anew for the a and b that were kept, then a and b for this q. E only falls.
3. The super-block stores a = d * A and b = e * B with small integers A and B: d and e are the
   largest a and b divided by the largest integer, as fp16. q is made anew for these.
4. `REFITS` times: where there are mins, the best of A, B and their neighbors, with q anew for each,
   are kept. Then, with A, B and q fixed, E is quadratic in d and e; the best ones, as fp16, with q
   anew for them, are kept where E falls.

Nothing is contracted and every sum has one order, so that the numpy reference of the tests
gives the same bytes on every target. `quantize_store.py` has the types and lays the bytes out.
"""

from __future__ import annotations

from ..simd import I64, F32s, I8s, Kernel, Ptr, Value, Var, f32, kernel
from .mathlib import f16_to_f32, f32_to_f16
from .quantize import extremes, farthest, transpose
from .quantize_store import KTYPES, STEPS, STORE, Found, KType

ROUNDS, REFITS = 2, 2
TINY = 1e-20  # a scale below this is none: fp16 could not hold it, and 1 / scale must be finite
HUGE = 3e38  # above any error
SAME = 1e-6  # of the determinant's terms: less than this is their rounding
_ROUND = 12582912.0  # adding 1.5 * 2^23 rounds to an integer, ties to even


@kernel
def quantize_k(
    k: Kernel,
    rows: F32s,
    weights: F32s,
    grids: F32s,
    out: I8s,
    blocks: I64,
    *,
    fmt: str,
    by_size: bool,
) -> None:
    """Quantize `rows` to super-blocks of `fmt`; unit = super-block.

    weights: [blocks * 256] of one row's columns, where a row has `blocks` super-blocks; grids:
    `KType.grids`; by_size: an error costs sqrt(mean x^2 + x^2) more, which is better for two bits.
    """
    form = KTYPES[fmt]
    x, w, q = (k.scratch(f32, 256) for _ in range(3))
    with k.units() as unit:
        transpose(k, rows.at(unit * 256), x, form.size, form.lanes)
        transpose(k, weights.at((unit % blocks) * 256), w, form.size, form.lanes)
        part = Search(k, form, x, w, q, grids)
        if by_size:
            part.weigh_by_size()
        to = out.at(unit * form.nbytes)
        (_with_min if form.mins else _without_min)(k, form, part, to)


class Search:
    """One super-block: its weights transposed so that lane = sub-block, and sums over them."""

    def __init__(self, k: Kernel, form: KType, x: Ptr, w: Ptr, q: Ptr, grids: Ptr) -> None:
        self.k, self.form, self.grids = k, form, grids
        self.lanes = form.lanes
        self._x, self._w, self._q = x, w, q
        self.low, self.high = extremes(k, x, form.size, form.lanes)
        self.far = farthest(k, x, form.size, form.lanes)

    def zero(self) -> Value:
        return self.k.zeros(f32, self.lanes)

    def sums(self, terms, count: int) -> list[Value]:
        """Sum `count` terms(x, w, i) over the weights of each sub-block."""
        totals = [self.k.var(self.zero()) for _ in range(count)]
        with self.k.range(0, self.form.size, name="sum") as i:
            at = i * self.lanes
            values = terms(self._x.load(at, self.lanes), self._w.load(at, self.lanes), at)
            for total, value in zip(totals, values, strict=True):
                total.set(total.value + value)
        return [total.value for total in totals]

    def weigh_by_size(self) -> None:
        """Set w = w * sqrt(mean x^2 + x^2), the mean over the super-block."""
        mean = self.sums(lambda x, w, _: (x * x,), 1)[0].hsum() * (1 / 256)
        with self.k.range(0, self.form.size, name="weigh") as i:
            at = i * self.lanes
            x, w = self._x.load(at, self.lanes), self._w.load(at, self.lanes)
            self._w.store(at, w * (mean.splat(self.lanes) + x * x).sqrt())

    def quant(self, at: Value) -> Value:
        """Load the stored q."""
        return self._q.load(at, self.lanes)

    def keep(self, make) -> None:
        """Store q = make(x) for every weight."""
        with self.k.range(0, self.form.size, name="keep") as i:
            at = i * self.lanes
            self._q.store(at, make(self._x.load(at, self.lanes)))


def _between(value: Value, low: int, high: int) -> Value:
    """Round to the nearest integer, ties to even, and clamp to low … high; float32."""
    cut = (value > float(low)).select(value, float(low))
    cut = (cut < float(high)).select(cut, float(high))
    return (cut + _ROUND) - _ROUND


def _inverse(value: Value) -> Value:
    """Compute 1 / value, and 0 where value is nearly zero."""
    return (value.abs() > TINY).select(1.0 / value, 0.0)


def _keep(better: Value, *found: tuple[Var, Value]) -> None:
    """Set each variable to what was found, in the lanes where that is better."""
    for best, value in found:
        best.set(better.select(value, best.value))


def _steps(k: Kernel, grids: Ptr, body) -> None:
    with k.range(0, STEPS, name="grid") as n:
        body(grids.load(n))


# --- with a min: Q2_K, Q4_K, Q5_K


def _with_min(k: Kernel, form: KType, s: Search, out: Ptr) -> None:
    a, b = search_min(k, form, s)
    d, e = _largest_as_half(k, a, form.scales), _largest_as_half(k, b, form.mins)
    big_a = _between(a * _inverse(d).splat(s.lanes), 0, form.scales)
    big_b = _between(b * _inverse(e).splat(s.lanes), 0, form.mins)
    whole, halves = [k.var(big_a), k.var(big_b)], [k.var(d), k.var(e)]
    with k.range(0, REFITS, name="refit"):
        _refit_min(k, form, s, whole, halves, _settle_min(k, form, s, whole, halves))
    big_a, big_b, d, e = (found.value for found in (*whole, *halves))
    s.keep(quants_min(form, big_a * d.splat(s.lanes), big_b * e.splat(s.lanes)))
    STORE[form.nbytes](k, Found(form, s.quant, (big_a, big_b), (d, e)), out)


def quants_min(form: KType, a: Value, b: Value):
    inverse = _inverse(a)
    return lambda x: _between((x + b) * inverse, 0, form.max_q)


def search_min(k: Kernel, form: KType, s: Search) -> tuple[Value, Value]:
    low = s.low if form.any_min else (s.low < 0.0).select(s.low, 0.0)
    width = s.high - low
    per_width = _inverse(width)
    w_sum, wx_sum = s.sums(lambda x, w, _: (w, w * x), 2)
    minimum = 0.0 - low
    best_error = k.var(minimum * (minimum * w_sum + 2.0 * wx_sum))
    best_a, best_b = k.var(s.zero()), k.var(minimum)

    def fit(make) -> None:
        """Update a and b for q = make(x) if they are better than the best so far."""

        def terms(x: Value, w: Value, _: Value) -> tuple[Value, Value, Value]:
            q = make(x)
            wq = w * q
            return wq, wq * q, wq * x

        q_sum, qq_sum, qx_sum = s.sums(terms, 3)
        det = w_sum * qq_sum - q_sum * q_sum
        per_det = _inverse(det)
        a = (w_sum * qx_sum - q_sum * wx_sum) * per_det
        b = (q_sum * qx_sum - qq_sum * wx_sum) * per_det
        # A min below zero cannot be stored, and where every q is the same there is no telling a
        # from b: without a min, a is the plain projection.
        plain = det <= w_sum * qq_sum * SAME
        if not form.any_min:
            plain = plain | (b < 0.0)
        a = plain.select(qx_sum * _inverse(qq_sum), a)
        b = plain.select(s.zero(), b)
        a_error = a * (a * qq_sum - 2.0 * qx_sum)
        b_error = b * (b * w_sum + 2.0 * wx_sum)
        error = a_error + b_error - (a + a) * b * q_sum
        _keep(error < best_error.value, (best_error, error), (best_a, a), (best_b, b))

    def grid(steps: Value) -> None:
        per_step = per_width * steps.splat(s.lanes)
        fit(lambda x: _between((x - low) * per_step, 0, form.max_q))

    _steps(k, s.grids, grid)
    with k.range(0, ROUNDS, name="round"):
        fit(quants_min(form, best_a.value, best_b.value))
    return best_a.value, best_b.value


def _error_min(form: KType, s: Search, a: Value, b: Value) -> Value:
    """Return E of each sub-block for its scale and min."""
    make = quants_min(form, a, b)

    def term(x: Value, w: Value, _: Value) -> tuple[Value]:
        off = a * make(x) - b - x
        return (w * off * off,)

    return s.sums(term, 1)[0]


def _settle_min(k: Kernel, form: KType, s: Search, whole: list[Var], halves: list[Var]) -> Value:
    """Set each sub-block's integers to the best of them and their neighbors; return all of E."""
    (big_a, big_b), (d, e) = ([v.value for v in each] for each in (whole, halves))
    best = k.var(s.zero() + HUGE)
    with k.range(0, 9, name="settle") as n:
        a = _between(big_a + ((n % 3).to(f32) - 1.0).splat(s.lanes), 0, form.scales)
        b = _between(big_b + ((n / 3).to(f32) - 1.0).splat(s.lanes), 0, form.mins)
        error = _error_min(form, s, a * d.splat(s.lanes), b * e.splat(s.lanes))
        _keep(error < best.value, (best, error), (whole[0], a), (whole[1], b))
    return best.value.hsum()


def _refit_min(
    k: Kernel, form: KType, s: Search, whole: list[Var], halves: list[Var], error: Value
) -> None:
    """Set d and e to the best ones for the same integers, if E falls below `error` with q anew."""
    (big_a, big_b), (d, e) = ([v.value for v in each] for each in (whole, halves))
    make = quants_min(form, big_a * d.splat(s.lanes), big_b * e.splat(s.lanes))

    def terms(x: Value, w: Value, _: Value) -> tuple[Value, ...]:
        aq = big_a * make(x)
        return w * aq * aq, w * aq * big_b, w * big_b * big_b, w * aq * x, w * big_b * x

    aa, ab, bb, ax, bx = (total.hsum() for total in s.sums(terms, 5))
    per_det = _inverse(aa * bb - ab * ab)
    new_d = as_half(k, (bb * ax - ab * bx) * per_det)
    new_e = as_half(k, (ab * ax - aa * bx) * per_det)
    a, b = big_a * new_d.splat(s.lanes), big_b * new_e.splat(s.lanes)
    better = _error_min(form, s, a, b).hsum() < error
    _keep(better, (halves[0], new_d), (halves[1], new_e))


# --- without: Q3_K, Q6_K


def _without_min(k: Kernel, form: KType, s: Search, out: Ptr) -> None:
    a = search_plain(k, form, s)
    far = k.scratch(f32, s.lanes)
    far.store(0, a)
    # The scale farthest from zero becomes -scales: there is one more integer on that side.
    top = farthest(k, far, s.lanes, 1)
    d = as_half(k, top / float(-form.scales))
    big_a = _between(a * _inverse(d).splat(s.lanes), -form.scales, form.scales - 1)
    d = _refit_plain(k, form, s, big_a, d)
    make = quants_plain(form, big_a * d.splat(s.lanes))
    s.keep(lambda x: make(x) + float(form.middle))
    STORE[form.nbytes](k, Found(form, s.quant, (big_a,), (d,)), out)


def quants_plain(form: KType, a: Value):
    inverse = _inverse(a)
    return lambda x: _between(x * inverse, -form.middle, form.middle - 1)


def search_plain(k: Kernel, form: KType, s: Search) -> Value:
    per_far = _inverse(s.far)
    best_gain, best_a = k.var(s.zero()), k.var(s.zero())

    def fit(make) -> None:
        """Update the best scale; E is the sum of w x^2 minus a gain, (sum w q x)^2 / sum w q^2."""

        def terms(x: Value, w: Value, _: Value) -> tuple[Value, Value]:
            q = make(x)
            wq = w * q
            return wq * q, wq * x

        qq_sum, qx_sum = s.sums(terms, 2)
        a = qx_sum * _inverse(qq_sum)
        gain = qx_sum * a
        _keep(gain > best_gain.value, (best_gain, gain), (best_a, a))

    def grid(steps: Value) -> None:
        # The farthest weight goes to the negative end.
        per_step = per_far * (0.0 - steps).splat(s.lanes)
        fit(lambda x: _between(x * per_step, -form.middle, form.middle - 1))

    _steps(k, s.grids, grid)
    with k.range(0, ROUNDS, name="round"):
        fit(quants_plain(form, best_a.value))
    return best_a.value


def _refit_plain(k: Kernel, form: KType, s: Search, big_a: Value, d: Value) -> Value:
    def error_of(d: Value) -> Value:
        a = big_a * d.splat(s.lanes)
        make = quants_plain(form, a)

        def term(x: Value, w: Value, _: Value) -> tuple[Value]:
            off = a * make(x) - x
            return (w * off * off,)

        return s.sums(term, 1)[0].hsum()

    best_d, best = k.var(d), k.var(error_of(d))
    with k.range(0, REFITS, name="refit"):
        make = quants_plain(form, big_a * best_d.value.splat(s.lanes))

        def terms(x: Value, w: Value, _: Value, make=make) -> tuple[Value, Value]:
            aq = big_a * make(x)
            return w * aq * aq, w * aq * x

        aa, ax = (total.hsum() for total in s.sums(terms, 2))
        new_d = as_half(k, ax * _inverse(aa))
        error = error_of(new_d)
        _keep(error < best.value, (best, error), (best_d, new_d))
    return best_d.value


def _largest_as_half(k: Kernel, values: Value, largest_q: int) -> Value:
    """Divide the largest of the lanes by `largest_q`; round to fp16."""
    top = values.fold(lambda one, other: (one > other).select(one, other))
    return as_half(k, top / float(largest_q))


def as_half(k: Kernel, value: Value) -> Value:
    """Round to fp16; 0 where fp16 has no number for it."""
    fits = (value.abs() < 65504.0).select(value, 0.0)
    return f16_to_f32(k, f32_to_f16(k, fits))
