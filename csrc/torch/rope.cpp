// rope on PyTorch tensors: check -> Args -> launch.
#include <torch/csrc/stable/ops.h>

#include "common/rope_args.h"
#include "torch/adapt.h"
#include "torch/ops.h"

namespace glmv::native {
namespace {

void launch(const Tensor& q, const Tensor& k, const Tensor& q_out, const Tensor& k_out, const Tensor& pos,
            const Tensor& inv_freq, const Tensor& axis_of_lane, bool adjacent, bool conjugate) {
  const RopeArgs args = rope_args(view(q), view(k), view(pos), view(inv_freq), view(axis_of_lane),
                                  view(q_out), view(k_out), adjacent, conjugate);
  glmv_rope(&args, &kTorchPool);
}

}  // namespace

std::tuple<Tensor, Tensor> rope(const Tensor& q, const Tensor& k, const Tensor& pos, const Tensor& inv_freq,
                                const Tensor& axis_of_lane, bool adjacent, bool conjugate) {
  const Tensor q_out = torch::stable::new_empty(q, q.sizes());
  const Tensor k_out = torch::stable::new_empty(k, k.sizes());
  launch(q, k, q_out, k_out, pos, inv_freq, axis_of_lane, adjacent, conjugate);
  return {q_out, k_out};
}

void rope_(const Tensor& q, const Tensor& k, const Tensor& pos, const Tensor& inv_freq,
           const Tensor& axis_of_lane, bool adjacent, bool conjugate) {
  launch(q, k, q, k, pos, inv_freq, axis_of_lane, adjacent, conjugate);
}

}  // namespace glmv::native
