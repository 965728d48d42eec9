// Philox4x64-10 (Salmon, Moraes, Dror, Shaw 2011, "Parallel random numbers: as easy as 1, 2, 3", section 4.3),
// counted as NumPy counts it, so that words and uniforms are the bits of compute.streams.Stream(seed, experiment,
// replicate): word i is lane i % 4 of the block with counter (i / 4 + 1, 0, 0, replicate).
#ifndef AT
#define AT double
#endif

typedef unsigned long long word;
struct Words { word w[4]; };
struct Key { word a, b; };

__device__ __forceinline__ Words philox(word block, word replicate, Key key) {
  word x = block, y = 0, z = 0, w = replicate;
  #pragma unroll
  for (int round = 0; round < 10; ++round) {
    const word high0 = __umul64hi(0xD2E7470EE14C6C93ull, x), low0 = 0xD2E7470EE14C6C93ull * x;
    const word high1 = __umul64hi(0xCA5A826395121157ull, z), low1 = 0xCA5A826395121157ull * z;
    x = high1 ^ y ^ key.a;
    z = high0 ^ w ^ key.b;
    y = low1;
    w = low0;
    key.a += 0x9E3779B97F4A7C15ull;
    key.b += 0xBB67AE8584CAA73Bull;
  }
  return Words{{x, y, z, w}};
}

// Odd multiples of 2^-53: never 0, never 1.
__device__ __forceinline__ double open_unit(word w) { return ((double)(w >> 12) + 0.5) * 2.220446049250313e-16; }

__device__ __forceinline__ void box_muller(double radius, double angle, double& x, double& y) {
  double s, c;
  sincospi(2.0 * angle, &s, &c);
  const double r = sqrt(-2.0 * log(radius));
  x = r * c;
  y = r * s;
}
// In float the radius keeps the range of its 53-bit uniform, up to |z| = 8.57; a 24-bit one would stop at 5.9. Near 1
// the logarithm is taken of the exact complement, or a radius near 0 would keep no digit.
__device__ __forceinline__ void box_muller(double radius, double angle, float& x, float& y) {
  float s, c;
  sincospif(2.0f * (float)angle, &s, &c);
  const float r = sqrtf(-2.0f * (radius > 0.5 ? log1pf((float)(radius - 1.0)) : logf((float)radius)));
  x = r * c;
  y = r * s;
}

// Normals come in chunks of 16384: pair r of a chunk of `part` takes word r as radius and word part / 2 + r as angle,
// and gives normals r (cosine) and part / 2 + r (sine), as compute.streams does. Here four pairs at once; count must
// be a multiple of 8.
#define CHUNK 16384
struct Four { AT cosine[4], sine[4]; word first, second; };  // where the two runs of four normals begin

__device__ __forceinline__ Four four_pairs(word quad, word count, word replicate, Key key) {
  const word chunk = quad / (CHUNK / 8), start = chunk * CHUNK, rest = count - start;
  const word half = (rest < CHUNK ? rest : CHUNK) / 2, at = (quad - chunk * (CHUNK / 8)) * 4;
  Four out;
  out.first = start + at;
  out.second = start + half + at;
  const Words radius = philox(out.first / 4 + 1, replicate, key), angle = philox(out.second / 4 + 1, replicate, key);
  #pragma unroll
  for (int i = 0; i < 4; ++i) box_muller(open_unit(radius.w[i]), open_unit(angle.w[i]), out.cosine[i], out.sine[i]);
  return out;
}

extern "C" __global__ void philox_words(word* out, word blocks, word replicate, word key_a, word key_b) {
  for (word i = blockIdx.x * (word)blockDim.x + threadIdx.x; i < blocks; i += (word)gridDim.x * blockDim.x) {
    const Words r = philox(i + 1, replicate, Key{key_a, key_b});
    #pragma unroll
    for (int j = 0; j < 4; ++j) out[4 * i + j] = r.w[j];
  }
}

extern "C" __global__ void philox_uniforms(double* out, word blocks, word replicate, word key_a, word key_b) {
  for (word i = blockIdx.x * (word)blockDim.x + threadIdx.x; i < blocks; i += (word)gridDim.x * blockDim.x) {
    const Words r = philox(i + 1, replicate, Key{key_a, key_b});
    #pragma unroll
    for (int j = 0; j < 4; ++j) out[4 * i + j] = open_unit(r.w[j]);
  }
}

extern "C" __global__ void philox_normals(AT* out, word count, word replicate, word key_a, word key_b) {
  for (word i = blockIdx.x * (word)blockDim.x + threadIdx.x; i < count / 8; i += (word)gridDim.x * blockDim.x) {
    const Four f = four_pairs(i, count, replicate, Key{key_a, key_b});
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      out[f.first + j] = f.cosine[j];
      out[f.second + j] = f.sine[j];
    }
  }
}
