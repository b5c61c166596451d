// Stands for cuda_run.cpp in a build without the CUDA toolkit.
#include "gpu_backend/tool/cuda_run.hpp"

namespace mfsdp {

bool has_cuda() { return false; }

Result<std::unique_ptr<RankMachine>> make_cuda_run(const CudaRunInputs&) {
  return fail("--backend cuda", "this build has no gpu_backend/cuda; use cpu", Fault::environment);
}

}  // namespace mfsdp
