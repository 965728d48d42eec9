// float64 attention on tensor cores (mma.sync.f64), forward and backward, in one pass over the keys.
//
// A block is 4 warps of 16 rows; keys (or, for dK and dV, queries) come in tiles of 32. The accumulator layout of one
// product is the operand layout of the next when its columns are taken in the order 2t, 2t + 1, so weights never leave
// the registers. Needs HD and HV to be multiples of 8. No atomics: results repeat to the bit.

#define WARPS 4
#define ROWS (16 * WARPS)
#define COLS 32
#if HD % 16 == 0 && HV % 16 == 0
#define KS 4
#else
#define KS 2
#endif
#define LQ (HD + 4)

// s (16 x COLS) = A (16 x D) . B (COLS x D)^T, both in shared memory; A points at the warp's first row
template <int D>
__device__ __forceinline__ void dot_rows(double (&s)[COLS / 8][4], const double* a, int lda, const double* b, int ldb,
                                         int g, int t) {
  #pragma unroll
  for (int n = 0; n < COLS / 8; ++n)
    #pragma unroll
    for (int i = 0; i < 4; ++i) s[n][i] = 0;
  #pragma unroll 2
  for (int step = 0; step < D / (4 * KS); ++step) {
    double x[2 * KS];
    #pragma unroll
    for (int i = 0; i < KS; ++i) {
      x[2 * i] = a[g * lda + step * 4 * KS + 4 * i + t];
      x[2 * i + 1] = a[(g + 8) * lda + step * 4 * KS + 4 * i + t];
    }
    #pragma unroll
    for (int n = 0; n < COLS / 8; ++n) {
      double y[KS];
      #pragma unroll
      for (int i = 0; i < KS; ++i) y[i] = b[(n * 8 + g) * ldb + step * 4 * KS + 4 * i + t];
      mma<KS>(s[n], x, y);
    }
  }
}

// acc (16 x D) += W (16 x COLS, accumulator layout, masked = -0) B (COLS x D, shared)
template <int D>
__device__ __forceinline__ void add_weighted(double (&acc)[D / 8][4], const double (&w)[COLS / 8][4], const double* b,
                                             int ldb, int odd, int lane) {
  const int g = lane >> 2, t = lane & 3;
  #pragma unroll
  for (int n = 0; n < COLS / 8; ++n) {
    const double x[4] = {w[n][0], w[n][2], w[n][1], w[n][3]};
    #pragma unroll
    for (int c = 0; c < D / 8; ++c) {
      double y[2] = {b[(n * 8 + 2 * t) * ldb + c * 8 + g], b[(n * 8 + 2 * t + 1) * ldb + c * 8 + g]};
      if (odd) {
        #pragma unroll
        for (int i = 0; i < 2; ++i) y[i] = not_finite(y[i]) ? 0.0 : y[i];
      }
      mma<2>(acc[c], x, y);
    }
  }
  if (!odd) return;
  // Values that are not finite were left out above; they meet only the weights that are not masked. The loop stays
  // rolled, and picks its weight by comparison, so that this rare path costs no registers.
  #pragma unroll 1
  for (int row = 0; row < COLS; ++row) {
    double low = 0, high = 0;
    #pragma unroll
    for (int n = 0; n < COLS / 8; ++n)
      #pragma unroll
      for (int i = 0; i < 2; ++i)
        if (n == row >> 3 && i == (row & 1)) { low = w[n][i]; high = w[n][2 + i]; }
    const int owner = (lane & ~3) | (row & 7) >> 1;
    low = __shfl_sync(FULL_WARP, low, owner);
    high = __shfl_sync(FULL_WARP, high, owner);
    #pragma unroll
    for (int c = 0; c < D / 8; ++c)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        const double x = b[row * ldb + c * 8 + 2 * t + e];
        if (!not_finite(x)) continue;
        if (!is_masked(low)) acc[c][e] += low * x;
        if (!is_masked(high)) acc[c][2 + e] += high * x;
      }
  }
}

template <int D> __device__ __forceinline__ void clear(double (&acc)[D / 8][4]) {
  #pragma unroll
  for (int c = 0; c < D / 8; ++c)
    #pragma unroll
    for (int i = 0; i < 4; ++i) acc[c][i] = 0;
}

template <int D>
__device__ __forceinline__ void store_rows(double* to, const double (&acc)[D / 8][4], int first, int count, int g, int t) {
  #pragma unroll
  for (int high = 0; high < 2; ++high) {
    const int row = first + g + 8 * high;
    if (row >= count) continue;
    #pragma unroll
    for (int c = 0; c < D / 8; ++c) {
      to[(size_t)row * D + c * 8 + 2 * t] = acc[c][2 * high];
      to[(size_t)row * D + c * 8 + 2 * t + 1] = acc[c][2 * high + 1];
    }
  }
}

// grid (ceil(n / ROWS) * batch * heads)
extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(const double* __restrict__ q, const double* __restrict__ k, const double* __restrict__ v,
                  double* __restrict__ o, double* __restrict__ lse, const double* __restrict__ sink, int empty,
                  MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int LV = HV + 2;
  double* Qs = (double*)shared_bytes;
  double* Ks = Qs + ROWS * LQ;
  double* Vs = Ks + COLS * LQ;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const Place place = place_of_block(n, ROWS);
  const int row0 = place.first, mine = row0 + 16 * warp;
  const size_t head = place.head, kv_head = head / groups;
  const Meaning call = MEANING_OF(head);
  q += head * n * HD; o += head * n * HV; lse += head * n;
  k += kv_head * m * HD; v += kv_head * m * HV;

  load_rows<ROWS, HD, THREADS>(Qs, LQ, q, row0, n);
  double acc[HV / 8][4], top[2] = {-infinity(0.0), -infinity(0.0)}, sum[2] = {0, 0};
  clear<HV>(acc);
  const int end = call.end_key(row0 + ROWS < n ? row0 + ROWS : n);
  for (int j0 = call.first_key(row0) / COLS * COLS; j0 < end; j0 += COLS) {
    __syncthreads();
    load_rows<COLS, HD, THREADS>(Ks, LQ, k, j0, m);
    const int odd = __syncthreads_or(load_rows<COLS, HV, THREADS>(Vs, LV, v, j0, m));
    double s[COLS / 8][4];
    dot_rows<HD>(s, Qs + 16 * warp * LQ, LQ, Ks, LQ, g, t);
    #pragma unroll
    for (int high = 0; high < 2; ++high) {
      const int row = mine + g + 8 * high;
      double best = top[high];
      #pragma unroll
      for (int n8 = 0; n8 < COLS / 8; ++n8)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          double slope, &x = s[n8][2 * high + i];
          x = call.score(x, slope);
          if (!call.sees(row, j0 + n8 * 8 + 2 * t + i)) x = -infinity(0.0);
          best = larger(best, x);
        }
      best = larger(best, __shfl_xor_sync(FULL_WARP, best, 1));
      best = larger(best, __shfl_xor_sync(FULL_WARP, best, 2));
      const double base = best == -infinity(0.0) ? 0.0 : best, shrink = exp(top[high] - base);
      double part = 0;
      #pragma unroll
      for (int n8 = 0; n8 < COLS / 8; ++n8)
        #pragma unroll
        for (int i = 0; i < 2; ++i) {
          double& x = s[n8][2 * high + i];
          x = x == -infinity(0.0) ? -0.0 : exp(x - base);
          part += x;
        }
      sum[high] = sum[high] * shrink + part;  // a lane's share of the row; the four are added at the end
      top[high] = best;
      #pragma unroll
      for (int c = 0; c < HV / 8; ++c) { acc[c][2 * high] *= shrink; acc[c][2 * high + 1] *= shrink; }
    }
    add_weighted<HV>(acc, s, Vs, LV, odd, lane);
  }

  #pragma unroll
  for (int high = 0; high < 2; ++high) {
    const int row = mine + g + 8 * high;
    double total = sum[high], factor = 1;
    total += __shfl_xor_sync(FULL_WARP, total, 1);
    total += __shfl_xor_sync(FULL_WARP, total, 2);
    if (sink != nullptr && sink[head % heads] != -infinity(0.0)) {  // minus infinity: no sink
      const double x = sink[head % heads], best = larger(top[high], x);
      factor = exp(top[high] - best);
      total = total * factor + exp(x - best);
      top[high] = best;
    }
    const bool none = total == 0.0;
    const double weight = none ? 0.0 : factor / total;
    #pragma unroll
    for (int c = 0; c < HV / 8; ++c)
      #pragma unroll
      for (int i = 0; i < 2; ++i) {
        double& x = acc[c][2 * high + i];
        x = none ? (empty ? infinity(0.0) - infinity(0.0) : 0.0) : x * weight;
      }
    if (row < n && t == 0) lse[row] = none ? -infinity(0.0) : top[high] + log(total);
  }
  store_rows<HV>(o, acc, mine, n, g, t);
}

// Weights p and score gradients ds of one tile (rows of A: queries, or keys when SWAPPED); masked ones are -0.
template <bool SWAPPED>
__device__ __forceinline__ void score_gradients(double (&p)[COLS / 8][4], double (&ds)[COLS / 8][4], const double* A,
                                                const double* dA, const double* B, const double* dB, int ldv,
                                                const double* lse, const double* delta, int first_row, int first_col,
                                                const Meaning& call, int g, int t) {
  dot_rows<HD>(p, A, LQ, B, LQ, g, t);
  dot_rows<HV>(ds, dA, ldv, dB, ldv, g, t);
  #pragma unroll
  for (int n8 = 0; n8 < COLS / 8; ++n8)
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int r = first_row + g + 8 * (i >> 1), c = first_col + n8 * 8 + 2 * t + (i & 1);
      const int query = SWAPPED ? c : r, key = SWAPPED ? r : c;
      double slope, weight = -0.0, gradient = -0.0;
      const double x = call.score(p[n8][i], slope);
      if (call.sees(query, key) && x != -infinity(0.0)) {
        weight = exp(x - lse[query]);
        gradient = weight * (ds[n8][i] - delta[query]) * slope;
        if (gradient == 0.0) gradient = 0.0;
      }
      p[n8][i] = weight;
      ds[n8][i] = gradient;
    }
}

// dQ. grid (ceil(n / ROWS) * batch * heads)
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_q(const double* __restrict__ q, const double* __restrict__ k, const double* __restrict__ v,
                     const double* __restrict__ d_o, const double* __restrict__ lse, const double* __restrict__ delta,
                     double* __restrict__ dq, MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int LV = HV + 4;
  double* Qs = (double*)shared_bytes;
  double* Os = Qs + ROWS * LQ;
  double* Ks = Os + ROWS * LV;
  double* Vs = Ks + COLS * LQ;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3;
  const Place place = place_of_block(n, ROWS);
  const int row0 = place.first, mine = row0 + 16 * warp;
  const size_t head = place.head, kv_head = head / groups;
  const Meaning call = MEANING_OF(head);
  q += head * n * HD; dq += head * n * HD; d_o += head * n * HV; lse += head * n; delta += head * n;
  k += kv_head * m * HD; v += kv_head * m * HV;

  load_rows<ROWS, HD, THREADS>(Qs, LQ, q, row0, n);
  load_rows<ROWS, HV, THREADS>(Os, LV, d_o, row0, n);
  double acc[HD / 8][4];
  clear<HD>(acc);
  const int end = call.end_key(row0 + ROWS < n ? row0 + ROWS : n);
  for (int j0 = call.first_key(row0) / COLS * COLS; j0 < end; j0 += COLS) {
    __syncthreads();
    int odd = load_rows<COLS, HD, THREADS>(Ks, LQ, k, j0, m);
    load_rows<COLS, HV, THREADS>(Vs, LV, v, j0, m);
    odd = __syncthreads_or(odd);
    double p[COLS / 8][4], ds[COLS / 8][4];
    score_gradients<false>(p, ds, Qs + 16 * warp * LQ, Os + 16 * warp * LV, Ks, Vs, LV, lse, delta, mine, j0, call, g, t);
    add_weighted<HD>(acc, ds, Ks, LQ, odd, lane);
  }
  store_rows<HD>(dq, acc, mine, n, g, t);
}

// One sweep over the queries of a key tile: dV when WANT_V, dK when WANT_K.
template <bool WANT_V, bool WANT_K>
__device__ __forceinline__ void sweep_queries(const double* q, const double* d_o, const double* lse,
                                              const double* delta, double* dk, double* dv, double* Ks, size_t kv_head,
                                              int key0, MEANING_PARAMETERS) {
  constexpr int LV = HV + 4;
  double* Vs = Ks + ROWS * LQ;
  double* Qs = Vs + ROWS * LV;
  double* Os = Qs + COLS * LQ;
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5, g = lane >> 2, t = lane & 3, mine = key0 + 16 * warp;
  double acc_k[WANT_K ? HD / 8 : 1][4], acc_v[WANT_V ? HV / 8 : 1][4];
  if constexpr (WANT_K) clear<HD>(acc_k);
  if constexpr (WANT_V) clear<HV>(acc_v);
  for (int group = 0; group < groups; ++group) {
    const size_t head = kv_head * groups + group;
    const Meaning call = MEANING_OF(head);
    const int end = call.end_row(key0 + ROWS < m ? key0 + ROWS : m);
    for (int i0 = call.first_row(key0) / COLS * COLS; i0 < end; i0 += COLS) {
      __syncthreads();
      int odd = load_rows<COLS, HD, THREADS>(Qs, LQ, q + head * n * HD, i0, n);
      odd |= load_rows<COLS, HV, THREADS>(Os, LV, d_o + head * n * HV, i0, n);
      odd = __syncthreads_or(odd);
      double p[COLS / 8][4], ds[COLS / 8][4];
      score_gradients<true>(p, ds, Ks + 16 * warp * LQ, Vs + 16 * warp * LV, Qs, Os, LV, lse + head * n,
                            delta + head * n, mine, i0, call, g, t);
      if constexpr (WANT_V) add_weighted<HV>(acc_v, p, Os, LV, odd, lane);
      if constexpr (WANT_K) add_weighted<HD>(acc_k, ds, Qs, LQ, odd, lane);
    }
  }
  if constexpr (WANT_K) store_rows<HD>(dk + kv_head * m * HD, acc_k, mine, m, g, t);
  if constexpr (WANT_V) store_rows<HV>(dv + kv_head * m * HV, acc_v, mine, m, g, t);
}

// dK and dV of ROWS keys, summed over the query heads of their group. grid (ceil(m / ROWS) * batch * kv_heads)
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_kv(const double* __restrict__ q, const double* __restrict__ k, const double* __restrict__ v,
                      const double* __restrict__ d_o, const double* __restrict__ lse, const double* __restrict__ delta,
                      double* __restrict__ dk, double* __restrict__ dv, MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  double* Ks = (double*)shared_bytes;
  const Place place = place_of_block(m, ROWS);
  const int key0 = place.first;
  const size_t kv_head = place.head;
  load_rows<ROWS, HD, THREADS>(Ks, LQ, k + kv_head * m * HD, key0, m);
  load_rows<ROWS, HV, THREADS>(Ks + ROWS * LQ, HV + 4, v + kv_head * m * HV, key0, m);
#if HD + HV <= 128
  sweep_queries<true, true>(q, d_o, lse, delta, dk, dv, Ks, kv_head, key0, MEANING_ARGUMENTS);
#else  // both accumulators don't fit the registers: two sweeps, each computing the scores anew
  sweep_queries<true, false>(q, d_o, lse, delta, dk, dv, Ks, kv_head, key0, MEANING_ARGUMENTS);
  __syncthreads();
  sweep_queries<false, true>(q, d_o, lse, delta, dk, dv, Ks, kv_head, key0, MEANING_ARGUMENTS);
#endif
}
