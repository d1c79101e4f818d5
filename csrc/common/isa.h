// Which instruction set the CPU kernels use: the best of this CPU unless set otherwise.
#pragma once

#include "common/macros.h"

namespace glmv {

enum class Isa : int { kPortable, kAvx2 };

Isa current_isa();

}  // namespace glmv

// "portable" or "avx2".
GLMV_API const char* glmv_isa();

// Choose by name for the whole process ("auto" = the best); 0, or 1 if this CPU or build does not have it.
// For tests and measurements: the results do not depend on it, bit for bit.
GLMV_API int glmv_use_isa(const char* name);
