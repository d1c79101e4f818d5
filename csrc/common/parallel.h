// How a kernel spreads its work over threads. The caller brings the pool, so that a process never has two:
// PyTorch's own in _torch.so (torch.set_num_threads applies), plain threads in _C.
#pragma once

#include <cstdint>

namespace glmv {

// One part of the work: items [begin, end).
using RangeFn = void (*)(int64_t begin, int64_t end, void* context);

// A thread pool: `run` calls `fn` on parts that cover [0, count), of some `grain` items or more, possibly at
// the same time. `pool` is its own business.
struct Parallel {
  void (*run)(void* pool, int64_t count, int64_t grain, RangeFn fn, void* context);
  void* pool;
};

// Fewer elements than this are not worth a second thread.
constexpr int64_t kGrainElements = 32768;

}  // namespace glmv
