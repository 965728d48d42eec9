// Monte Carlo of softmax saturation: scores are drawn, and every statistic of a row is kept in registers.

#define BLOCK 256
#define STATISTICS 7

__device__ __forceinline__ float infinity(float) { return __int_as_float(0x7f800000); }
__device__ __forceinline__ double infinity(double) { return (double)__int_as_float(0x7f800000); }
__device__ __forceinline__ float exp_(float x) { return expf(x); }
__device__ __forceinline__ double exp_(double x) { return exp(x); }
__device__ __forceinline__ float log1p_(float x) { return log1pf(x); }
__device__ __forceinline__ double log1p_(double x) { return log1p(x); }

// A row seen so far: its largest score, and over all the others, with e = exp(score - top):
// sums of e, e^2, e^3 and (score - top) e. Keeping the largest apart is what makes 1 - max and the Jacobian's norm
// exact to rounding when they are tiny. Also the plain sums of score and score^2.
struct Row {
  AT top, e1, e2, e3, te, sum, square;

  __device__ __forceinline__ static Row empty() { return Row{-infinity((AT)0), 0, 0, 0, 0, 0, 0}; }

  __device__ __forceinline__ void lower(AT by) {  // measure from a top that is higher by `by`
    const AT f = exp_(-by);
    te = (te - by * e1) * f - by * f;
    e1 = e1 * f + f;
    e2 = (e2 * f + f) * f;
    e3 = (e3 * f * f + f * f) * f;
  }
  __device__ __forceinline__ void add(AT x) {
    sum += x;
    square += x * x;
    if (x > top) {
      if (top != -infinity((AT)0)) lower(x - top);
      top = x;
    } else {
      const AT d = x - top, e = exp_(d);
      e1 += e; e2 += e * e; e3 += e * e * e; te += d * e;
    }
  }
  __device__ __forceinline__ void merge(Row other) {
    const AT s = sum + other.sum, q = square + other.square;
    if (other.top > top) { const Row mine = *this; *this = other; other = mine; }
    if (other.top != -infinity((AT)0)) {
      other.lower(top - other.top);
      e1 += other.e1; e2 += other.e2; e3 += other.e3; te += other.te;
    }
    sum = s; square = q;
  }
  __device__ __forceinline__ Row across(int mask) const {
    return Row{__shfl_xor_sync(0xffffffffu, top, mask), __shfl_xor_sync(0xffffffffu, e1, mask),
               __shfl_xor_sync(0xffffffffu, e2, mask), __shfl_xor_sync(0xffffffffu, e3, mask),
               __shfl_xor_sync(0xffffffffu, te, mask), __shfl_xor_sync(0xffffffffu, sum, mask),
               __shfl_xor_sync(0xffffffffu, square, mask)};
  }
  // 1 - max weight, sum of squared weights, squared Frobenius norm of the Jacobian, entropy, log-sum-exp, and the
  // plain mean and mean square of the scores.
  __device__ __forceinline__ void write(AT* out, AT n) const {
    const AT z = (AT)1 + e1, z2 = z * z;
    out[0] = e1 / z;
    out[1] = ((AT)1 + e2) / z2;
    // (p2 - 2 p3 + p2^2) z^4 with p_k = (1 + e_k) / z^k, expanded so that nothing cancels as e1 -> 0
    out[2] = (e1 * e1 * ((AT)1 + e2) + (3 * e2 - 2 * e3) + 2 * e1 * (e2 - e3) + e2 * e2) / (z2 * z2);
    out[3] = log1p_(e1) - te / z;
    out[4] = top + log1p_(e1);
    out[5] = sum / n;
    out[6] = square / n;
  }
};

// One block a replicate: n scores sigma * z, z the normals of stream (seed, experiment, first + blockIdx.x).
// n is a multiple of 8; out is (replicates, STATISTICS).
extern "C" __global__ void __launch_bounds__(BLOCK)
softmax_statistics(AT* out, word n, AT sigma, word first, word key_a, word key_b) {
  __shared__ Row rows[BLOCK / 32];
  Row row = Row::empty();
  for (word i = threadIdx.x; i < n / 8; i += BLOCK) {
    const Four f = four_pairs(i, n, first + blockIdx.x, Key{key_a, key_b});
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      row.add(sigma * f.cosine[j]);
      row.add(sigma * f.sine[j]);
    }
  }
  #pragma unroll
  for (int mask = 16; mask; mask >>= 1) row.merge(row.across(mask));
  if ((threadIdx.x & 31) == 0) rows[threadIdx.x >> 5] = row;
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int w = 1; w < BLOCK / 32; ++w) row.merge(rows[w]);
    row.write(out + (size_t)blockIdx.x * STATISTICS, (AT)n);
  }
}

// After a matrix product: sums of s, s^2, s^3, s^4 in double, one row of `out` a block, to be added in order.
extern "C" __global__ void __launch_bounds__(BLOCK)
score_moments(const AT* __restrict__ scores, word count, double* out) {
  __shared__ double parts[BLOCK / 32][4];
  double power[4] = {0, 0, 0, 0};
  for (word i = blockIdx.x * (word)BLOCK + threadIdx.x; i < count; i += (word)gridDim.x * BLOCK) {
    const double x = scores[i], y = x * x;
    power[0] += x; power[1] += y; power[2] += x * y; power[3] += y * y;
  }
  #pragma unroll
  for (int p = 0; p < 4; ++p) {
    #pragma unroll
    for (int mask = 16; mask; mask >>= 1) power[p] += __shfl_xor_sync(0xffffffffu, power[p], mask);
    if ((threadIdx.x & 31) == 0) parts[threadIdx.x >> 5][p] = power[p];
  }
  __syncthreads();
  if (threadIdx.x < 4) {
    double sum = 0;
    for (int w = 0; w < BLOCK / 32; ++w) sum += parts[w][threadIdx.x];
    out[blockIdx.x * 4 + threadIdx.x] = sum;
  }
}
