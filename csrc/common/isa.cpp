#include "common/isa.h"

#include <atomic>
#include <string_view>

namespace glmv {
namespace {

Isa best_isa() {
#if GLMV_HAS_AVX2
  if (__builtin_cpu_supports("avx2")) return Isa::kAvx2;
#endif
  return Isa::kPortable;
}

std::atomic<Isa>& chosen() {
  static std::atomic<Isa> isa = best_isa();
  return isa;
}

}  // namespace

Isa current_isa() { return chosen().load(std::memory_order_relaxed); }

}  // namespace glmv

const char* glmv_isa() { return glmv::current_isa() == glmv::Isa::kAvx2 ? "avx2" : "portable"; }

int glmv_use_isa(const char* name) {
  const std::string_view wanted = name;
  const glmv::Isa best = glmv::best_isa();
  if (wanted == "portable") {
    glmv::chosen() = glmv::Isa::kPortable;
  } else if (wanted == "auto" || (wanted == "avx2" && best == glmv::Isa::kAvx2)) {
    glmv::chosen() = best;
  } else {
    return 1;
  }
  return 0;
}
