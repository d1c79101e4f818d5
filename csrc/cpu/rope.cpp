// Rotary embedding on the CPU. Per token the sines and cosines are computed once, then shared by every head
// of q and k. One pass over memory; the loops over lanes vectorise.
#include "math/rope.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <vector>

#include "common/isa.h"
#include "common/rope_args.h"

namespace glmv {
namespace {

// What is the same for every token: where each lane finds its position, and its frequency.
struct Lane {
  int64_t pos_offset;
  float inv_freq;
};

GLMV_INLINE int64_t load_index(const void* data, DType dtype, int64_t i) {
  return dtype == DType::kInt32 ? static_cast<const int32_t*>(data)[i] : static_cast<const int64_t*>(data)[i];
}

std::vector<Lane> lanes_of(const RopeArgs& args) {
  std::vector<Lane> lanes(args.lanes);
  for (int64_t i = 0; i < args.lanes; ++i) {
    const int64_t axis = load_index(args.axis_of_lane, args.axis_dtype, i * args.axis_stride);
    lanes[i] = {axis * args.pos_stride_axis, args.inv_freq[i * args.inv_freq_stride]};
  }
  return lanes;
}

// cos, sin [lanes] of one token.
GLMV_INLINE void cos_sin(const RopeArgs& args, const Lane* lanes, int64_t token, float* cos, float* sin) {
  for (int64_t i = 0; i < args.lanes; ++i) {
    const int64_t at = lanes[i].pos_offset + token * args.pos_stride_token;
    sin[i] = static_cast<float>(load_index(args.pos, args.pos_dtype, at)) * lanes[i].inv_freq;
  }
  const float sign = args.conjugate ? -1.0f : 1.0f;
#pragma omp simd
  for (int64_t i = 0; i < args.lanes; ++i) {
    const SinCos turn = sincos(sin[i]);
    cos[i] = turn.cos;
    sin[i] = sign * turn.sin;
  }
}

// One head. x may be y: each step reads its pair before it writes it.
template <typename T>
GLMV_INLINE void rotate_half(const T* x, T* y, int64_t lanes, const float* cos, const float* sin) {
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) {
    const Pair turned = rotate({to_float(x[i]), to_float(x[i + lanes])}, cos[i], sin[i]);
    y[i] = from_float<T>(turned.a);
    y[i + lanes] = from_float<T>(turned.b);
  }
}

template <typename T>
GLMV_INLINE void rotate_adjacent(const T* x, T* y, int64_t lanes, const float* cos, const float* sin) {
#pragma omp simd
  for (int64_t i = 0; i < lanes; ++i) {
    const Pair turned = rotate({to_float(x[2 * i]), to_float(x[2 * i + 1])}, cos[i], sin[i]);
    y[2 * i] = from_float<T>(turned.a);
    y[2 * i + 1] = from_float<T>(turned.b);
  }
}

template <typename T>
GLMV_INLINE void rotate_token(const RopeArgs& args, const RopeTensor& tensor, int64_t token, const float* cos,
                              const float* sin) {
  const int64_t rotated = 2 * args.lanes;
  for (int64_t head = 0; head < tensor.heads; ++head) {
    const T* x =
        static_cast<const T*>(tensor.in) + token * tensor.in_stride_token + head * tensor.in_stride_head;
    T* y = static_cast<T*>(tensor.out) + token * tensor.out_stride_token + head * tensor.out_stride_head;
    if (args.adjacent) {
      rotate_adjacent(x, y, args.lanes, cos, sin);
    } else {
      rotate_half(x, y, args.lanes, cos, sin);
    }
    if (x != y) std::memcpy(y + rotated, x + rotated, (args.head_dim - rotated) * sizeof(T));
  }
}

template <typename T>
GLMV_INLINE void rotate_tokens(const RopeArgs& args, const Lane* lanes, float* scratch, int64_t begin,
                               int64_t end) {
  float* cos = scratch;
  float* sin = scratch + args.lanes;
  for (int64_t token = begin; token < end; ++token) {
    cos_sin(args, lanes, token, cos, sin);
    rotate_token<T>(args, args.q, token, cos, sin);
    rotate_token<T>(args, args.k, token, cos, sin);
  }
}

// The same code for each instruction set.
using Kernel = void (*)(const RopeArgs&, const Lane*, float*, int64_t, int64_t);

template <typename T>
void portable(const RopeArgs& args, const Lane* lanes, float* scratch, int64_t begin, int64_t end) {
  rotate_tokens<T>(args, lanes, scratch, begin, end);
}

#if GLMV_HAS_AVX2
template <typename T>
GLMV_TARGET_AVX2 void avx2(const RopeArgs& args, const Lane* lanes, float* scratch, int64_t begin,
                           int64_t end) {
  rotate_tokens<T>(args, lanes, scratch, begin, end);
}
#endif

template <typename T>
Kernel kernel_for(Isa isa) {
#if GLMV_HAS_AVX2
  if (isa == Isa::kAvx2) return avx2<T>;
#endif
  return portable<T>;
}

Kernel kernel_for(DType dtype, Isa isa) {
  if (dtype == DType::kBFloat16) return kernel_for<bf16>(isa);
  if (dtype == DType::kFloat16) return kernel_for<fp16>(isa);
  return kernel_for<float>(isa);
}

struct Job {
  const RopeArgs& args;
  const std::vector<Lane> lanes;
  const Kernel kernel;
};

void run_tokens(int64_t begin, int64_t end, void* context) {
  const auto& job = *static_cast<const Job*>(context);
  const auto scratch = std::make_unique<float[]>(2 * job.args.lanes);
  job.kernel(job.args, job.lanes.data(), scratch.get(), begin, end);
}

}  // namespace
}  // namespace glmv

void glmv_rope(const glmv::RopeArgs* args, const glmv::Parallel* parallel) {
  using namespace glmv;
  const int64_t elements_per_token = (args->q.heads + args->k.heads) * args->head_dim;
  if (args->tokens == 0 || elements_per_token == 0) return;
  Job job{*args, lanes_of(*args), kernel_for(args->dtype, current_isa())};
  const int64_t grain = std::max<int64_t>(1, kGrainElements / elements_per_token);
  parallel->run(parallel->pool, args->tokens, grain, run_tokens, &job);
}
