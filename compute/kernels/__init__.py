"""CUDA kernels of our own: sources (*.cuh), how they are compiled and launched, and an emulator for the CPU.

Guarantees: one source for NVRTC and for the emulator; importing this package loads no GPU library.
Does not: promise speed; what was measured on a device lies under `benchmarks/device/`.
"""
