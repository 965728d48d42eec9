// One warp's float64 matrix product C (16 x 8) += A (16 x 4*KK) B (4*KK x 8), and its twin for the emulator.
//
// Lane (g, t) = (lane / 4, lane % 4) holds, as the PTX manual lays out mma.m16n8k{4,8,16} for .f64:
//   a[2*i], a[2*i + 1]  A[g][4*i + t], A[g + 8][4*i + t]      b[i]  B[4*i + t][g]
//   c[0], c[1]          C[g][2*t], C[g][2*t + 1]              c[2], c[3]  the same in row g + 8
// m16n8k8 and m16n8k16 need sm_90.
template <int KK> __device__ __forceinline__ void mma(double (&c)[4], const double (&a)[2 * KK], const double (&b)[KK]);

#ifdef __CUDACC__
template <> __device__ __forceinline__ void mma<2>(double (&c)[4], const double (&a)[4], const double (&b)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(b[0]), "d"(b[1]));
}
template <> __device__ __forceinline__ void mma<4>(double (&c)[4], const double (&a)[8], const double (&b)[4]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f64.f64.f64.f64 {%0,%1,%2,%3}, {%4,%5,%6,%7,%8,%9,%10,%11}, "
      "{%12,%13,%14,%15}, {%0,%1,%2,%3};"
      : "+d"(c[0]), "+d"(c[1]), "+d"(c[2]), "+d"(c[3])
      : "d"(a[0]), "d"(a[1]), "d"(a[2]), "d"(a[3]), "d"(a[4]), "d"(a[5]), "d"(a[6]), "d"(a[7]), "d"(b[0]), "d"(b[1]),
        "d"(b[2]), "d"(b[3]));
}
#else
template <int KK> inline void mma(double (&c)[4], const double (&a)[2 * KK], const double (&b)[KK]) {
  struct Fragments { const double *a, *b; } mine{a, b};
  const int lane = emulator::lane(), warp = emulator::here->current->number - lane, g = lane >> 2, t = lane & 3;
  emulator::here->current->slot = (uint64_t)&mine;
  emulator::wait(emulator::AT_WARP);
  auto of = [&](int other) { return (const Fragments*)emulator::here->fibers[warp + other].slot; };
  double result[4];
  for (int i = 0; i < 4; ++i) {
    const int high = i >> 1, column = 2 * t + (i & 1);
    double sum = c[i];
    for (int k = 0; k < 4 * KK; ++k)
      sum += of(g * 4 + (k & 3))->a[2 * (k >> 2) + high] * of(column * 4 + (k & 3))->b[k >> 2];
    result[i] = sum;
  }
  emulator::wait(emulator::AT_WARP);
  for (int i = 0; i < 4; ++i) c[i] = result[i];
}
#endif
