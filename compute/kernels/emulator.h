// Runs CUDA kernel source on a CPU: every CUDA thread is a fiber, barriers and shuffles hand control to a scheduler.
//
// Shows: wrong indices, missing or divergent barriers, shuffles that read a lane too few, bad masks, wrong arithmetic.
// Can't show: the hardware's rounding of fused operations, races between blocks, speed.
//
// Needs C++17, GCC or Clang, x86-64 (the context switch is written for the System V calling convention).
#pragma once
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_UNPOISON_MEMORY_REGION(address, bytes) ((void)0)
#endif

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))
#define __shared__ thread_local

namespace emulator {

struct Index { unsigned x, y, z; };
enum State { RUNNING, AT_WARP, AT_BLOCK, DONE };

extern "C" void emulator_switch(void** save, void* load);
asm(R"(
.text
.globl emulator_switch
.type emulator_switch,@function
emulator_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
)");

struct Fiber {
  void* stack_pointer;
  char* stack;
  State state;
  Index thread;
  int number;          // within the block
  uint64_t slot;       // what this lane offers to a shuffle, vote or mma
};

constexpr size_t STACK_BYTES = 256 * 1024;
constexpr int WARP = 32;

struct Block {
  std::vector<Fiber> fibers;
  Fiber* current = nullptr;
  void* scheduler = nullptr;
  void (*entry)(void*) = nullptr;
  void* environment = nullptr;
  Index index{}, size{}, grid{};
};
inline thread_local Block* here = nullptr;

inline void wait(State state) {
  Fiber* me = here->current;
  me->state = state;
  emulator_switch(&me->stack_pointer, here->scheduler);
}
inline void fiber_main() {
  here->entry(here->environment);
  wait(DONE);
  abort();
}
// Only the scheduler fails, never a fiber, so the exception has a whole stack to unwind.
[[noreturn]] inline void fail(const char* what) {
  char text[200];
  snprintf(text, sizeof text, "%s in block (%u, %u, %u)", what, here->index.x, here->index.y, here->index.z);
  throw std::runtime_error(text);
}

inline void start(Fiber& fiber) {
  ASAN_UNPOISON_MEMORY_REGION(fiber.stack, STACK_BYTES);
  void** top = (void**)(fiber.stack + STACK_BYTES);
  *--top = nullptr;                     // keeps the stack aligned as after a call
  *--top = (void*)fiber_main;
  for (int i = 0; i < 6; ++i) *--top = nullptr;
  fiber.stack_pointer = top;
  fiber.state = RUNNING;
}

// Schedules: 0 in order, 1 reversed, 2 shuffled, 3 the first warp runs ahead, 4 the last warp runs ahead.
struct Scheduler {
  Block& block;
  int schedule;
  std::mt19937 random;
  int alive = 0;
  std::vector<int> order;

  bool run(int from, int to) {
    bool moved = false;
    for (int at = from; at < to; ++at) {
      Fiber& fiber = block.fibers[order[at]];
      if (fiber.state != RUNNING) continue;
      block.current = &fiber;
      emulator_switch(&block.scheduler, fiber.stack_pointer);
      moved = true;
      if (fiber.state == DONE) --alive;
    }
    return moved;
  }
  bool release_warp(int first) {
    const int end = std::min<int>(first + WARP, block.fibers.size());
    int waiting = 0, done = 0;
    for (int i = first; i < end; ++i) {
      waiting += block.fibers[i].state == AT_WARP;
      done += block.fibers[i].state == DONE;
    }
    if (waiting == 0 || waiting + done != end - first) return false;
    if (done != 0) fail("a warp operation was reached by part of the warp");
    for (int i = first; i < end; ++i) block.fibers[i].state = RUNNING;
    return true;
  }
  bool step() {
    const int n = block.fibers.size();
    bool moved = false;
    if (schedule < 3) {
      moved = run(0, n);
      for (int w = 0; w < n; w += WARP) moved |= release_warp(w);
      return moved;
    }
    const int warps = (n + WARP - 1) / WARP;
    for (int z = 0; z < warps; ++z) {
      const int w = WARP * (schedule == 3 ? z : warps - 1 - z), end = std::min(w + WARP, n);
      for (bool again = true; again;) {
        again = run(w, end);
        again |= release_warp(w);
        moved |= again;
      }
    }
    return moved;
  }
  bool release_block() {
    int waiting = 0;
    for (auto& fiber : block.fibers) waiting += fiber.state == AT_BLOCK;
    if (waiting == 0 || waiting != alive) return false;
    if (alive != (int)block.fibers.size()) fail("__syncthreads was reached by part of the block");
    for (auto& fiber : block.fibers) fiber.state = RUNNING;
    return true;
  }
  void run_block() {
    alive = block.fibers.size();
    order.resize(alive);
    for (int i = 0; i < alive; ++i) order[i] = schedule == 1 ? alive - 1 - i : i;
    for (auto& fiber : block.fibers) start(fiber);
    while (alive) {
      if (schedule == 2) std::shuffle(order.begin(), order.end(), random);
      bool moved = step();
      moved |= release_block();
      if (!moved && alive) fail("deadlock: a barrier was reached by part of the threads");
    }
  }
};

template <class Body> std::string launch(Index grid, Index size, Body&& body, int schedule, int threads) {
  std::atomic<size_t> next{0};
  std::string failure;
  std::mutex guard;
  const size_t blocks = (size_t)grid.x * grid.y * grid.z;
  auto work = [&](int seed) {
    Block block;
    here = &block;
    const size_t n = (size_t)size.x * size.y * size.z;
    block.size = size;
    block.grid = grid;
    block.fibers.resize(n);
    std::vector<char> memory(STACK_BYTES * n + 64);
    char* base = (char*)(((uintptr_t)memory.data() + 63) & ~(uintptr_t)63);
    for (size_t i = 0; i < n; ++i) {
      block.fibers[i].stack = base + STACK_BYTES * i;
      block.fibers[i].number = i;
      block.fibers[i].thread = {unsigned(i % size.x), unsigned(i / size.x % size.y), unsigned(i / (size.x * size.y))};
    }
    using F = std::remove_reference_t<Body>;
    block.environment = (void*)&body;
    block.entry = [](void* e) { (*(F*)e)(); };
    Scheduler scheduler{block, schedule, std::mt19937(seed)};
    for (size_t i; (i = next++) < blocks;) {
      block.index = {unsigned(i % grid.x), unsigned(i / grid.x % grid.y), unsigned(i / ((size_t)grid.x * grid.y))};
      try {
        scheduler.run_block();
      } catch (const std::runtime_error& error) {
        std::lock_guard<std::mutex> lock(guard);
        failure = error.what();
        next = blocks;
      }
    }
    here = nullptr;
  };
  std::vector<std::thread> helpers;
  for (int i = 1; i < threads; ++i) helpers.emplace_back(work, i);
  work(0);
  for (auto& helper : helpers) helper.join();
  return failure;
}

template <class... P, size_t... I>
void call(void (*kernel)(P...), void** arguments, std::index_sequence<I...>) {
  kernel(*(std::decay_t<P>*)arguments[I]...);
}
template <class... P> void call(void (*kernel)(P...), void** arguments) {
  call(kernel, arguments, std::index_sequence_for<P...>{});
}

template <class T> T from_lane(T value, int lane) {
  static_assert(sizeof(T) <= 8);
  Fiber* me = here->current;
  memcpy(&me->slot, &value, sizeof(T));
  wait(AT_WARP);
  T result;
  const size_t other = std::min<size_t>((me->number & ~(WARP - 1)) + lane, here->fibers.size() - 1);
  memcpy(&result, &here->fibers[other].slot, sizeof(T));
  wait(AT_WARP);
  return result;
}
inline int lane() { return here->current->number & (WARP - 1); }

// The 16-bit formats, rounded to nearest even; arithmetic happens in float.
inline uint32_t bits_of(float x) { uint32_t b; memcpy(&b, &x, 4); return b; }
inline float float_of(uint32_t b) { float x; memcpy(&x, &b, 4); return x; }
inline uint16_t to_bfloat16(float x) {
  const uint32_t b = bits_of(x);
  if (x != x) return uint16_t((b >> 16) | 0x40);
  return uint16_t((b + 0x7fff + ((b >> 16) & 1)) >> 16);
}
inline float from_half(uint16_t h) {
  const uint32_t sign = uint32_t(h & 0x8000) << 16, exponent = h >> 10 & 31, fraction = h & 0x3ff;
  if (exponent == 31) return float_of(sign | 0x7f800000 | fraction << 13);
  if (exponent) return float_of(sign | (exponent + 112) << 23 | fraction << 13);
  const float x = std::ldexp((float)fraction, -24);
  return sign ? -x : x;
}
inline uint16_t to_half(float x) {
  const uint32_t b = bits_of(x), sign = b >> 16 & 0x8000;
  const float a = std::fabs(x);
  if (x != x) return uint16_t(sign | 0x7e00);
  if (a >= 65520.0f) return uint16_t(sign | 0x7c00);
  if (a < 6.103515625e-05f) return uint16_t(sign | (uint32_t)std::nearbyint(std::ldexp(a, 24)));
  uint32_t r = bits_of(a);
  r += 0xfff + (r >> 13 & 1);
  return uint16_t(sign | (r - (112u << 23)) >> 13);
}

}  // namespace emulator

struct binary16 {
  uint16_t bits = 0;
  binary16() = default;
  explicit binary16(float x) : bits(emulator::to_half(x)) {}
  operator float() const { return emulator::from_half(bits); }
};
struct bfloat16 {
  uint16_t bits = 0;
  bfloat16() = default;
  explicit bfloat16(float x) : bits(emulator::to_bfloat16(x)) {}
  operator float() const { return emulator::float_of(uint32_t(bits) << 16); }
};

#define threadIdx (emulator::here->current->thread)
#define blockIdx (emulator::here->index)
#define blockDim (emulator::here->size)
#define gridDim (emulator::here->grid)

inline void __syncthreads() { emulator::wait(emulator::AT_BLOCK); }
inline int __syncthreads_or(int value) {
  emulator::here->current->slot = value != 0;
  emulator::wait(emulator::AT_BLOCK);
  int any = 0;
  for (auto& fiber : emulator::here->fibers) any |= fiber.slot != 0;
  emulator::wait(emulator::AT_BLOCK);
  return any;
}
inline void __syncwarp(unsigned = ~0u) { emulator::wait(emulator::AT_WARP); }
inline int __any_sync(unsigned, int value) {
  int any = 0;
  const int me = emulator::lane();
  for (int step = 0, seen = value != 0; step < 5; ++step) {
    seen |= emulator::from_lane(seen, me ^ (1 << step));
    any = seen;
  }
  return any;
}
template <class T> T __shfl_xor_sync(unsigned, T value, int mask) { return emulator::from_lane(value, emulator::lane() ^ mask); }
template <class T> T __shfl_sync(unsigned, T value, int lane) { return emulator::from_lane(value, lane & 31); }

inline float __int_as_float(int i) { float x; memcpy(&x, &i, 4); return x; }
inline int __float_as_int(float x) { int i; memcpy(&i, &x, 4); return i; }
inline long long __double_as_longlong(double x) { long long i; memcpy(&i, &x, 8); return i; }
inline double __longlong_as_double(long long i) { double x; memcpy(&x, &i, 8); return x; }
struct alignas(16) double2 { double x, y; };
template <class T> T __ldg(const T* at) { return *at; }
// Operations that are rounded by themselves: no compiler flag may fuse them (-ffp-contract=off is the module's default).
inline double __dadd_rn(double a, double b) { return a + b; }
inline double __dsub_rn(double a, double b) { return a - b; }
inline double __dmul_rn(double a, double b) { return a * b; }
inline double __fma_rn(double a, double b, double c) { return std::fma(a, b, c); }
inline unsigned __umulhi(unsigned a, unsigned b) { return unsigned((uint64_t)a * b >> 32); }
inline unsigned long long __umul64hi(unsigned long long a, unsigned long long b) {
  return (unsigned long long)((unsigned __int128)a * b >> 64);
}
inline void sincospi(double x, double* s, double* c) { *s = std::sin(M_PI * x); *c = std::cos(M_PI * x); }
inline void sincospif(float x, float* s, float* c) { *s = (float)std::sin(M_PI * (double)x); *c = (float)std::cos(M_PI * (double)x); }

// What Python calls: shape is grid x, y, z, block x, y, z. Returns what went wrong, or null.
#define EMULATED_KERNEL(name)                                                                                  \
  extern "C" const char* name##_emulated(const unsigned* shape, int schedule, int threads, void** arguments) { \
    static thread_local std::string failure;                                                                   \
    failure = emulator::launch({shape[0], shape[1], shape[2]}, {shape[3], shape[4], shape[5]},                 \
                               [&] { emulator::call(name, arguments); }, schedule, threads);                   \
    return failure.empty() ? nullptr : failure.c_str();                                                        \
  }
