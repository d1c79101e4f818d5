// pybind11 argument type for any object with __dlpack__: NumPy, PyTorch, JAX, CuPy arrays.
#pragma once

#include <pybind11/pybind11.h>

#include <memory>
#include <utility>

#include "common/dlpack.h"
#include "common/view.h"

namespace glmv {

// A tensor lent by a Python object; given back on destruction.
struct Borrowed {
  View view;
  std::shared_ptr<void> owner;
};

namespace dlpack {

inline DType dtype_of(DataType type) {
  const std::pair<int, int> key = {type.code, type.lanes == 1 ? type.bits : 0};
  if (key == std::pair{+kFloat, 32}) return DType::kFloat32;
  if (key == std::pair{+kFloat, 16}) return DType::kFloat16;
  if (key == std::pair{+kFloat, 64}) return DType::kFloat64;
  if (key == std::pair{+kBFloat, 16}) return DType::kBFloat16;
  if (key == std::pair{+kInt, 32}) return DType::kInt32;
  if (key == std::pair{+kInt, 64}) return DType::kInt64;
  return DType::kOther;
}

inline std::string device_of(Device device) {
  if (device.type == kCpu) return "cpu";
  const std::string kind = device.type == kCuda ? "cuda" : "device type " + std::to_string(device.type);
  return kind + ":" + std::to_string(device.index);
}

inline View view_of(const Tensor& tensor, bool read_only) {
  View view{.data = static_cast<char*>(tensor.data) + tensor.byte_offset,
            .dtype = dtype_of(tensor.dtype),
            .sizes = {tensor.shape, tensor.shape + tensor.ndim},
            .strides = std::vector<int64_t>(tensor.ndim, 1),
            .device = device_of(tensor.device),
            .read_only = read_only};
  if (tensor.strides) {
    view.strides.assign(tensor.strides, tensor.strides + tensor.ndim);
  } else {
    for (int d = tensor.ndim - 2; d >= 0; --d) view.strides[d] = view.strides[d + 1] * view.sizes[d + 1];
  }
  return view;
}

// Take the tensor out of its capsule, as the standard asks: rename the capsule, then own the deleter.
template <typename M>
std::shared_ptr<M> take(pybind11::capsule& capsule, const char* used_name) {
  std::shared_ptr<M> managed(static_cast<M*>(capsule.get_pointer()), [](M* m) {
    if (m->deleter) m->deleter(m);
  });
  capsule.set_name(used_name);
  return managed;
}

inline Borrowed borrow(pybind11::handle object) {
  namespace py = pybind11;
  py::object exported;
  try {
    exported = object.attr("__dlpack__")(py::arg("max_version") = py::make_tuple(1, 0));
  } catch (py::error_already_set& error) {
    if (!error.matches(PyExc_TypeError)) throw;  // a producer from before DLPack 1.0 knows no max_version
    exported = object.attr("__dlpack__")();
  }
  auto capsule = exported.cast<py::capsule>();
  const std::string kind = capsule.name();
  if (kind == "dltensor") {
    auto managed = take<Managed>(capsule, "used_dltensor");
    return {view_of(managed->tensor, false), managed};
  }
  if (kind == "dltensor_versioned") {
    auto managed = take<ManagedVersioned>(capsule, "used_dltensor_versioned");
    if (managed->major != 1)
      throw py::buffer_error("DLPack " + std::to_string(managed->major) + " is not known");
    return {view_of(managed->tensor, managed->flags & kReadOnly), managed};
  }
  throw py::buffer_error("__dlpack__ returned a capsule named " + kind);
}

}  // namespace dlpack
}  // namespace glmv

namespace pybind11::detail {

template <>
struct type_caster<glmv::Borrowed> {
  PYBIND11_TYPE_CASTER(glmv::Borrowed, const_name("array with __dlpack__"));

  bool load(handle source, bool) {
    if (!hasattr(source, "__dlpack__")) return false;
    value = glmv::dlpack::borrow(source);
    return true;
  }
};

}  // namespace pybind11::detail
