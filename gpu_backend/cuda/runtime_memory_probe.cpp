// Measures how much device memory a training process uses outside its pools: context, cuBLASLt,
// cuDNN and NCCL communicators, one process per GPU, as total - free after each stage.
//
//   runtime_memory_probe GPUS [COMMUNICATORS]
//
// Prints one JSON line for each rank and stage. Exit code 3 if CUDA or a library fails.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <cudnn.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

namespace {

constexpr int kEnvironmentFault = 3;
constexpr std::size_t kMessageBytes = std::size_t{64} << 20;
constexpr int kMatrix = 4096;
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;

void fail(const char* call, const char* why) {
  std::fprintf(stderr, "runtime_memory_probe: %s: %s\n", call, why);
  std::exit(kEnvironmentFault);
}

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status));
}
void check(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) fail(call, cudnnGetErrorString(status));
}
void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) fail(call, ncclGetErrorString(status));
}

/// Device memory that is released at the end of its scope, so that it is not counted.
class DeviceBytes {
 public:
  explicit DeviceBytes(std::size_t bytes) { check(cudaMalloc(&data_, bytes), "cudaMalloc"); }
  ~DeviceBytes() { cudaFree(data_); }
  DeviceBytes(const DeviceBytes&) = delete;
  DeviceBytes& operator=(const DeviceBytes&) = delete;
  [[nodiscard]] void* get() const { return data_; }

 private:
  void* data_ = nullptr;
};

void report(int rank, const char* stage) {
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  std::size_t available = 0;
  std::size_t total = 0;
  check(cudaMemGetInfo(&available, &total), "cudaMemGetInfo");
  std::printf("{\"rank\":%d,\"stage\":\"%s\",\"used_bytes\":%zu,\"total_bytes\":%zu}\n", rank,
              stage, total - available, total);
  std::fflush(stdout);
}

/// One bf16 GEMM with fp32 compute, which loads cuBLASLt's kernels.
void multiply(cublasLtHandle_t handle) {
  const std::size_t bytes = sizeof(__nv_bfloat16) * kMatrix * kMatrix;
  DeviceBytes a(bytes);
  DeviceBytes b(bytes);
  DeviceBytes c(bytes);
  DeviceBytes workspace(kWorkspaceBytes);
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t layout = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  check(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F),
        "cublasLtMatmulDescCreate");
  check(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, kMatrix, kMatrix, kMatrix),
        "cublasLtMatrixLayoutCreate");
  check(cublasLtMatmulPreferenceCreate(&preference), "cublasLtMatmulPreferenceCreate");
  check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                             &kWorkspaceBytes, sizeof kWorkspaceBytes),
        "cublasLtMatmulPreferenceSetAttribute");
  cublasLtMatmulHeuristicResult_t choice{};
  int found = 0;
  check(cublasLtMatmulAlgoGetHeuristic(handle, operation, layout, layout, layout, layout,
                                       preference, 1, &choice, &found),
        "cublasLtMatmulAlgoGetHeuristic");
  if (found == 0) fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm");
  const float one = 1;
  const float zero = 0;
  check(cublasLtMatmul(handle, operation, &one, a.get(), layout, b.get(), layout, &zero, c.get(),
                       layout, c.get(), layout, &choice.algo, workspace.get(), kWorkspaceBytes,
                       nullptr),
        "cublasLtMatmul");
  check(cudaDeviceSynchronize(), "cublasLtMatmul");
  cublasLtMatmulPreferenceDestroy(preference);
  cublasLtMatrixLayoutDestroy(layout);
  cublasLtMatmulDescDestroy(operation);
}

void run_rank(int rank, int ranks, const std::vector<ncclUniqueId>& ids) {
  check(cudaSetDevice(rank), "cudaSetDevice");
  check(cudaFree(nullptr), "cudaFree");
  report(rank, "context");
  cublasLtHandle_t blas = nullptr;
  check(cublasLtCreate(&blas), "cublasLtCreate");
  multiply(blas);
  report(rank, "cublaslt");
  cudnnHandle_t dnn = nullptr;
  check(cudnnCreate(&dnn), "cudnnCreate");
  report(rank, "cudnn");
  std::vector<ncclComm_t> communicators;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ncclComm_t communicator = nullptr;
    check(ncclCommInitRank(&communicator, ranks, ids[i], rank), "ncclCommInitRank");
    communicators.push_back(communicator);
    {
      DeviceBytes input(kMessageBytes);
      DeviceBytes output(kMessageBytes * static_cast<std::size_t>(ranks));
      check(
          ncclAllGather(input.get(), output.get(), kMessageBytes, ncclUint8, communicator, nullptr),
          "ncclAllGather");
      check(ncclReduceScatter(output.get(), input.get(), kMessageBytes / sizeof(float), ncclFloat,
                              ncclSum, communicator, nullptr),
            "ncclReduceScatter");
      check(cudaDeviceSynchronize(), "collectives");
    }
    const std::string stage = "nccl_" + std::to_string(i + 1);
    report(rank, stage.c_str());
  }
  for (ncclComm_t communicator : communicators)
    check(ncclCommDestroy(communicator), "ncclCommDestroy");
  check(cudnnDestroy(dnn), "cudnnDestroy");
  check(cublasLtDestroy(blas), "cublasLtDestroy");
}

/// Rank 0 makes the ids; the others read them from their pipe.
std::vector<ncclUniqueId> exchange(int rank, int communicators,
                                   const std::vector<std::array<int, 2>>& pipes) {
  std::vector<ncclUniqueId> ids(static_cast<std::size_t>(communicators));
  const std::size_t bytes = ids.size() * sizeof(ncclUniqueId);
  if (rank == 0) {
    for (ncclUniqueId& id : ids) check(ncclGetUniqueId(&id), "ncclGetUniqueId");
    for (const auto& pipe : pipes)
      if (write(pipe[1], ids.data(), bytes) != static_cast<ssize_t>(bytes))
        fail("write", "broken pipe between ranks");
  } else {
    const int from = pipes[static_cast<std::size_t>(rank - 1)][0];
    if (read(from, ids.data(), bytes) != static_cast<ssize_t>(bytes))
      fail("read", "broken pipe between ranks");
  }
  return ids;
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc > 1 ? std::atoi(argv[1]) : 0;
  const int communicators = argc > 2 ? std::atoi(argv[2]) : 3;
  if (argc > 3 || ranks < 1 || ranks > 16 || communicators < 0 || communicators > 16) {
    std::fprintf(stderr, "usage: runtime_memory_probe GPUS [COMMUNICATORS], both at most 16\n");
    return 2;
  }
  std::vector<std::array<int, 2>> pipes(static_cast<std::size_t>(ranks - 1));
  for (auto& ends : pipes)
    if (pipe(ends.data()) != 0) fail("pipe", "no more file descriptors");
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) fail("fork", "no more processes");
    if (child > 0) continue;
    run_rank(rank, ranks, exchange(rank, communicators, pipes));
    return 0;
  }
  int worst = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = kEnvironmentFault;
  }
  return worst;
}
