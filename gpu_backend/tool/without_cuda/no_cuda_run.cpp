// Replaces tool/cuda in a build without the CUDA toolkit.
#include "gpu_backend/tool/cuda_run.hpp"

namespace mfsdp {

MakeCudaRun find_cuda_run() { return nullptr; }

}  // namespace mfsdp
