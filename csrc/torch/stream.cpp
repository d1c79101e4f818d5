#include "torch/stream.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>

#include <stdexcept>

// Lives in libtorch_cuda.so. Weak: under a torch without CUDA it is null, and this library still loads.
extern "C" __attribute__((weak)) AOTITorchError aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                                   void** ret_stream);

namespace glmv::native {

void* current_stream(int32_t device) {
  if (!aoti_torch_get_current_cuda_stream) throw std::runtime_error("this torch was built without CUDA");
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device, &stream) != AOTI_TORCH_SUCCESS)
    throw std::runtime_error("torch has no current stream for cuda:" + std::to_string(device));
  return stream;
}

}  // namespace glmv::native

int glmv_torch_has_streams() { return aoti_torch_get_current_cuda_stream != nullptr; }
