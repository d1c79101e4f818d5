#include "common/build_info.h"

const char* glmv_version() { return GLMV_VERSION; }
const char* glmv_compiler() { return GLMV_COMPILER; }
const char* glmv_flags() { return GLMV_FLAGS; }
const char* glmv_torch_built_with() { return GLMV_TORCH_VERSION; }
const char* glmv_torch_target() { return GLMV_TORCH_TARGET; }
const char* glmv_cuda_version() { return GLMV_CUDA_VERSION; }
const char* glmv_cuda_archs() { return GLMV_CUDA_ARCHS; }
