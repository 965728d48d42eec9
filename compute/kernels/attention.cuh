// Attention in one pass over the keys (online softmax), forward and backward: one readable source for every format.
//
// Source of the recurrence: Milakov and Gimelshein 2018, algorithm 3; of the backward pass: Dao et al. 2022,
// appendix B.4. Weights are recomputed from the log-sum-exp; every sum has a fixed order and no atomics are used, so
// results repeat to the bit. A masked key is selected away, never multiplied: its weight is stored as -0, and a tile
// that holds NaN or inf takes a path that skips such weights.
//
// A block is 128 threads as 16 row groups x 8 column lanes. Shared memory is sized by the caller (attention.py).

#define TX 8
#define TY 16
#define BN 32              // keys a tile
#define RN (BN / TX)
#define BM 64              // rows a block, forward
#define BB 32              // rows and keys a tile, backward

// s[i][j] = row (ty*R + i) of A . row (j*TX + tx) of B
template <int R, int C, int D>
__device__ __forceinline__ void dot_rows(AT (&s)[R][C], const AT* a, int lda, const AT* b, int ldb, int tx, int ty) {
  #pragma unroll
  for (int i = 0; i < R; ++i)
    #pragma unroll
    for (int j = 0; j < C; ++j) s[i][j] = 0;
  #pragma unroll 4
  for (int c = 0; c < D; ++c) {
    AT x[R], y[C];
    #pragma unroll
    for (int i = 0; i < R; ++i) x[i] = a[(ty * R + i) * lda + c];
    #pragma unroll
    for (int j = 0; j < C; ++j) y[j] = b[(j * TX + tx) * ldb + c];
    #pragma unroll
    for (int i = 0; i < R; ++i)
      #pragma unroll
      for (int j = 0; j < C; ++j) s[i][j] += x[i] * y[j];
  }
}

// acc[i][c] += sum_j P[ty*R + i][j] * B[j][c*TX + tx]; with `odd`, masked weights (-0) are skipped.
template <int R, int COLS, int D>
__device__ __forceinline__ void add_weighted(AT (&acc)[R][UP(D, TX)], const AT* p, int ldp, const AT* b, int ldb,
                                             int odd, int tx, int ty) {
  #pragma unroll 2
  for (int j = 0; j < COLS; ++j) {
    AT w[R];
    #pragma unroll
    for (int i = 0; i < R; ++i) w[i] = p[(ty * R + i) * ldp + j];
    #pragma unroll
    for (int c = 0; c < UP(D, TX); ++c) {
      if (D % TX && c * TX + tx >= D) continue;
      const AT x = b[j * ldb + c * TX + tx];
      #pragma unroll
      for (int i = 0; i < R; ++i)
        if (!odd || !is_masked(w[i])) acc[i][c] += w[i] * x;
    }
  }
}

template <int R, int W> __device__ __forceinline__ void clear(AT (&acc)[R][W]) {
  #pragma unroll
  for (int i = 0; i < R; ++i)
    #pragma unroll
    for (int c = 0; c < W; ++c) acc[i][c] = 0;
}

template <int R, int D>
__device__ __forceinline__ void store_rows(ST* to, const AT (&acc)[R][UP(D, TX)], int first, int count, int tx, int ty) {
  #pragma unroll
  for (int i = 0; i < R; ++i) {
    const int row = first + ty * R + i;
    if (row >= count) continue;
    #pragma unroll
    for (int c = 0; c < UP(D, TX); ++c)
      if (D % TX == 0 || c * TX + tx < D) to[(size_t)row * D + c * TX + tx] = (ST)acc[i][c];
  }
}

// grid (ceil(n / BM) * batch * heads). empty: 0 gives 0 for a row without keys, 1 gives NaN.
extern "C" __global__ void __launch_bounds__(THREADS)
attention_forward(const ST* __restrict__ q, const ST* __restrict__ k, const ST* __restrict__ v, ST* __restrict__ o,
                  AT* __restrict__ lse, const AT* __restrict__ sink, int empty, MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int RM = BM / TY, LQ = HD + 1, LK = (HD > HV ? HD : HV) + 1, LP = BN + 1;
  AT* Qs = (AT*)shared_bytes;  // BM x LQ
  AT* Ks = Qs + BM * LQ;       // BN x LK, first keys, then values
  AT* Ps = Ks + BN * LK;       // BM x LP
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const Place place = place_of_block(n, BM);
  const int row0 = place.first;
  const size_t head = place.head, kv_head = head / groups;
  const Meaning call = MEANING_OF(head);
  q += head * n * HD; o += head * n * HV; lse += head * n;
  k += kv_head * m * HD; v += kv_head * m * HV;

  load_rows<BM, HD, THREADS>(Qs, LQ, q, row0, n);
  AT acc[RM][UP(HV, TX)], top[RM], sum[RM];
  clear(acc);
  #pragma unroll
  for (int i = 0; i < RM; ++i) { top[i] = -infinity((AT)0); sum[i] = 0; }

  const int end = call.end_key(row0 + BM < n ? row0 + BM : n);
  for (int j0 = call.first_key(row0) / BN * BN; j0 < end; j0 += BN) {
    __syncthreads();
    load_rows<BN, HD, THREADS>(Ks, LK, k, j0, m);
    __syncthreads();
    AT s[RM][RN];
    dot_rows<RM, RN, HD>(s, Qs, LQ, Ks, LK, tx, ty);
    #pragma unroll
    for (int i = 0; i < RM; ++i) {
      AT t = top[i];
      #pragma unroll
      for (int j = 0; j < RN; ++j) {
        AT slope;
        const AT x = call.score(s[i][j], slope);
        s[i][j] = call.sees(row0 + ty * RM + i, j0 + j * TX + tx) ? x : -infinity((AT)0);
        t = larger(t, s[i][j]);
      }
      #pragma unroll
      for (int w = 1; w < TX; w <<= 1) t = larger(t, __shfl_xor_sync(FULL_WARP, t, w));
      const AT base = t == -infinity((AT)0) ? (AT)0 : t;
      const AT shrink = exp_(top[i] - base);
      AT part = 0;
      #pragma unroll
      for (int j = 0; j < RN; ++j) {
        const AT p = s[i][j] == -infinity((AT)0) ? -(AT)0 : exp_(s[i][j] - base);
        part += p;
        Ps[(ty * RM + i) * LP + j * TX + tx] = p;
      }
      #pragma unroll
      for (int w = 1; w < TX; w <<= 1) part += __shfl_xor_sync(FULL_WARP, part, w);
      sum[i] = sum[i] * shrink + part;
      top[i] = t;
      #pragma unroll
      for (int c = 0; c < UP(HV, TX); ++c) acc[i][c] *= shrink;
    }
    __syncthreads();
    const int odd = __syncthreads_or(load_rows<BN, HV, THREADS>(Ks, LK, v, j0, m));
    add_weighted<RM, BN, HV>(acc, Ps, LP, Ks, LK, odd, tx, ty);
  }

  #pragma unroll
  for (int i = 0; i < RM; ++i) {
    const int row = row0 + ty * RM + i;
    AT factor = 1;
    if (sink != nullptr && sink[head % heads] != -infinity((AT)0)) {  // minus infinity: no sink
      const AT x = sink[head % heads], t = larger(top[i], x);
      factor = exp_(top[i] - t);
      sum[i] = sum[i] * factor + exp_(x - t);
      top[i] = t;
    }
    const bool none = sum[i] == (AT)0;
    const AT weight = none ? (AT)0 : factor / sum[i];
    #pragma unroll
    for (int c = 0; c < UP(HV, TX); ++c) {
      acc[i][c] *= weight;
      if (none) acc[i][c] = empty ? infinity((AT)0) - infinity((AT)0) : (AT)0;
    }
    if (row < n && tx == 0) lse[row] = none ? -infinity((AT)0) : top[i] + log_(sum[i]);
  }
  store_rows<RM, HV>(o, acc, row0, n, tx, ty);
}

// One tile of weights and score gradients. Rows of the tile are rows of A (queries, or keys when SWAPPED); p and ds
// are left in shared memory, masked ones as -0.
template <int R, int C, bool SWAPPED>
__device__ __forceinline__ void score_gradients(const AT* A, const AT* dA, const AT* B, const AT* dB, int ld, int ldv,
                                                AT* Ps, AT* Ds, int ldp, const AT* lse, const AT* delta,
                                                int first_row, int first_col, const Meaning& call, int tx, int ty) {
  AT s[R][C], dp[R][C];
  dot_rows<R, C, HD>(s, A, ld, B, ld, tx, ty);
  dot_rows<R, C, HV>(dp, dA, ldv, dB, ldv, tx, ty);
  #pragma unroll
  for (int i = 0; i < R; ++i)
    #pragma unroll
    for (int j = 0; j < C; ++j) {
      const int r = first_row + ty * R + i, c = first_col + j * TX + tx;
      const int query = SWAPPED ? c : r, key = SWAPPED ? r : c;
      AT slope, p = -(AT)0, ds = -(AT)0;
      const AT x = call.score(s[i][j], slope);
      if (call.sees(query, key) && x != -infinity((AT)0)) {
        p = exp_(x - lse[query]);
        ds = p * (dp[i][j] - delta[query]) * slope;
        if (ds == (AT)0) ds = 0;
      }
      const int at = (ty * R + i) * ldp + j * TX + tx;
      Ps[at] = p;
      Ds[at] = ds;
    }
}

// dQ. grid (ceil(n / BB) * batch * heads).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_q(const ST* __restrict__ q, const ST* __restrict__ k, const ST* __restrict__ v,
                     const ST* __restrict__ d_o, const AT* __restrict__ lse, const AT* __restrict__ delta,
                     ST* __restrict__ dq, MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int R = BB / TY, C = BB / TX, L = HD + 1, LV = HV + 1, LP = BB + 1;
  AT* Qs = (AT*)shared_bytes;
  AT* Os = Qs + BB * L;
  AT* Ks = Os + BB * LV;
  AT* Vs = Ks + BB * L;
  AT* Ps = Vs + BB * LV;
  AT* Ds = Ps + BB * LP;
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const Place place = place_of_block(n, BB);
  const int row0 = place.first;
  const size_t head = place.head, kv_head = head / groups;
  const Meaning call = MEANING_OF(head);
  q += head * n * HD; dq += head * n * HD; d_o += head * n * HV; lse += head * n; delta += head * n;
  k += kv_head * m * HD; v += kv_head * m * HV;

  load_rows<BB, HD, THREADS>(Qs, L, q, row0, n);
  load_rows<BB, HV, THREADS>(Os, LV, d_o, row0, n);
  AT acc[R][UP(HD, TX)];
  clear(acc);
  const int end = call.end_key(row0 + BB < n ? row0 + BB : n);
  for (int j0 = call.first_key(row0) / BB * BB; j0 < end; j0 += BB) {
    __syncthreads();
    int odd = load_rows<BB, HD, THREADS>(Ks, L, k, j0, m);
    load_rows<BB, HV, THREADS>(Vs, LV, v, j0, m);
    odd = __syncthreads_or(odd);
    score_gradients<R, C, false>(Qs, Os, Ks, Vs, L, LV, Ps, Ds, LP, lse, delta, row0, j0, call, tx, ty);
    __syncthreads();
    add_weighted<R, BB, HD>(acc, Ds, LP, Ks, L, odd, tx, ty);
  }
  store_rows<R, HD>(dq, acc, row0, n, tx, ty);
}

// dK and dV of one key tile, summed over the query heads of its group. grid (ceil(m / BB) * batch * kv_heads).
extern "C" __global__ void __launch_bounds__(THREADS)
attention_backward_kv(const ST* __restrict__ q, const ST* __restrict__ k, const ST* __restrict__ v,
                      const ST* __restrict__ d_o, const AT* __restrict__ lse, const AT* __restrict__ delta,
                      ST* __restrict__ dk, ST* __restrict__ dv, MEANING_PARAMETERS) {
  extern __shared__ __align__(16) unsigned char shared_bytes[];
  constexpr int R = BB / TY, C = BB / TX, L = HD + 1, LV = HV + 1, LP = BB + 1;
  AT* Ks = (AT*)shared_bytes;
  AT* Vs = Ks + BB * L;
  AT* Qs = Vs + BB * LV;
  AT* Os = Qs + BB * L;
  AT* Ps = Os + BB * LV;
  AT* Ds = Ps + BB * LP;
  const int tx = threadIdx.x % TX, ty = threadIdx.x / TX;
  const Place place = place_of_block(m, BB);
  const int key0 = place.first;
  const size_t kv_head = place.head;
  k += kv_head * m * HD; v += kv_head * m * HV; dk += kv_head * m * HD; dv += kv_head * m * HV;

  load_rows<BB, HD, THREADS>(Ks, L, k, key0, m);
  load_rows<BB, HV, THREADS>(Vs, LV, v, key0, m);
  AT acc_k[R][UP(HD, TX)], acc_v[R][UP(HV, TX)];
  clear(acc_k);
  clear(acc_v);
  for (int g = 0; g < groups; ++g) {
    const size_t head = kv_head * groups + g;
    const Meaning call = MEANING_OF(head);
    const int end = call.end_row(key0 + BB < m ? key0 + BB : m);
    for (int i0 = call.first_row(key0) / BB * BB; i0 < end; i0 += BB) {
      __syncthreads();
      int odd = load_rows<BB, HD, THREADS>(Qs, L, q + head * n * HD, i0, n);
      odd |= load_rows<BB, HV, THREADS>(Os, LV, d_o + head * n * HV, i0, n);
      odd = __syncthreads_or(odd);
      score_gradients<R, C, true>(Ks, Vs, Qs, Os, L, LV, Ps, Ds, LP, lse + head * n, delta + head * n, key0, i0, call,
                                  tx, ty);
      __syncthreads();
      add_weighted<R, BB, HV>(acc_v, Ps, LP, Os, LV, odd, tx, ty);
      add_weighted<R, BB, HD>(acc_k, Ds, LP, Qs, L, odd, tx, ty);
    }
  }
  store_rows<R, HD>(dk, acc_k, key0, m, tx, ty);
  store_rows<R, HV>(dv, acc_v, key0, m, tx, ty);
}
