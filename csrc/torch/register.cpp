// The schemas of torch.ops.glmv_native and their kernels. glmv/ops calls them after its own checks; fakes
// and autograd live there, in Python.
#include <torch/csrc/stable/library.h>

#include "torch/ops.h"

using namespace glmv::native;

STABLE_TORCH_LIBRARY(glmv_native, m) {
  // clang-format off
  // rope: a call without keys passes k as [T, 0, D].
  m.def("rope(Tensor q, Tensor k, Tensor pos, Tensor inv_freq, Tensor axis_of_lane, bool adjacent, bool conjugate) -> (Tensor, Tensor)");
  m.def("rope_(Tensor(a!) q, Tensor(b!) k, Tensor pos, Tensor inv_freq, Tensor axis_of_lane, bool adjacent, bool conjugate) -> ()");
#ifdef GLMV_WITH_CUDA
  m.def("scale_add(Tensor x, Tensor y, float scale) -> Tensor");  // device self-test
#endif
  // clang-format on
}

STABLE_TORCH_LIBRARY_IMPL(glmv_native, CPU, m) {
  m.impl("rope", TORCH_BOX(&rope));
  m.impl("rope_", TORCH_BOX(&rope_));
}

#ifdef GLMV_WITH_CUDA
STABLE_TORCH_LIBRARY_IMPL(glmv_native, CUDA, m) { m.impl("scale_add", TORCH_BOX(&scale_add)); }
#endif
