// The part of the DLPack standard (dlpack.h, versions 0.8 and 1.x) that a consumer needs, as its stable C
// layout. https://dmlc.github.io/dlpack
#pragma once

#include <cstdint>

namespace glmv::dlpack {

enum DeviceType : int32_t { kCpu = 1, kCuda = 2 };
enum TypeCode : uint8_t { kInt = 0, kFloat = 2, kBFloat = 4 };

struct Device {
  int32_t type;
  int32_t index;
};

struct DataType {
  uint8_t code;
  uint8_t bits;
  uint16_t lanes;
};

struct Tensor {
  void* data;
  Device device;
  int32_t ndim;
  DataType dtype;
  int64_t* shape;
  int64_t* strides;  // in elements; null = contiguous
  uint64_t byte_offset;
};

// Capsule "dltensor".
struct Managed {
  Tensor tensor;
  void* context;
  void (*deleter)(Managed*);
};

// Capsule "dltensor_versioned".
struct ManagedVersioned {
  uint32_t major, minor;
  void* context;
  void (*deleter)(ManagedVersioned*);
  uint64_t flags;
  Tensor tensor;
};

constexpr uint64_t kReadOnly = 1;

}  // namespace glmv::dlpack
