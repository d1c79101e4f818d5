// What this build of libglmv.so is. Text that lives as long as the library; empty where it does not apply.
#pragma once

#include "common/macros.h"

GLMV_API const char* glmv_version();
GLMV_API const char* glmv_compiler();
GLMV_API const char* glmv_flags();
GLMV_API const char* glmv_torch_built_with();  // the torch whose headers _torch.so was compiled with
GLMV_API const char* glmv_torch_target();      // the oldest torch that _torch.so loads under
GLMV_API const char* glmv_cuda_version();      // "13.0.88", the nvcc; empty: built without CUDA
GLMV_API const char* glmv_cuda_archs();        // "80+PTX;90;100;120"
