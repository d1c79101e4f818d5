#include <cuda_runtime.h>

#include <algorithm>

#include "common/scale_add_args.h"

namespace glmv {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kMaxBlocks = 65535;

__global__ void __launch_bounds__(kThreads) scale_add_kernel(ScaleAddArgs args) {
  const int64_t stride = static_cast<int64_t>(gridDim.x) * kThreads;
  for (int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x; i < args.count; i += stride) {
    args.out[i] = fmaf(args.scale, args.x[i], args.y[i]);
  }
}

// Our copy of the CUDA runtime has its own notion of the current device: set it, and put it back.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    error_ = cudaGetDevice(&before_);
    if (error_ == cudaSuccess) error_ = cudaSetDevice(device);
  }
  ~OnDevice() {
    if (error_ == cudaSuccess) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  cudaError_t error() const { return error_; }

 private:
  int before_ = 0;
  cudaError_t error_;
};

}  // namespace
}  // namespace glmv

const char* glmv_scale_add_cuda(const glmv::ScaleAddArgs* args, void* stream) {
  using namespace glmv;
  if (args->count == 0) return nullptr;
  const OnDevice on_device(args->device);
  if (on_device.error() != cudaSuccess) return cudaGetErrorString(on_device.error());
  const auto blocks = static_cast<unsigned>(std::min((args->count + kThreads - 1) / kThreads, kMaxBlocks));
  scale_add_kernel<<<blocks, kThreads, 0, static_cast<cudaStream_t>(stream)>>>(*args);
  const cudaError_t error = cudaGetLastError();
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
