// Shared by every attention kernel; compiled by NVRTC, and as C++17 by the emulator (emulator.h).
//
// Macros a kernel is compiled with:
//   ST  storage type of q, k, v and the outputs     AT  type of all arithmetic
//   HD  channels of q and k                         HV  channels of v
#ifndef ST
#define ST float
#endif
#ifndef AT
#define AT float
#endif
#ifndef HD
#define HD 64
#endif
#ifndef HV
#define HV HD
#endif

#define FULL_WARP 0xffffffffu
#define UP(a, b) (((a) + (b) - 1) / (b))

// NVRTC defines neither INFINITY nor NAN.
__device__ __forceinline__ float infinity(float) { return __int_as_float(0x7f800000); }
__device__ __forceinline__ double infinity(double) { return (double)__int_as_float(0x7f800000); }
__device__ __forceinline__ float exp_(float x) { return expf(x); }
__device__ __forceinline__ double exp_(double x) { return exp(x); }
__device__ __forceinline__ float log_(float x) { return logf(x); }
__device__ __forceinline__ double log_(double x) { return log(x); }
__device__ __forceinline__ float tanh_(float x) { return tanhf(x); }
__device__ __forceinline__ double tanh_(double x) { return tanh(x); }
template <class T> __device__ __forceinline__ T larger(T a, T b) { return a > b ? a : b; }

// By bits, not by comparison: -0 marks what is masked, +0 what underflowed.
__device__ __forceinline__ bool is_masked(float p) { return __float_as_int(p) == (int)0x80000000; }
__device__ __forceinline__ bool is_masked(double p) { return __double_as_longlong(p) == (long long)0x8000000000000000ull; }

template <class T> __device__ __forceinline__ bool not_finite(T x) { return !(x - x == (T)0); }

// The head and the first row (or key) of this block: heads lie one after another along grid.x, since grid.y ends at
// 65535. grid.x = heads * ceil(count / tile).
struct Place { size_t head; int first; };
__device__ __forceinline__ Place place_of_block(int count, int tile) {
  const unsigned tiles = UP((unsigned)count, (unsigned)tile);
  return Place{blockIdx.x / tiles, (int)(blockIdx.x % tiles) * tile};
}

// How the arrays of one call are read; filled from the kernel's arguments. Causal corner and window are one band of
// diagonals; the caller brings -n <= low, high <= m and n + m < 2^31, so that no sum below leaves 32 bits.
struct Meaning {
  int n, m;                // rows (queries), keys
  int low, high;           // row i sees key j only if low <= j - i <= high
  AT scale, softcap;       // softcap 0: none
  const unsigned char* mask;  // n x m, 1: this key takes part; null: all do

  __device__ __forceinline__ bool sees(int i, int j) const {
    const int gap = j - i;
    if (i >= n || j >= m) return false;
    if (gap > high || gap < low) return false;
    return mask == nullptr || mask[(size_t)i * m + j] != 0;
  }
  // First and one-past-last key that rows [row0, row1) can see, by the band alone.
  __device__ __forceinline__ int first_key(int row0) const {
    const int first = row0 + low;
    return first < 0 ? 0 : (first < m ? first : m);
  }
  __device__ __forceinline__ int end_key(int row1) const {
    const int end = row1 + high;
    return end < 0 ? 0 : (end < m ? end : m);
  }
  // The same seen from keys [key0, key1): which rows can see any of them.
  __device__ __forceinline__ int first_row(int key0) const {
    const int first = key0 - high;
    return first < 0 ? 0 : (first < n ? first : n);
  }
  __device__ __forceinline__ int end_row(int key1) const {
    const int end = key1 - low;
    return end < 0 ? 0 : (end < n ? end : n);
  }
  // Score after scale and softcap; `slope` is its derivative by q.k.
  __device__ __forceinline__ AT score(AT dot, AT& slope) const {
    const AT x = dot * scale;
    slope = scale;
    if (softcap == (AT)0) return x;
    const AT t = tanh_(x / softcap);
    slope = scale * ((AT)1 - t * t);
    return softcap * t;
  }
};

#define MEANING_PARAMETERS                                                                        \
  const unsigned char *__restrict__ mask, long long mask_batch, long long mask_head, int n, int m, \
      int heads, int groups, AT scale, int low, int high, AT softcap

#define MEANING_ARGUMENTS mask, mask_batch, mask_head, n, m, heads, groups, scale, low, high, softcap

#define MEANING_OF(head_index)                                                                     \
  Meaning {                                                                                        \
    n, m, low, high, scale, softcap,                                                               \
        mask == nullptr ? nullptr                                                                  \
                        : mask + ((head_index) / heads) * mask_batch + ((head_index) % heads) * mask_head \
  }

// Copy rows [first, first + ROWS) of a (count x CHANNELS) array to shared memory as AT, zero beyond the end.
// Returns whether this thread met a value that is not finite.
template <int ROWS, int CHANNELS, int THREADS>
__device__ __forceinline__ int load_rows(AT* to, int stride, const ST* from, int first, int count) {
  int odd = 0;
  for (int i = threadIdx.x; i < ROWS * CHANNELS; i += THREADS) {
    const int r = i / CHANNELS, c = i % CHANNELS;
    AT x = 0;
    if (first + r < count) {
      x = (AT)from[(size_t)(first + r) * CHANNELS + c];
      odd |= not_finite(x);
    }
    to[r * stride + c] = x;
  }
  return odd;
}
