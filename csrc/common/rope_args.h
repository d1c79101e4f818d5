// The arguments of the rope kernel: the only thing that passes between a front end and the kernel.
#pragma once

#include <cstdint>

#include "common/dtype.h"
#include "common/macros.h"
#include "common/parallel.h"

namespace glmv {

struct View;

// One tensor [T, heads, D] to rotate; strides in elements, 1 in the last dimension. `out` may be `in`.
struct RopeTensor {
  const void* in;
  void* out;
  int64_t heads;
  int64_t in_stride_token, in_stride_head;
  int64_t out_stride_token, out_stride_head;
};

struct RopeArgs {
  RopeTensor q, k;                        // k.heads = 0: there are no keys
  const void* pos;                        // [axes, tokens] pos_dtype
  const float* inv_freq;                  // [lanes]
  const void* axis_of_lane;               // [lanes] axis_dtype, each in [0, axes)
  int64_t tokens, head_dim, lanes, axes;  // 2 * lanes <= head_dim
  int64_t pos_stride_axis, pos_stride_token, inv_freq_stride, axis_stride;
  DType dtype, pos_dtype, axis_dtype;  // of q and k; kInt32 or kInt64; the same
  bool adjacent;                       // pairs (2i, 2i+1), else (i, i + lanes)
  bool conjugate;                      // turn by minus the angle: the inverse, and the backward pass
};

// The arguments for these tensors. Throws std::invalid_argument (WrongType for a dtype or device) if they do
// not fit; q and q_out, k and k_out may be the same.
RopeArgs rope_args(const View& q, const View& k, const View& pos, const View& inv_freq,
                   const View& axis_of_lane, const View& q_out, const View& k_out, bool adjacent,
                   bool conjugate);

}  // namespace glmv

// Rotate. Trusts its arguments: make them with rope_args.
GLMV_API void glmv_rope(const glmv::RopeArgs* args, const glmv::Parallel* parallel);
