// The 16-bit formats: storage only, every operation is done in float. Conversions to them round to nearest even.
// Written out, so that no header of the CUDA toolkit is needed where kernels are compiled.
#ifdef __CUDACC__
struct binary16 {
  unsigned short bits;
  binary16() = default;
  __device__ __forceinline__ explicit binary16(float x) { asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ __forceinline__ operator float() const {
    float x;
    asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
    return x;
  }
};
struct bfloat16 {
  unsigned short bits;
  bfloat16() = default;
  __device__ __forceinline__ explicit bfloat16(float x) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x)); }
  __device__ __forceinline__ operator float() const { return __int_as_float((int)bits << 16); }
};
#endif
