#include "torch/adapt.h"

#include <torch/csrc/stable/ops.h>

namespace glmv::native {
namespace {

DType dtype_of(const torch::stable::Tensor& tensor) {
  using torch::headeronly::ScalarType;
  switch (tensor.scalar_type()) {
    case ScalarType::Float:
      return DType::kFloat32;
    case ScalarType::BFloat16:
      return DType::kBFloat16;
    case ScalarType::Half:
      return DType::kFloat16;
    case ScalarType::Int:
      return DType::kInt32;
    case ScalarType::Long:
      return DType::kInt64;
    case ScalarType::Double:
      return DType::kFloat64;
    default:
      return DType::kOther;
  }
}

std::string device_of(const torch::stable::Tensor& tensor) {
  if (tensor.is_cpu()) return "cpu";
  return tensor.is_cuda() ? "cuda:" + std::to_string(tensor.get_device_index()) : "another device";
}

void run(void*, int64_t count, int64_t grain, RangeFn fn, void* context) {
  torch::stable::parallel_for(0, count, grain, [=](int64_t begin, int64_t end) { fn(begin, end, context); });
}

}  // namespace

View view(const torch::stable::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  const auto strides = tensor.strides();
  return {.data = tensor.data_ptr(),
          .dtype = dtype_of(tensor),
          .sizes = {sizes.begin(), sizes.end()},
          .strides = {strides.begin(), strides.end()},
          .device = device_of(tensor),
          .read_only = false};
}

const Parallel kTorchPool = {.run = run, .pool = nullptr};

}  // namespace glmv::native
