// A tensor as both front ends (PyTorch, DLPack) see it, and checks whose messages name the argument, what was
// expected and what came:
//     rope: pos must be [A, T=8192] int32|int64 on cpu, got [3, 8191] int64 on cpu
#pragma once

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/dtype.h"

namespace glmv {

struct View {
  void* data = nullptr;
  DType dtype = DType::kOther;
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;  // in elements
  std::string device = "cpu";
  bool read_only = false;
};

// A tensor of a wrong dtype or device: TypeError in Python. Every other bad argument is
// std::invalid_argument.
struct WrongType : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// A dimension of an expected shape: its name and, where it is fixed, its size.
struct Dim {
  const char* name;
  int64_t size = -1;
};

// "[3, 8191] int64 on cpu"
std::string describe(const View& view);

// Throw `op: arg must be <expected>, got <got>`.
[[noreturn]] void fail(const char* op, const char* arg, const std::string& expected, const std::string& got);

// Throw unless the view is on the CPU, aligned, and has that shape and one of those dtypes.
void check(const char* op, const char* arg, const View& view, std::initializer_list<Dim> shape,
           std::initializer_list<DType> dtypes);

// Throw unless `out` can be written where `in` is read: the very same elements, or none of them; and no
// element of `out` may stand for two.
void check_output(const char* op, const char* arg, const View& out, const View& in);

}  // namespace glmv
