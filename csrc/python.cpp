// glmv._C: the kernels on any CPU array with __dlpack__ (NumPy, PyTorch, JAX), without PyTorch, and what this
// build is. The caller gives the outputs: nothing here allocates an array.
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>

#include <algorithm>
#include <thread>

#include "common/build_info.h"
#include "common/isa.h"
#include "common/rope_args.h"
#include "common/view.h"
#include "dlpack_caster.h"

namespace py = pybind11;

namespace glmv {
namespace {

// Equal parts on threads of this call alone. Starting one takes some 20 us, so it suits large arrays.
void run_on_threads(void* pool, int64_t count, int64_t grain, RangeFn fn, void* context) {
  const int64_t num_threads = *static_cast<const int64_t*>(pool);
  const int64_t parts = std::clamp<int64_t>((count + grain - 1) / grain, 1, num_threads);
  std::vector<std::jthread> threads;
  for (int64_t part = 1; part < parts; ++part) {
    threads.emplace_back(fn, count * part / parts, count * (part + 1) / parts, context);
  }
  fn(0, count / parts, context);
}

void rope(const Borrowed& q, const std::optional<Borrowed>& k, const Borrowed& pos, const Borrowed& inv_freq,
          const Borrowed& axis_of_lane, const Borrowed& q_out, const std::optional<Borrowed>& k_out,
          const std::string& pairing, bool conjugate, int64_t num_threads) {
  if (pairing != "half" && pairing != "adjacent")
    fail("rope", "pairing", "'half' or 'adjacent'", "'" + pairing + "'");
  if (k.has_value() != k_out.has_value())
    fail("rope", "k_out", "given if and only if k is", k ? "None" : "a tensor");
  if (num_threads < 1) fail("rope", "num_threads", "at least 1", std::to_string(num_threads));
  View no_keys = q.view;
  if (no_keys.sizes.size() == 3) no_keys.sizes[1] = 0;
  const RopeArgs args =
      rope_args(q.view, k ? k->view : no_keys, pos.view, inv_freq.view, axis_of_lane.view, q_out.view,
                k_out ? k_out->view : no_keys, pairing == "adjacent", conjugate);
  py::gil_scoped_release release;
  const Parallel parallel = {.run = run_on_threads, .pool = &num_threads};
  glmv_rope(&args, &parallel);
}

py::dict build_info() {
  py::dict info;
  info["version"] = glmv_version();
  info["compiler"] = glmv_compiler();
  info["flags"] = glmv_flags();
  info["torch_built_with"] = glmv_torch_built_with();
  info["torch_target"] = glmv_torch_target();
  info["cuda"] = glmv_cuda_version();
  info["cuda_archs"] = glmv_cuda_archs();
  return info;
}

void use_isa(const std::string& name) {
  if (glmv_use_isa(name.c_str()))
    fail("use_isa", "name", "an instruction set of this CPU and build", "'" + name + "'");
}

}  // namespace
}  // namespace glmv

PYBIND11_MODULE(_C, m) {
  using namespace glmv;
  m.doc() = "glmv's CPU kernels on DLPack arrays, without PyTorch; see glmv/_C.pyi.";
  py::register_exception_translator([](std::exception_ptr thrown) {
    try {
      if (thrown) std::rethrow_exception(thrown);
    } catch (const WrongType& error) {
      py::set_error(PyExc_TypeError, error.what());
    }
  });
  m.def("rope", &rope, py::arg("q"), py::arg("k").none(true), py::arg("pos"), py::arg("inv_freq"),
        py::arg("axis_of_lane"), py::arg("q_out"), py::arg("k_out").none(true), py::kw_only(),
        py::arg("pairing") = "half", py::arg("conjugate") = false, py::arg("num_threads") = 1);
  m.def("build_info", &build_info);
  m.def("isa", &glmv_isa);
  m.def("use_isa", &use_isa, py::arg("name"));
}
