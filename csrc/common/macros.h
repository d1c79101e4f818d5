// Attributes that the kernels and the C ABI need.
#pragma once

// Symbols of libglmv.so that other libraries may call; everything else is hidden.
#define GLMV_API extern "C" __attribute__((visibility("default")))

// Kernel code that is compiled into each per-ISA function. It must be inlined: only then does the compiler
// vectorise it with the instruction set of its caller.
#define GLMV_INLINE [[gnu::always_inline]] inline

#if defined(__x86_64__)
#define GLMV_HAS_AVX2 1
#define GLMV_TARGET_AVX2 __attribute__((target("avx2")))
#else
#define GLMV_HAS_AVX2 0
#endif
