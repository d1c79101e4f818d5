// out = scale * x + y on a CUDA device: the kernel of the device self-test. It proves that this build, the
// driver and the GPU fit, and that work goes to PyTorch's stream.
#pragma once

#include <cstdint>

#include "common/macros.h"

namespace glmv {

struct ScaleAddArgs {
  const float* x;  // [count]
  const float* y;  // [count]
  float* out;      // [count], may be x or y
  int64_t count;
  float scale;
  int32_t device;  // where all three are
};

}  // namespace glmv

// Launch on `stream` (a cudaStream_t). Null, or what CUDA says is wrong.
GLMV_API const char* glmv_scale_add_cuda(const glmv::ScaleAddArgs* args, void* stream);
