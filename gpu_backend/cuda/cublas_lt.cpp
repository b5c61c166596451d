#include "gpu_backend/cuda/cublas_lt.hpp"

#include <dlfcn.h>
#include <fmt/format.h>

#include <string>

namespace mfsdp::cuda {
namespace {

/// Opens it by the loader's search, or in the folder of compile time.
void* open_library(const std::string& name) {
  if (void* library = dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
  return dlopen((MFSDP_CUBLASLT_FOLDER "/" + name).c_str(), RTLD_NOW | RTLD_LOCAL);
}

Result<CublasLt> load() {
  // The major version must be that of the header, whose declarations are called.
  const std::string name = fmt::format("libcublasLt.so.{}", CUBLAS_VER_MAJOR);
  void* library = open_library(name);
  if (library == nullptr)
    return fail(name, fmt::format("expected cuBLASLt where the loader looks: {}", dlerror()),
                Fault::environment);
  CublasLt made{};
  std::string missing;
  const auto find = [&]<class Function>(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(dlsym(library, symbol));
    if (function == nullptr) missing = symbol;
  };
  find(made.version, "cublasLtGetVersion");
  find(made.status_string, "cublasLtGetStatusString");
  find(made.create, "cublasLtCreate");
  find(made.destroy, "cublasLtDestroy");
  find(made.init_layout, "cublasLtMatrixLayoutInit_internal");
  find(made.set_layout, "cublasLtMatrixLayoutSetAttribute");
  find(made.init_operation, "cublasLtMatmulDescInit_internal");
  find(made.set_operation, "cublasLtMatmulDescSetAttribute");
  find(made.init_preference, "cublasLtMatmulPreferenceInit_internal");
  find(made.set_preference, "cublasLtMatmulPreferenceSetAttribute");
  find(made.heuristic, "cublasLtMatmulAlgoGetHeuristic");
  find(made.check_algorithm, "cublasLtMatmulAlgoCheck");
  find(made.attribute_of, "cublasLtMatmulAlgoConfigGetAttribute");
  find(made.set_attribute, "cublasLtMatmulAlgoConfigSetAttribute");
  find(made.matmul, "cublasLtMatmul");
  if (!missing.empty())
    return fail(name, fmt::format("expected the function {}", missing), Fault::environment);
  return made;
}

const Result<CublasLt>& loaded() {
  static const Result<CublasLt> library = load();
  return library;
}

}  // namespace

Result<void> load_cublas_lt() {
  if (!loaded()) return tl::unexpected(loaded().error());
  return {};
}

const CublasLt& cublas_lt() { return loaded().value(); }

}  // namespace mfsdp::cuda
