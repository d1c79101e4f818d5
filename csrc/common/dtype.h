// Element types, and the conversions of the 16-bit floats.
//
// The conversions are bit arithmetic without branches: they vectorise with any instruction set, give the same
// bits everywhere, and do not depend on the flush-to-zero state of the thread.
#pragma once

#include <bit>
#include <cstdint>

#include "common/macros.h"

namespace glmv {

enum class DType : int32_t { kFloat32, kBFloat16, kFloat16, kInt32, kInt64, kFloat64, kOther };

constexpr const char* name(DType dtype) {
  constexpr const char* kNames[] = {"float32", "bfloat16", "float16",      "int32",
                                    "int64",   "float64",  "(other dtype)"};
  return kNames[static_cast<int>(dtype)];
}

// Bytes of an element; 1 for kOther, of which nothing is known.
constexpr int64_t size_of(DType dtype) {
  constexpr int64_t kSizes[] = {4, 2, 2, 4, 8, 8, 1};
  return kSizes[static_cast<int>(dtype)];
}

struct bf16 {
  uint16_t bits;
};

struct fp16 {
  uint16_t bits;
};

GLMV_INLINE float to_float(float x) { return x; }

GLMV_INLINE float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

GLMV_INLINE float to_float(fp16 x) {
  const uint32_t magnitude = static_cast<uint32_t>(x.bits & 0x7fff) << 13;
  const uint32_t exponent = magnitude & 0x0f800000;
  const uint32_t normal = magnitude + (112u << 23);
  // A subnormal is normal - 2^-14 with one more exponent step; infinity and NaN keep the largest exponent.
  const float subnormal = std::bit_cast<float>(normal + (1u << 23)) - 0x1p-14f;
  const uint32_t special = normal + (112u << 23);
  const uint32_t bits = exponent == 0            ? std::bit_cast<uint32_t>(subnormal)
                        : exponent == 0x0f800000 ? special
                                                 : normal;
  return std::bit_cast<float>(bits | static_cast<uint32_t>(x.bits & 0x8000) << 16);
}

template <typename T>
T from_float(float x);

template <>
GLMV_INLINE float from_float<float>(float x) {
  return x;
}

// Round to nearest, ties to even; a NaN stays one.
template <>
GLMV_INLINE bf16 from_float<bf16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  const bool nan = (bits & 0x7fffffff) > 0x7f800000;
  return {static_cast<uint16_t>(nan ? bits >> 16 | 0x40 : rounded)};
}

// Round to nearest, ties to even; overflow gives infinity, a NaN stays one.
template <>
GLMV_INLINE fp16 from_float<fp16>(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  const uint32_t magnitude = bits & 0x7fffffff;
  const uint32_t normal = (magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13;
  // Adding 0.5 puts the last bit of an fp16 subnormal (2^-24) at the last bit of the fp32 sum.
  const uint32_t subnormal = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000;
  const uint32_t special = magnitude > 0x7f800000 ? 0x7e00 : 0x7c00;
  const uint32_t half = magnitude < 0x38800000 ? subnormal : magnitude < 0x47800000 ? normal : special;
  return {static_cast<uint16_t>(half | (bits >> 16 & 0x8000))};
}

}  // namespace glmv
