// The native ops: one family per file, registered in register.cpp.
#pragma once

#include <torch/csrc/stable/tensor.h>

#include <tuple>

namespace glmv::native {

using torch::stable::Tensor;

// rope.cpp
std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& pos, const Tensor& inv_freq,
                                const Tensor& axis_of_lane, bool adjacent, bool conjugate);
void rope_(const Tensor& q, const Tensor& k, const Tensor& pos, const Tensor& inv_freq,
           const Tensor& axis_of_lane, bool adjacent, bool conjugate);

// scale_add.cpp, in builds with CUDA
Tensor scale_add(const Tensor& x, const Tensor& y, double scale);

}  // namespace glmv::native
