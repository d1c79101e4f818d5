// PyTorch's tensors and thread pool in the terms of the kernels.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include "common/parallel.h"
#include "common/view.h"

namespace glmv::native {

View view(const torch::stable::Tensor& tensor);

// PyTorch's pool, through at::parallel_for: the one pool of the process; torch.set_num_threads applies.
extern const Parallel kTorchPool;

}  // namespace glmv::native
