#include "common/view.h"

#include <algorithm>
#include <utility>

namespace glmv {
namespace {

bool empty(const View& view) { return std::ranges::find(view.sizes, 0) != view.sizes.end(); }

// The first and one past the last byte that the view touches.
std::pair<const char*, const char*> span(const View& view) {
  int64_t low = 0, high = 0;
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    const int64_t reach = (view.sizes[d] - 1) * view.strides[d];
    (reach < 0 ? low : high) += reach;
  }
  const auto* base = static_cast<const char*>(view.data);
  const int64_t bytes = size_of(view.dtype);
  return {base + low * bytes, base + (high + 1) * bytes};
}

// True if two indices lead to one element. Exact for views made by slicing and transposing.
bool overlaps_itself(const View& view) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // (distance, size)
  for (size_t d = 0; d < view.sizes.size(); ++d) {
    if (view.sizes[d] > 1) dims.emplace_back(std::abs(view.strides[d]), view.sizes[d]);
  }
  std::ranges::sort(dims);
  int64_t reach = 1;
  for (const auto& [distance, size] : dims) {
    if (distance < reach) return true;
    reach += distance * (size - 1);
  }
  return false;
}

}  // namespace

std::string describe(const View& view) {
  std::string text = "[";
  for (size_t d = 0; d < view.sizes.size(); ++d) text += (d ? ", " : "") + std::to_string(view.sizes[d]);
  return text + "] " + name(view.dtype) + " on " + view.device;
}

void fail(const char* op, const char* arg, const std::string& expected, const std::string& got) {
  throw std::invalid_argument(std::string(op) + ": " + arg + " must be " + expected + ", got " + got);
}

void check(const char* op, const char* arg, const View& view, std::initializer_list<Dim> shape,
           std::initializer_list<DType> dtypes) {
  const bool right_shape = std::ranges::equal(
      view.sizes, shape, [](int64_t got, const Dim& want) { return want.size < 0 || got == want.size; });
  const bool right_type = std::ranges::find(dtypes, view.dtype) != dtypes.end() && view.device == "cpu";
  if (right_shape && right_type) {
    if (reinterpret_cast<uintptr_t>(view.data) % size_of(view.dtype) == 0) return;
    fail(op, arg, "aligned to its element size", describe(view) + " at an odd address");
  }
  std::string text = std::string(op) + ": " + arg + " must be [";
  const char* separator = "";
  for (const Dim& dim : shape) {
    text += std::exchange(separator, ", ") + std::string(dim.name);
    if (dim.size >= 0) text.append("=").append(std::to_string(dim.size));
  }
  separator = "] ";
  for (DType dtype : dtypes) text += std::exchange(separator, "|") + std::string(name(dtype));
  text += " on cpu, got " + describe(view);
  if (right_shape) throw WrongType(text);
  throw std::invalid_argument(text);
}

void check_output(const char* op, const char* arg, const View& out, const View& in) {
  if (out.read_only) fail(op, arg, "writable", "a read-only tensor");
  if (empty(out)) return;
  if (overlaps_itself(out)) fail(op, arg, "without overlap in its own memory", describe(out));
  if (out.data == in.data && out.strides == in.strides) return;
  const auto [out_begin, out_end] = span(out);
  const auto [in_begin, in_end] = span(in);
  if (out_begin < in_end && in_begin < out_end) {
    fail(op, arg, "the input itself or apart from it in memory", "a partial overlap");
  }
}

}  // namespace glmv
