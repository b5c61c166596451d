// Measures the time that NCCL's collectives lose on SMs that a kernel with much shared memory has
// just left.
//
//   carveout_probe GPUS
//   NCCL_L1_SHARED_MEMORY_CARVEOUT=1 carveout_probe GPUS
//
// Such a kernel, for example a GEMM, leaves little of an SM's memory to the L1 cache, in which
// loads wait. Here it holds every SM, and releases all of them at once or one after another. Before
// that, collectives of 218 M elements are issued with priority. Prints CSV: times in ms, medians of
// kRepeats; `ms` counts from the release of the first SM. Exit code 3 if CUDA or NCCL fails.
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <vector>

namespace {

constexpr int kEnvironmentFault = 3;
constexpr int kRepeats = 9;
constexpr std::size_t kElements = 218'103'808;
constexpr int kHeldShared = 227 << 10;
constexpr std::uint64_t kHoldNs = 1'000'000;  // the host issues everything in this time

void fail(const char* call, const char* why) {
  std::fprintf(stderr, "carveout_probe: %s: %s\n", call, why);
  std::exit(kEnvironmentFault);
}
void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}
void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) fail(call, ncclGetErrorString(status));
}

__device__ std::uint64_t now() {
  std::uint64_t ns = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns));
  return ns;
}

/// One block per SM; the last ends `last_ns` after the first.
__global__ void hold(std::uint64_t ns, std::uint64_t last_ns, std::uint64_t* first_gone) {
  extern __shared__ char shared[];
  if (threadIdx.x == 0) shared[0] = 0;
  const std::uint64_t until = now() + ns + last_ns * blockIdx.x / gridDim.x;
  while (now() < until) continue;
  if (blockIdx.x == 0 && threadIdx.x == 0) *first_gone = now();
}
__global__ void stamp(std::uint64_t* at) { *at = now(); }

struct Case {
  const char* name;
  bool gather;
  ncclDataType_t type;
  bool symmetric;
};
constexpr Case kCases[] = {{"reduce_scatter,fp32,symmetric", false, ncclFloat, true},
                           {"reduce_scatter,bf16,symmetric", false, ncclBfloat16, true},
                           {"all_gather,bf16,symmetric", true, ncclBfloat16, true},
                           {"reduce_scatter,fp32,rings", false, ncclFloat, false},
                           {"reduce_scatter,bf16,rings", false, ncclBfloat16, false},
                           {"all_gather,bf16,rings", true, ncclBfloat16, false}};
struct Start {
  const char* name;
  bool held;
  std::uint64_t last_ns;
};
constexpr Start kStarts[] = {
    {"idle", false, 0}, {"together", true, 0}, {"one after the other", true, 250'000}};

void* pool(ncclComm_t communicator, std::size_t bytes, bool window) {
  void* data = nullptr;
  check(ncclMemAlloc(&data, bytes), "ncclMemAlloc");
  check(cudaMemset(data, 0, bytes), "cudaMemset");
  ncclWindow_t made = nullptr;
  if (window)
    check(ncclCommWindowRegister(communicator, data, bytes, &made, NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  return data;
}

void run_rank(int rank, int ranks, const ncclUniqueId& id) {
  check(cudaSetDevice(rank), "cudaSetDevice");
  ncclComm_t communicator = nullptr;
  check(ncclCommInitRank(&communicator, ranks, id, rank), "ncclCommInitRank");
  const std::size_t part = kElements / static_cast<std::size_t>(ranks);
  void* whole[2];
  void* shard[2];
  for (const bool window : {false, true}) {
    whole[window] = pool(communicator, 4 * kElements, window);
    shard[window] = pool(communicator, 4 * part, window);
  }
  int least = 0;
  int most = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "cudaDeviceGetStreamPriorityRange");
  cudaStream_t compute = nullptr;
  cudaStream_t other = nullptr;
  check(cudaStreamCreateWithPriority(&compute, cudaStreamNonBlocking, least), "stream");
  check(cudaStreamCreateWithPriority(&other, cudaStreamNonBlocking, most), "stream");
  check(cudaFuncSetAttribute(hold, cudaFuncAttributeMaxDynamicSharedMemorySize, kHeldShared),
        "cudaFuncSetAttribute");
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, rank), "cudaGetDeviceProperties");
  std::uint64_t* stamps = nullptr;  // begin, end
  check(cudaMallocHost(&stamps, 2 * sizeof(std::uint64_t)), "cudaMallocHost");

  for (const Case& which : kCases)
    for (const Start& start : kStarts) {
      std::vector<double> ms;
      for (int i = 0; i < kRepeats + 1; ++i) {
        check(ncclAllReduce(shard[0], shard[0], 1, ncclFloat, ncclSum, communicator, other),
              "barrier");
        check(cudaDeviceSynchronize(), "barrier");
        if (start.held) {
          hold<<<properties.multiProcessorCount, 32, kHeldShared, compute>>>(kHoldNs, start.last_ns,
                                                                             stamps);
          usleep(100);  // it occupies all SMs
        } else {
          stamp<<<1, 1, 0, other>>>(stamps);
        }
        check(cudaGetLastError(), "hold");
        void* from = which.gather ? shard[which.symmetric] : whole[which.symmetric];
        void* to = which.gather ? whole[which.symmetric] : shard[which.symmetric];
        if (which.gather)
          check(ncclAllGather(from, to, part, which.type, communicator, other), "ncclAllGather");
        else
          check(ncclReduceScatter(from, to, part, which.type, ncclSum, communicator, other),
                "ncclReduceScatter");
        stamp<<<1, 1, 0, other>>>(stamps + 1);
        check(cudaGetLastError(), "stamp");
        check(cudaDeviceSynchronize(), "collective");
        if (i > 0) ms.push_back(static_cast<double>(stamps[1] - stamps[0]) / 1e6);
      }
      std::ranges::sort(ms);
      if (rank == 0) std::printf("%s,%s,%.3f\n", which.name, start.name, ms[kRepeats / 2]);
    }
  check(ncclCommDestroy(communicator), "ncclCommDestroy");
}

}  // namespace

int main(int argc, char** argv) {
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 2) {
    std::fprintf(stderr, "usage: carveout_probe GPUS, of which there are at least two\n");
    return 2;
  }
  ncclUniqueId id;
  check(ncclGetUniqueId(&id), "ncclGetUniqueId");
  std::printf("collective,dtype,kernels,sms,ms\n");
  std::fflush(stdout);
  std::vector<pid_t> others;
  int rank = 0;
  for (int one = 1; one < ranks && rank == 0; ++one) {
    const pid_t child = fork();
    if (child < 0) fail("fork", "no process");
    if (child == 0)
      rank = one;
    else
      others.push_back(child);
  }
  run_rank(rank, ranks, id);
  bool good = true;
  for (const pid_t child : others) {
    int status = 0;
    good &= waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good ? 0 : kEnvironmentFault;
}
