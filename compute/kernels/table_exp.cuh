// exp by a table and a polynomial: the operations of compute.table_exp.exp64, one by one, so that the proof (T1) to
// (T8) of compute/enclosure.md, and with it assumption A1 with E = 1, holds for this code as it stands.
//
// Every addition and multiplication is rounded by itself: __dadd_rn and __dmul_rn are never contracted into fused
// operations, whatever the compiler is told, and subnormals are kept (float64 is never flushed on a GPU).

#define EXP_LAST 600.0
#define EXP_GRID 256.0
#define EXP_SHIFT 196608.0  // 1.5 * 2^(52 - 35): adding and subtracting it rounds to multiples of 2^-35
#define EXP_SPLIT 134217729.0

struct Pair {
  double high, low;  // their unevaluated sum
};

// e^dh for -600 <= dh <= 0. table: e^(-k/256), k = 0 ... 153600, as (head of 26 bits, tail), both in one 16-byte read.
__device__ __forceinline__ Pair exp_pair(double dh, const double2* table) {
  double a = rint(__dmul_rn(dh, -EXP_GRID));
  // What a NaN is converted to is no index.
  const int index = a >= 0.0 && a <= EXP_LAST * EXP_GRID ? (int)a : 0;
  const double2 entry = __ldg(table + index);
  a = __dmul_rn(a, 1.0 / EXP_GRID);
  a = __dadd_rn(dh, a);                             // (T2) exact
  double b = a;                                     // t
  double c = __dsub_rn(__dadd_rn(b, EXP_SHIFT), EXP_SHIFT);  // (T3) rh
  a = __dsub_rn(a, c);                              // (T4) rl
  double q = __dmul_rn(b, 1.0 / 720.0);             // (T5) e^t - 1 - t
  q = __dmul_rn(__dadd_rn(q, 1.0 / 120.0), b);
  q = __dmul_rn(__dadd_rn(q, 1.0 / 24.0), b);
  q = __dmul_rn(__dadd_rn(q, 1.0 / 6.0), b);
  q = __dmul_rn(__dadd_rn(q, 0.5), b);
  q = __dmul_rn(q, b);
  b = __dadd_rn(b, q);
  a = __dmul_rn(__dadd_rn(a, q), entry.x);
  b = __dadd_rn(__dmul_rn(b, entry.y), entry.y);    // (T6) tail (1 + g)
  a = __dadd_rn(a, b);
  c = __dmul_rn(entry.x, c);                        // (T7) head rh, exact
  double d = __dadd_rn(entry.x, c);
  c = __dsub_rn(c, __dsub_rn(d, entry.x));
  a = __dadd_rn(c, a);
  Pair w;
  w.high = __dadd_rn(d, a);
  w.low = __dadd_rn(__dsub_rn(d, w.high), a);       // (T8)
  return w;
}

// e^x for x <= 0; below -600 the square of e^(x/2). NaN for NaN, and for x > 0, which the table doesn't hold.
__device__ __forceinline__ double table_exp_of(double x, const double2* table) {
  const bool far = x < -EXP_LAST;
  double dh = far ? __dmul_rn(x, 0.5) : x;
  if (dh < -EXP_LAST) dh = -EXP_LAST;
  const Pair w = exp_pair(dh, table);
  double result = w.high;
  if (far) {
    const double p = __dmul_rn(w.high, w.high);
    const double s = __dmul_rn(EXP_SPLIT, w.high);
    const double h = __dsub_rn(s, __dsub_rn(s, w.high));
    const double l = __dsub_rn(w.high, h);
    const double hl = __dmul_rn(h, l);
    double rest = __dadd_rn(__dadd_rn(__dsub_rn(__dmul_rn(h, h), p), hl), hl);  // l h is h l
    rest = __dadd_rn(rest, __dmul_rn(l, l));
    result = __dadd_rn(p, __dadd_rn(rest, __dmul_rn(__dmul_rn(2.0, w.high), w.low)));
  }
  return x > 0.0 ? __longlong_as_double(0x7ff8000000000000ll) : result;
}

#define EXP_EACH 4  // entries of a thread: that many reads are under way at once

// to[i][j] = e^(from[i][j] - top[i]), the difference rounded once; top null: e^from[i][j]. Strides in entries of 8
// bytes. `to` may be `from`: each entry is read and written by one thread.
extern "C" __global__ void __launch_bounds__(256) table_exp(
    const double* from, long long from_stride, double* to, long long to_stride, const double* top,
    const double2* table, long long rows, long long columns) {
  const long long wide = (long long)blockDim.x * EXP_EACH;
  const long long pieces = (columns + wide - 1) / wide;
  for (long long piece = blockIdx.x; piece < rows * pieces; piece += gridDim.x) {
    const long long row = piece / pieces, first = (piece - row * pieces) * wide + threadIdx.x;
    const double* source = from + row * from_stride;
    double* target = to + row * to_stride;
    const double shift = top == nullptr ? 0.0 : top[row];
    double x[EXP_EACH];
#pragma unroll
    for (int i = 0; i < EXP_EACH; ++i) {
      const long long j = first + (long long)i * blockDim.x;
      x[i] = j < columns ? source[j] : 0.0;
    }
#pragma unroll
    for (int i = 0; i < EXP_EACH; ++i) {
      const long long j = first + (long long)i * blockDim.x;
      if (j < columns) target[j] = table_exp_of(top == nullptr ? x[i] : __dsub_rn(x[i], shift), table);
    }
  }
}
