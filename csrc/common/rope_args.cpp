#include "common/rope_args.h"

#include "common/view.h"

namespace glmv {
namespace {

constexpr auto kOp = "rope";

int64_t index_at(const View& view, int64_t i) {
  if (view.dtype == DType::kInt32) return static_cast<const int32_t*>(view.data)[i * view.strides[0]];
  return static_cast<const int64_t*>(view.data)[i * view.strides[0]];
}

void check_axes(const View& axis_of_lane, int64_t axes) {
  for (int64_t i = 0; i < axis_of_lane.sizes[0]; ++i) {
    const int64_t axis = index_at(axis_of_lane, i);
    if (axis >= 0 && axis < axes) continue;
    fail(kOp, "axis_of_lane", "rows of pos, 0 to A - 1 = " + std::to_string(axes - 1), std::to_string(axis));
  }
}

RopeTensor rope_tensor(const char* arg, const View& in, const View& out) {
  const bool empty = in.sizes[0] * in.sizes[1] * in.sizes[2] == 0;  // then strides mean nothing
  for (const View* view : {&in, &out}) {
    if (empty || view->strides[2] == 1) continue;
    fail(kOp, arg, "of stride 1 in the last dimension", std::to_string(view->strides[2]));
  }
  return {in.data, out.data, in.sizes[1], in.strides[0], in.strides[1], out.strides[0], out.strides[1]};
}

}  // namespace

RopeArgs rope_args(const View& q, const View& k, const View& pos, const View& inv_freq,
                   const View& axis_of_lane, const View& q_out, const View& k_out, bool adjacent,
                   bool conjugate) {
  check(kOp, "q", q, {{"T"}, {"H"}, {"D"}}, {DType::kFloat32, DType::kBFloat16, DType::kFloat16});
  const int64_t tokens = q.sizes[0], head_dim = q.sizes[2];
  check(kOp, "k", k, {{"T", tokens}, {"Hk"}, {"D", head_dim}}, {q.dtype});
  check(kOp, "q_out", q_out, {{"T", tokens}, {"H", q.sizes[1]}, {"D", head_dim}}, {q.dtype});
  check(kOp, "k_out", k_out, {{"T", tokens}, {"Hk", k.sizes[1]}, {"D", head_dim}}, {q.dtype});
  check(kOp, "pos", pos, {{"A"}, {"T", tokens}}, {DType::kInt32, DType::kInt64});
  check(kOp, "inv_freq", inv_freq, {{"R/2"}}, {DType::kFloat32});
  const int64_t lanes = inv_freq.sizes[0];
  if (2 * lanes > head_dim) {
    fail(kOp, "inv_freq", "[R/2] with R <= D=" + std::to_string(head_dim), describe(inv_freq));
  }
  check(kOp, "axis_of_lane", axis_of_lane, {{"R/2", lanes}}, {DType::kInt32, DType::kInt64});
  check_axes(axis_of_lane, pos.sizes[0]);
  check_output(kOp, "q_out", q_out, q);
  check_output(kOp, "k_out", k_out, k);
  if (q_out.data == k_out.data && q.sizes[1] > 0 && k.sizes[1] > 0 && tokens > 0) {
    fail(kOp, "k_out", "another tensor than q_out", "the same memory");
  }
  return {.q = rope_tensor("q", q, q_out),
          .k = rope_tensor("k", k, k_out),
          .pos = pos.data,
          .inv_freq = static_cast<const float*>(inv_freq.data),
          .axis_of_lane = axis_of_lane.data,
          .tokens = tokens,
          .head_dim = head_dim,
          .lanes = lanes,
          .axes = pos.sizes[0],
          .pos_stride_axis = pos.strides[0],
          .pos_stride_token = pos.strides[1],
          .inv_freq_stride = inv_freq.strides[0],
          .axis_stride = axis_of_lane.strides[0],
          .dtype = q.dtype,
          .pos_dtype = pos.dtype,
          .axis_dtype = axis_of_lane.dtype,
          .adjacent = adjacent,
          .conjugate = conjugate};
}

}  // namespace glmv
