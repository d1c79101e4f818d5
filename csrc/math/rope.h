// Scalar formulas of rope: sine and cosine of an fp32 angle, and the rotation of one pair.
#pragma once

#include <bit>
#include <cstdint>

#include "common/macros.h"

namespace glmv {

struct SinCos {
  float sin, cos;
};

// sin and cos of `angle`, right to 1e-6 for |angle| up to 2^30 (positions in use reach 2^20).
//
// The angle is reduced to r in [-pi/4, pi/4] by n = round(angle / (pi/2)) in double: n has at most 30 bits
// and the product with a 53-bit pi/2 is off by less than |angle| * 2^-52, so r is right to fp32 precision.
// The polynomials are Cephes' sinf and cosf (S. Moshier), good to one ulp on that interval.
GLMV_INLINE SinCos sincos(float angle) {
  constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
  constexpr double kPiOver2 = 0x1.921fb54442d18p+0;
  constexpr double kRound = 0x1.8p52;  // adding it leaves round(x) in the low bits of the sum
  const double shifted = angle * kTwoOverPi + kRound;
  const auto quadrant = static_cast<int32_t>(std::bit_cast<int64_t>(shifted));
  const auto r = static_cast<float>(angle - (shifted - kRound) * kPiOver2);

  const float z = r * r;
  const float s = r + r * z * (-1.6666654611e-1f + z * (8.3321608736e-3f + z * -1.9515295891e-4f));
  const float c = 1.0f - 0.5f * z +
                  z * z * (4.166664568298827e-2f + z * (-1.388731625493765e-3f + z * 2.443315711809948e-5f));
  const bool swap = quadrant & 1;
  const float sin = swap ? c : s;
  const float cos = swap ? s : c;
  return {quadrant & 2 ? -sin : sin, (quadrant + 1) & 2 ? -cos : cos};
}

struct Pair {
  float a, b;
};

// (a, b) turned by the angle. Its derivative is the same rotation by minus the angle, that is with -sin.
GLMV_INLINE Pair rotate(Pair x, float cos, float sin) {
  return {x.a * cos - x.b * sin, x.b * cos + x.a * sin};
}

}  // namespace glmv
