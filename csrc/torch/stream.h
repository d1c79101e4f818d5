// PyTorch's current CUDA stream.
#pragma once

#include <cstdint>

#include "common/macros.h"

namespace glmv::native {

// A cudaStream_t. Throws std::runtime_error under a torch without CUDA.
void* current_stream(int32_t device);

}  // namespace glmv::native

// 1 if this process's torch has CUDA streams, else 0.
GLMV_API int glmv_torch_has_streams();
