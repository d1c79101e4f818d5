// The kernel of the device self-test on PyTorch tensors.
#include "common/scale_add_args.h"

#include <torch/csrc/stable/ops.h>

#include <stdexcept>

#include "torch/adapt.h"
#include "torch/ops.h"
#include "torch/stream.h"

namespace glmv::native {

Tensor scale_add(const Tensor& x, const Tensor& y, double scale) {
  for (const auto& [name, tensor] : {std::pair{"x", &x}, std::pair{"y", &y}}) {
    const View got = view(*tensor);
    const bool fits =
        got.dtype == DType::kFloat32 && got.sizes == view(x).sizes && got.device == view(x).device;
    if (!fits || !tensor->is_contiguous())
      fail("scale_add", name, "float32, contiguous, of the shape and device of x", describe(got));
  }
  const Tensor out = torch::stable::new_empty(x, x.sizes());
  const ScaleAddArgs args = {.x = static_cast<const float*>(x.data_ptr()),
                             .y = static_cast<const float*>(y.data_ptr()),
                             .out = static_cast<float*>(out.data_ptr()),
                             .count = x.numel(),
                             .scale = static_cast<float>(scale),
                             .device = x.get_device_index()};
  if (const char* error = glmv_scale_add_cuda(&args, current_stream(args.device)))
    throw std::runtime_error(std::string("scale_add: CUDA says: ") + error);
  return out;
}

}  // namespace glmv::native
