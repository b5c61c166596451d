// Measures how much kernels and collectives slow each other down when they run concurrently.
//
//   contention_probe GPUS
//   `contention_probe products`
//
// The kernels: 24 bf16 GEMMs [8192, 28672] = [8192, 4096] [28672, 4096]^T on a warm GPU at its
// power limit or, in rows named stream_*, 100 copies of 1 GiB. With one GPU their neighbours are
// blocks that only spin and blocks that copy memory. With more GPUs they are four collectives of
// 436 MB or, in rows named one_*, one of four times that, all of which end while the kernels run.
// Each run beside a neighbour follows one without: `solo` and `beside` are measured at the same
// temperature and power. With `products` the kernels are the linear layers of Llama-3-8B's blocks,
// at three lengths and with the fastest algorithm of each, beside blocks that spin; times are of
// one GEMM. Prints CSV, times in ms, medians of kRepeats. Exit code 3 if CUDA or a library fails.
#include <cublasLt.h>
#include <cuda_bf16.h>
#include <cuda_runtime.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>
#include <vector>

#include "gpu_backend/cuda/contention_kernels.cuh"

namespace {

using namespace mfsdp::contention;

constexpr int kEnvironmentFault = 3;
constexpr int kProducts = 24;
constexpr double kManyMs = 25;  // approximate time of all repetitions of a smaller GEMM
constexpr int kCandidates = 16;
constexpr int kStreams = 100;
constexpr int kCollectives = 4;
constexpr int kRepeats = 9;
constexpr int kWarmUp = 20;  // times the GEMMs: over a second
constexpr std::size_t kMessageBytes = 436207616;
constexpr std::size_t kCopyBytes = std::size_t{1} << 30;
constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;
constexpr int kNeighbourThreads = 512;
// Enough shared memory to keep a GEMM's block off the SM, as NCCL's blocks do.
constexpr int kNeighbourShared = 100 << 10;

void fail(const char* call, const char* why) {
  std::fprintf(stderr, "contention_probe: %s: %s\n", call, why);
  std::exit(kEnvironmentFault);
}
void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) fail(call, cudaGetErrorString(status));
}
void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS) fail(call, cublasLtGetStatusString(status));
}
void check(ncclResult_t status, const char* call) {
  if (status != ncclSuccess) fail(call, ncclGetErrorString(status));
}

template <class T>
T* device(std::size_t bytes) {
  void* data = nullptr;
  check(cudaMalloc(&data, bytes), "cudaMalloc");
  return static_cast<T*>(data);
}

struct Timer {
  cudaEvent_t begin = nullptr;
  cudaEvent_t end = nullptr;
  Timer() {
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
  }
  [[nodiscard]] double ms() const {
    float time = 0;
    check(cudaEventElapsedTime(&time, begin, end), "cudaEventElapsedTime");
    return time;
  }
};

/// c[rows, cols] = op(a)[rows, inner] op(b)[inner, cols], all row-major.
struct Shape {
  int rows;
  int cols;
  int inner;
  bool a_transposed;  ///< stored as [inner, rows]
  bool b_transposed;  ///< stored as [cols, inner]
};
constexpr Shape kLarge{8192, 28672, 4096, false, true};

class Products {
 public:
  explicit Products(cudaStream_t stream, const Shape& shape = kLarge, bool searches = false)
      : stream_(stream) {
    const auto elements = [](int rows, int cols) {
      return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
    };
    const std::size_t a = elements(shape.rows, shape.inner);
    const std::size_t b = elements(shape.inner, shape.cols);
    a_ = device<__nv_bfloat16>(sizeof(__nv_bfloat16) * a);
    b_ = device<__nv_bfloat16>(sizeof(__nv_bfloat16) * b);
    c_ = device<__nv_bfloat16>(sizeof(__nv_bfloat16) * elements(shape.rows, shape.cols));
    workspace_ = device<char>(kWorkspaceBytes);
    fill<<<1024, 256, 0, stream>>>(a_, a, 1.0f, 1);
    fill<<<1024, 256, 0, stream>>>(b_, b, 0.02f, 2);
    check(cudaGetLastError(), "fill");
    check(cublasLtCreate(&handle_), "cublasLtCreate");
    check(cublasLtMatmulDescCreate(&operation_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "MatmulDesc");
    // Column-major: C^T [cols, rows] = B^T A^T, so b is the first operand.
    transpose(CUBLASLT_MATMUL_DESC_TRANSA, shape.b_transposed);
    transpose(CUBLASLT_MATMUL_DESC_TRANSB, shape.a_transposed);
    b_layout_ = layout(shape.inner, shape.cols, shape.b_transposed);
    a_layout_ = layout(shape.rows, shape.inner, shape.a_transposed);
    c_layout_ = layout(shape.rows, shape.cols, false);
    cublasLtMatmulPreference_t preference = nullptr;
    check(cublasLtMatmulPreferenceCreate(&preference), "preference");
    check(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                               &kWorkspaceBytes, sizeof kWorkspaceBytes),
          "preference");
    int found = 0;
    cublasLtMatmulHeuristicResult_t choices[kCandidates];
    check(cublasLtMatmulAlgoGetHeuristic(handle_, operation_, b_layout_, a_layout_, c_layout_,
                                         c_layout_, preference, searches ? kCandidates : 1, choices,
                                         &found),
          "cublasLtMatmulAlgoGetHeuristic");
    if (found == 0) fail("cublasLtMatmulAlgoGetHeuristic", "no algorithm");
    cublasLtMatmulPreferenceDestroy(preference);
    choice_ = choices[0];
    if (searches) search(choices, found);
  }
  Products(const Products&) = delete;
  Products& operator=(const Products&) = delete;
  ~Products() {
    for (void* memory : {static_cast<void*>(a_), static_cast<void*>(b_), static_cast<void*>(c_),
                         static_cast<void*>(workspace_)})
      cudaFree(memory);
    for (cublasLtMatrixLayout_t layout : {a_layout_, b_layout_, c_layout_})
      cublasLtMatrixLayoutDestroy(layout);
    cublasLtMatmulDescDestroy(operation_);
    cublasLtDestroy(handle_);
  }

  void launch() const {
    for (int i = 0; i < count_; ++i) check(launch_one(), "cublasLtMatmul");
  }
  /// Number of GEMMs that launch() queues.
  [[nodiscard]] int count() const { return count_; }

 private:
  void transpose(cublasLtMatmulDescAttributes_t which, bool yes) const {
    const cublasOperation_t operation = yes ? CUBLAS_OP_T : CUBLAS_OP_N;
    check(cublasLtMatmulDescSetAttribute(operation_, which, &operation, sizeof operation),
          "cublasLtMatmulDescSetAttribute");
  }
  static cublasLtMatrixLayout_t layout(int rows, int cols, bool transposed) {
    const auto row = static_cast<std::uint64_t>(transposed ? rows : cols);
    const auto column = static_cast<std::uint64_t>(transposed ? cols : rows);
    cublasLtMatrixLayout_t made = nullptr;
    check(
        cublasLtMatrixLayoutCreate(&made, CUDA_R_16BF, row, column, static_cast<std::int64_t>(row)),
        "layout");
    return made;
  }
  [[nodiscard]] cublasStatus_t launch_one() const {
    const float one = 1;
    const float zero = 0;
    return cublasLtMatmul(handle_, operation_, &one, b_, b_layout_, a_, a_layout_, &zero, c_,
                          c_layout_, c_, c_layout_, &choice_.algo, workspace_, kWorkspaceBytes,
                          stream_);
  }
  /// Finds the fastest of them, and how many of it take kManyMs.
  void search(const cublasLtMatmulHeuristicResult_t* choices, int found) {
    constexpr int kRuns = 12;
    const Timer timer;
    double least = 0;
    cublasLtMatmulHeuristicResult_t best{};
    for (int i = 0; i < found; ++i) {
      choice_ = choices[i];
      if (launch_one() != CUBLAS_STATUS_SUCCESS) continue;
      count_ = kRuns;
      check(cudaEventRecord(timer.begin, stream_), "cudaEventRecord");
      launch();
      check(cudaEventRecord(timer.end, stream_), "cudaEventRecord");
      check(cudaStreamSynchronize(stream_), "an algorithm");
      if (least != 0 && timer.ms() >= least) continue;
      least = timer.ms();
      best = choice_;
    }
    if (least == 0) fail("cublasLtMatmul", "no algorithm runs");
    choice_ = best;
    count_ = static_cast<int>(kManyMs * kRuns / least) + 1;
  }

  cudaStream_t stream_;
  cublasLtHandle_t handle_ = nullptr;
  cublasLtMatmulDesc_t operation_ = nullptr;
  cublasLtMatrixLayout_t a_layout_ = nullptr;
  cublasLtMatrixLayout_t b_layout_ = nullptr;
  cublasLtMatrixLayout_t c_layout_ = nullptr;
  cublasLtMatmulHeuristicResult_t choice_{};
  __nv_bfloat16* a_ = nullptr;
  __nv_bfloat16* b_ = nullptr;
  __nv_bfloat16* c_ = nullptr;
  char* workspace_ = nullptr;
  int count_ = kProducts;
};

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

struct Times {
  double solo = 0;       ///< the kernels without a neighbour
  double beside = 0;     ///< the kernels with it
  double neighbour = 0;  ///< the neighbour beside the kernels
  double alone = 0;
};

struct Streams {
  cudaStream_t compute = nullptr;
  cudaStream_t other = nullptr;
};

/// Copies of 1 GiB that use all SMs.
class Streaming {
 public:
  explicit Streaming(cudaStream_t stream) : stream_(stream) {
    from_ = device<uint4>(kCopyBytes);
    to_ = device<uint4>(kCopyBytes);
    check(cudaMemset(from_, 1, kCopyBytes), "cudaMemset");
  }
  void launch() const {
    for (int i = 0; i < kStreams; ++i)
      copy_once<<<132 * 8, 256, 0, stream_>>>(from_, to_, kCopyBytes / sizeof(uint4));
    check(cudaGetLastError(), "copy_once");
  }

 private:
  cudaStream_t stream_;
  uint4* from_ = nullptr;
  uint4* to_ = nullptr;
};

/// `meet` synchronises all ranks, `start` starts the neighbour on its own stream, `stop` is
/// enqueued after the kernels.
template <class Kernels, class Meet, class Start, class Stop>
Times measure(const Kernels& kernels, const Streams& streams, const Meet& meet, const Start& start,
              const Stop& stop, bool ends_alone) {
  Timer solo;
  Timer beside;
  Timer neighbour;
  std::vector<double> times[4];
  for (int i = 0; i < kRepeats + 1; ++i) {
    meet();
    check(cudaEventRecord(solo.begin, streams.compute), "cudaEventRecord");
    kernels.launch();
    check(cudaEventRecord(solo.end, streams.compute), "cudaEventRecord");
    meet();
    check(cudaEventRecord(neighbour.begin, streams.other), "cudaEventRecord");
    start();
    check(cudaEventRecord(neighbour.end, streams.other), "cudaEventRecord");
    check(cudaEventRecord(beside.begin, streams.compute), "cudaEventRecord");
    kernels.launch();
    check(cudaEventRecord(beside.end, streams.compute), "cudaEventRecord");
    stop();
    check(cudaDeviceSynchronize(), "kernels and neighbour");
    if (i == 0) continue;
    times[0].push_back(solo.ms());
    times[1].push_back(beside.ms());
    times[2].push_back(neighbour.ms());
  }
  for (int i = 0; ends_alone && i < kRepeats; ++i) {
    meet();
    check(cudaEventRecord(neighbour.begin, streams.other), "cudaEventRecord");
    start();
    check(cudaEventRecord(neighbour.end, streams.other), "cudaEventRecord");
    check(cudaDeviceSynchronize(), "neighbour");
    times[3].push_back(neighbour.ms());
  }
  return {.solo = median(times[0]),
          .beside = median(times[1]),
          .neighbour = median(times[2]),
          .alone = ends_alone ? median(times[3]) : 0};
}

void report(int rank, const char* name, int blocks, const Times& times, double gb_per_s) {
  if (rank != 0) return;
  std::printf("%s,%d,%.3f,%.3f,%.3f,%.3f,%.1f\n", name, blocks, times.solo, times.beside,
              times.neighbour, times.alone, gb_per_s);
  std::fflush(stdout);
}

Streams open(int rank) {
  check(cudaSetDevice(rank), "cudaSetDevice");
  Streams streams;
  int least = 0;
  int most = 0;
  check(cudaDeviceGetStreamPriorityRange(&least, &most), "cudaDeviceGetStreamPriorityRange");
  check(cudaStreamCreateWithPriority(&streams.compute, cudaStreamNonBlocking, least), "stream");
  check(cudaStreamCreateWithPriority(&streams.other, cudaStreamNonBlocking, most), "stream");
  return streams;
}

void warm_up(const Products& products, cudaStream_t stream) {
  for (int i = 0; i < kWarmUp; ++i) products.launch();
  check(cudaStreamSynchronize(stream), "warm-up");
}

/// Blocks on the second stream of one GPU: their memory, and the flag that ends them.
class Neighbours {
 public:
  Neighbours() {
    for (const void* kernel :
         {reinterpret_cast<const void*>(spin), reinterpret_cast<const void*>(copy)})
      check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 kNeighbourShared),
            "cudaFuncSetAttribute");
  }
  void meet() const {
    check(cudaStreamSynchronize(streams_.compute), "kernels");
    check(cudaMemset(flag_, 0, sizeof(int)), "cudaMemset");
    check(cudaMemset(copied_, 0, sizeof(unsigned long long)), "cudaMemset");
    check(cudaDeviceSynchronize(), "cudaMemset");
  }
  void stop() const {
    check(cudaMemsetAsync(flag_, 1, sizeof(int), streams_.compute), "cudaMemsetAsync");
  }
  void start_spinning(int blocks) const {
    spin<<<blocks, kNeighbourThreads, kNeighbourShared, streams_.other>>>(flag_);
    check(cudaGetLastError(), "spin");
  }
  void start_copying(int blocks, const uint4* from, uint4* to) const {
    copy<<<blocks, kNeighbourThreads, kNeighbourShared, streams_.other>>>(
        from, to, kCopyBytes / sizeof(uint4), flag_, copied_);
    check(cudaGetLastError(), "copy");
  }
  /// Bytes copied, each counted once.
  [[nodiscard]] double copied() const {
    unsigned long long moved = 0;
    check(cudaMemcpy(&moved, copied_, sizeof moved, cudaMemcpyDeviceToHost), "cudaMemcpy");
    return static_cast<double>(moved);
  }
  template <class Start>
  [[nodiscard]] Times beside(const Products& products, const Start& start) const {
    return measure(products, streams_, [this] { meet(); }, start, [this] { stop(); }, false);
  }
  [[nodiscard]] const Streams& streams() const { return streams_; }

 private:
  Streams streams_ = open(0);
  int* flag_ = device<int>(sizeof(int));
  unsigned long long* copied_ = device<unsigned long long>(sizeof(unsigned long long));
};

void run_one_gpu() {
  const Neighbours neighbours;
  const Products products(neighbours.streams().compute);
  uint4* from = device<uint4>(kCopyBytes);
  uint4* to = device<uint4>(kCopyBytes);
  check(cudaMemset(from, 1, kCopyBytes), "cudaMemset");
  warm_up(products, neighbours.streams().compute);
  report(0, "none", 0, neighbours.beside(products, [] {}), 0);
  for (const int blocks : {1, 2, 4, 8, 9, 12, 16, 20, 24, 32, 48})
    report(0, "spin", blocks,
           neighbours.beside(products, [&] { neighbours.start_spinning(blocks); }), 0);
  for (const int blocks : {2, 4, 8, 12, 16, 24, 32}) {
    const Times times =
        neighbours.beside(products, [&] { neighbours.start_copying(blocks, from, to); });
    report(0, "copy", blocks, times,
           2.0 * neighbours.copied() / (times.neighbour * 1e6));  // read and written
  }
  report(0, "none", 0, neighbours.beside(products, [] {}), 0);
}

struct Layer {
  int out;
  int in;
};
constexpr Layer kLayers[] = {  // qkv, attention's output, gate and up, down
    {6144, 4096},
    {4096, 4096},
    {28672, 4096},
    {4096, 14336}};

void run_products() {
  const Neighbours neighbours;
  warm_up(Products(neighbours.streams().compute), neighbours.streams().compute);
  for (const int tokens : {2048, 4096, 8192})
    for (const Layer& layer : kLayers)
      for (const auto& [kind, shape] :
           {std::pair{"fwd", Shape{tokens, layer.out, layer.in, false, true}},
            std::pair{"dgrad", Shape{tokens, layer.in, layer.out, false, false}},
            std::pair{"wgrad", Shape{layer.out, layer.in, tokens, true, false}}}) {
        const Products products(neighbours.streams().compute, shape, true);
        for (const int blocks : {8, 24}) {
          const Times times =
              neighbours.beside(products, [&] { neighbours.start_spinning(blocks); });
          std::printf("%s,%d,%d,%d,%d,%.4f,%.4f\n", kind, tokens, layer.out, layer.in, blocks,
                      times.solo / products.count(), times.beside / products.count());
          std::fflush(stdout);
        }
      }
}

/// Settings of a communicator, and the collective that runs on it.
struct Case {
  const char* name;
  bool gather;
  ncclDataType_t type;
  int max_ctas;  ///< 0: NCCL's choice
  bool symmetric;
  int policy;
  int messages = kCollectives;  ///< that the bytes are split into
};

template <class Kernels>
void run_case(const Case& which, int rank, int ranks, const ncclUniqueId& id,
              const Kernels& kernels, const Streams& streams, ncclComm_t world) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  if (which.max_ctas > 0) config.maxCTAs = which.max_ctas;
  config.CTAPolicy = which.policy;
  ncclComm_t communicator = nullptr;
  check(ncclCommInitRankConfig(&communicator, ranks, id, rank, &config), "ncclCommInitRankConfig");
  const std::size_t width = which.type == ncclFloat ? 4 : 2;
  const std::size_t split = static_cast<std::size_t>(kCollectives / which.messages);
  const std::size_t full = kMessageBytes / 2 * width * split;
  const std::size_t part = full / static_cast<std::size_t>(ranks);
  void* whole = nullptr;
  void* shard = nullptr;
  check(ncclMemAlloc(&whole, full), "ncclMemAlloc");
  check(ncclMemAlloc(&shard, part), "ncclMemAlloc");
  check(cudaMemset(whole, 0, full), "cudaMemset");
  check(cudaMemset(shard, 0, part), "cudaMemset");
  ncclWindow_t windows[2] = {nullptr, nullptr};
  if (which.symmetric) {
    check(ncclCommWindowRegister(communicator, whole, full, &windows[0], NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
    check(ncclCommWindowRegister(communicator, shard, part, &windows[1], NCCL_WIN_COLL_SYMMETRIC),
          "ncclCommWindowRegister");
  }
  const auto neighbour = [&] {
    for (int i = 0; i < which.messages; ++i) {
      if (which.gather)
        check(ncclAllGather(shard, whole, part / width, which.type, communicator, streams.other),
              "ncclAllGather");
      else
        check(ncclReduceScatter(whole, shard, part / width, which.type, ncclSum, communicator,
                                streams.other),
              "ncclReduceScatter");
    }
  };
  const auto meet = [&] {
    check(cudaDeviceSynchronize(), "kernels");
    check(ncclAllReduce(shard, shard, 1, ncclFloat, ncclSum, world, streams.other), "barrier");
    check(cudaStreamSynchronize(streams.other), "barrier");
  };
  const Times times = measure(kernels, streams, meet, neighbour, [] {}, true);
  const double n = ranks;
  const double moved = which.messages * 2.0 * static_cast<double>(full) * (n - 1) / n;
  report(rank, which.name, which.max_ctas, times, moved / (times.alone * 1e6));
  for (ncclWindow_t window : windows)
    if (window != nullptr) check(ncclCommWindowDeregister(communicator, window), "deregister");
  check(ncclMemFree(whole), "ncclMemFree");
  check(ncclMemFree(shard), "ncclMemFree");
  check(ncclCommDestroy(communicator), "ncclCommDestroy");
}

constexpr Case kCases[] = {
    {"ag_default", true, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT},
    {"ag_max_ctas", true, ncclBfloat16, 4, false, NCCL_CTA_POLICY_DEFAULT},
    {"ag_max_ctas", true, ncclBfloat16, 8, false, NCCL_CTA_POLICY_DEFAULT},
    {"ag_max_ctas", true, ncclBfloat16, 16, false, NCCL_CTA_POLICY_DEFAULT},
    {"ag_symmetric", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT},
    {"ag_symmetric", true, ncclBfloat16, 8, true, NCCL_CTA_POLICY_DEFAULT},
    {"ag_symmetric_efficiency", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_EFFICIENCY},
    {"ag_symmetric_copy_engine", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_ZERO},
    {"rs_bf16_default", false, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT},
    {"rs_bf16_max_ctas", false, ncclBfloat16, 8, false, NCCL_CTA_POLICY_DEFAULT},
    {"rs_bf16_symmetric", false, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT},
    {"rs_bf16_symmetric", false, ncclBfloat16, 8, true, NCCL_CTA_POLICY_DEFAULT},
    {"rs_fp32_default", false, ncclFloat, 0, false, NCCL_CTA_POLICY_DEFAULT},
    {"rs_fp32_symmetric", false, ncclFloat, 0, true, NCCL_CTA_POLICY_DEFAULT},
    {"rs_fp32_max_ctas", false, ncclFloat, 8, false, NCCL_CTA_POLICY_DEFAULT},
    {"one_ag_default", true, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_ag_max_ctas", true, ncclBfloat16, 4, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_ag_max_ctas", true, ncclBfloat16, 8, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_ag_symmetric", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_ag_symmetric", true, ncclBfloat16, 8, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_ag_symmetric_efficiency", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_EFFICIENCY, 1},
    {"one_ag_symmetric_copy_engine", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_ZERO, 1},
    {"one_rs_bf16_default", false, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_bf16_max_ctas", false, ncclBfloat16, 8, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_bf16_symmetric", false, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_bf16_symmetric", false, ncclBfloat16, 8, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_fp32_default", false, ncclFloat, 0, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_fp32_symmetric", false, ncclFloat, 0, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"one_rs_fp32_max_ctas", false, ncclFloat, 8, false, NCCL_CTA_POLICY_DEFAULT, 1},
};
constexpr int kCaseCount = sizeof kCases / sizeof kCases[0];
constexpr Case kStreamCases[] = {
    {"stream_ag_default", true, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT},
    {"stream_ag_symmetric", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT},
    {"stream_ag_symmetric_copy_engine", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_ZERO},
    {"stream_rs_fp32_default", false, ncclFloat, 0, false, NCCL_CTA_POLICY_DEFAULT},
    {"stream_one_ag_default", true, ncclBfloat16, 0, false, NCCL_CTA_POLICY_DEFAULT, 1},
    {"stream_one_ag_symmetric", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_DEFAULT, 1},
    {"stream_one_ag_symmetric_copy_engine", true, ncclBfloat16, 0, true, NCCL_CTA_POLICY_ZERO, 1},
    {"stream_one_rs_fp32_default", false, ncclFloat, 0, false, NCCL_CTA_POLICY_DEFAULT, 1},
};
constexpr int kStreamCaseCount = sizeof kStreamCases / sizeof kStreamCases[0];
constexpr int kIds = kCaseCount + kStreamCaseCount + 1;

void run_rank(int rank, int ranks, const ncclUniqueId* ids) {
  const Streams streams = open(rank);
  ncclComm_t world = nullptr;
  check(ncclCommInitRank(&world, ranks, ids[kIds - 1], rank), "ncclCommInitRank");
  const Products products(streams.compute);
  warm_up(products, streams.compute);
  for (int i = 0; i < kCaseCount; ++i)
    run_case(kCases[i], rank, ranks, ids[i], products, streams, world);
  const Streaming streaming(streams.compute);
  for (int i = 0; i < kStreamCaseCount; ++i)
    run_case(kStreamCases[i], rank, ranks, ids[kCaseCount + i], streaming, streams, world);
  check(ncclCommDestroy(world), "ncclCommDestroy");
}

/// Rank 0 creates the ids; each other rank reads them from its pipe.
void exchange(int rank, int ranks, int (*pipes)[2], ncclUniqueId* ids) {
  constexpr std::size_t bytes = sizeof(ncclUniqueId) * kIds;
  if (rank == 0) {
    for (int i = 0; i < kIds; ++i) check(ncclGetUniqueId(&ids[i]), "ncclGetUniqueId");
    for (int other = 1; other < ranks; ++other)
      if (write(pipes[other][1], ids, bytes) != static_cast<ssize_t>(bytes))
        fail("write", "broken pipe between ranks");
  } else if (read(pipes[rank][0], ids, bytes) != static_cast<ssize_t>(bytes)) {
    fail("read", "broken pipe between ranks");
  }
}

}  // namespace

int main(int argc, char** argv) {
  constexpr int kMostRanks = 16;
  if (argc == 2 && std::strcmp(argv[1], "products") == 0) {
    std::printf("kind,M,N,K,blocks,solo_ms,beside_ms\n");
    run_products();
    return 0;
  }
  const int ranks = argc == 2 ? std::atoi(argv[1]) : 0;
  if (ranks < 1 || ranks > kMostRanks) {
    std::fprintf(stderr, "usage: contention_probe `products` or GPUS (at most %d)\n", kMostRanks);
    return 2;
  }
  std::printf("neighbour,blocks,solo_ms,beside_ms,neighbour_ms,alone_ms,gb_per_s\n");
  std::fflush(stdout);
  if (ranks == 1) {
    run_one_gpu();
    return 0;
  }
  int pipes[kMostRanks][2];
  for (int rank = 0; rank < ranks; ++rank)
    if (pipe(pipes[rank]) != 0) fail("pipe", "no more file descriptors");
  for (int rank = 0; rank < ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) fail("fork", "no more processes");
    if (child > 0) continue;
    static ncclUniqueId ids[kIds];
    exchange(rank, ranks, pipes, ids);
    run_rank(rank, ranks, ids);
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
