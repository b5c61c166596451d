// Times of the large kernels of a block of Llama-3-8B, mixed with each other and beside
// collectives. 8192 tokens, bf16.
//
//   block_bench            one GPU: kinds of kernels alone and mixed. At its power limit a GPU sets
//                          one clock for all that runs, so a kind's time depends on the others
//   block_bench GPUS       2 or more: each kind while collectives run all the time, by each
//                          transport
//
// Every row runs for a second or more without pause before it is timed. Prints CSV; times in ms.
#include <fmt/format.h>
#include <nccl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "gpu_backend/cuda/device.hpp"
#include "tests/bench/cuda/llama_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kWorkspaceBytes = 32 << 20;
constexpr std::int64_t kCopyBytes = 1 << 30;
constexpr int kSustained = 300;
constexpr double kWarmSeconds = 1.0;
constexpr double kTimedSeconds = 0.8;

void check_nccl(ncclResult_t status, const char* call) { require(check(status, call)); }

/// An event that has a time.
class Mark {
 public:
  Mark() { require(check(cudaEventCreate(&event_), "cudaEventCreate")); }
  ~Mark() { cudaEventDestroy(event_); }
  Mark(const Mark&) = delete;
  Mark& operator=(const Mark&) = delete;

  void set(cudaStream_t stream) {
    require(check(cudaEventRecord(event_, stream), "cudaEventRecord"));
  }
  [[nodiscard]] double since(const Mark& other) const {
    float milliseconds = 0;
    require(check(cudaEventElapsedTime(&milliseconds, other.event_, event_), "cudaEventElapsed"));
    return milliseconds;
  }

 private:
  cudaEvent_t event_ = nullptr;
};

using Marks = std::vector<std::unique_ptr<Mark>>;

Marks marks(std::size_t count) {
  Marks made;
  for (std::size_t i = 0; i < count; ++i) made.push_back(std::make_unique<Mark>());
  return made;
}

/// Kinds of kernels: all twelve GEMMs of a block; its attention; a copy of 1 GiB, which stands for
/// kernels bound by memory.
enum Kind : std::size_t { kProducts, kForward, kBackward, kCopy, kKinds };
constexpr std::array<const char*, kKinds> kKindNames{"products", "attention_forward",
                                                     "attention_backward", "copy"};

class Block {
 public:
  explicit Block(cudaStream_t stream)
      : stream_(stream),
        planner_(require(GemmPlanner::create(
            {.candidates = 8, .timed_rounds = 5, .sustained_milliseconds = kSustained}))),
        attention_planner_(require(AttentionPlanner::create())),
        attention_(kTokens),
        forward_(attention_.forward()),
        backward_(attention_.backward(false)),
        tokens_in_(kTokens * kWidest),
        tokens_out_(kTokens * kWidest),
        weight_(kWidest * kHidden),
        result_(std::max(kTokens * kWidest, kWidest * kHidden)),
        workspace_(kWorkspaceBytes),
        from_(kCopyBytes),
        to_(kCopyBytes) {
    fill(tokens_in_, 1);
    fill(tokens_out_, 1);
    fill(weight_, 0.02F);
    require(attention_planner_.prepare(forward_));
    require(attention_planner_.prepare(backward_));
    for (const auto& [n, k] : {std::array<std::int64_t, 2>{6144, kHidden},
                               {kHidden, kHidden},
                               {kWidest, kHidden},
                               {kHidden, kWidest / 2}}) {
      std::vector<Product> three = products(kTokens, n, k);
      three.resize(3);
      for (const Product& product : three) {
        require(planner_.prepare(product.shape, memory_of(product.shape), stream_));
        products_.push_back(product.shape);
      }
    }
  }

  void run(Kind kind) {
    switch (kind) {
      case kProducts:
        for (const GemmShape& shape : products_)
          require(planner_.run(shape, memory_of(shape), stream_));
        return;
      case kForward: return require(attention_planner_.run(forward_, stream_));
      case kBackward: return require(attention_planner_.run(backward_, stream_));
      default:
        require(check(cudaMemcpyAsync(to_.data(), from_.data(), kCopyBytes,
                                      cudaMemcpyDeviceToDevice, stream_),
                      "cudaMemcpyAsync"));
    }
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  static constexpr std::int64_t kHidden = 4096;
  static constexpr std::int64_t kWidest = 28672;

  [[nodiscard]] GemmMemory memory_of(const GemmShape& shape) const {
    return {.a = shape.b_transposed ? tokens_in_.data() : tokens_out_.data(),
            .b = shape.a_transposed ? tokens_in_.data() : weight_.data(),
            .c = result_.data(),
            .workspace = workspace_.as_bytes()};
  }

  cudaStream_t stream_;
  GemmPlanner planner_;
  AttentionPlanner attention_planner_;
  LlamaAttention attention_;
  kernels::AttentionForward<Bf16> forward_;
  kernels::AttentionBackward<Bf16> backward_;
  DeviceArray<Bf16> tokens_in_, tokens_out_, weight_, result_;
  DeviceArray<std::uint8_t> workspace_, from_, to_;
  std::vector<GemmShape> products_;
};

cudaStream_t make_stream(bool urgent) {
  int least = 0;
  int most = 0;
  require(check(cudaDeviceGetStreamPriorityRange(&least, &most), "priorities"));
  cudaStream_t stream = nullptr;
  require(check(cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, urgent ? most : least),
                "cudaStreamCreateWithPriority"));
  return stream;
}

void synchronise(cudaStream_t stream) {
  require(check(cudaStreamSynchronize(stream), "cudaStreamSynchronize"));
}

// ---- one GPU: mixtures -------------------------------------------------------------------------

/// How often each kind runs in a pass.
using Counts = std::array<int, kKinds>;
using KindTimes = std::array<double, kKinds>;

/// Milliseconds of one run of each kind, in `passes` passes.
KindTimes time_passes(Block& block, const Counts& counts, int passes) {
  const std::size_t between = kKinds + 1;
  const Marks at = marks(static_cast<std::size_t>(passes) * between);
  for (std::size_t pass = 0; pass < static_cast<std::size_t>(passes); ++pass)
    for (std::size_t kind = 0; kind <= kKinds; ++kind) {
      at[pass * between + kind]->set(block.stream());
      for (int i = 0; kind < kKinds && i < counts[kind]; ++i) block.run(static_cast<Kind>(kind));
    }
  synchronise(block.stream());
  KindTimes sums{};
  for (std::size_t pass = 0; pass < static_cast<std::size_t>(passes); ++pass)
    for (std::size_t kind = 0; kind < kKinds; ++kind)
      if (counts[kind] > 0)
        sums[kind] += at[pass * between + kind + 1]->since(*at[pass * between + kind]) /
                      (counts[kind] * passes);
  return sums;
}

void bench_mixtures() {
  require(open_device(0));
  Block block(make_stream(false));
  fmt::print("products,forwards,backwards,copies,products_ms,forward_ms,backward_ms,copy_ms\n");
  const std::vector<Counts> mixtures{{1, 0, 0, 0}, {0, 1, 0, 0},  {0, 0, 1, 0},  {0, 0, 0, 1},
                                     {1, 1, 1, 0}, {1, 3, 3, 0},  {3, 1, 1, 0},  {1, 0, 0, 10},
                                     {1, 1, 1, 3}, {1, 1, 1, 12}, {0, 1, 1, 10}, {1, 0, 0, 0}};
  for (const Counts& counts : mixtures) {
    const KindTimes first = time_passes(block, counts, 3);
    double pass = 0;
    for (std::size_t kind = 0; kind < kKinds; ++kind) pass += counts[kind] * first[kind];
    const auto passes = [&](double seconds) {
      return std::max(3, static_cast<int>(seconds * 1e3 / pass));
    };
    time_passes(block, counts, passes(kWarmSeconds));
    const KindTimes times = time_passes(block, counts, passes(kTimedSeconds));
    fmt::print("{},{:.4f}\n", fmt::join(counts, ","), fmt::join(times, ","));
    std::fflush(stdout);
  }
}

// ---- several GPUs: beside collectives ----------------------------------------------------------

enum class Does { gather, scatter, exchange };

struct Neighbour {
  const char* name;
  Does does;
  ncclDataType_t type;
  bool window;
  int policy;
};

constexpr std::array<Neighbour, 8> kNeighbours{
    {{"all_gather,nccl,bf16", Does::gather, ncclBfloat16, false, NCCL_CTA_POLICY_DEFAULT},
     {"reduce_scatter,nccl,bf16", Does::scatter, ncclBfloat16, false, NCCL_CTA_POLICY_DEFAULT},
     {"reduce_scatter,nccl,fp32", Does::scatter, ncclFloat32, false, NCCL_CTA_POLICY_DEFAULT},
     {"all_gather,copy_engine,bf16", Does::gather, ncclBfloat16, true, NCCL_CTA_POLICY_ZERO},
     {"all_to_all,copy_engine,bf16", Does::exchange, ncclBfloat16, true, NCCL_CTA_POLICY_ZERO},
     {"all_gather,symmetric,bf16", Does::gather, ncclBfloat16, true, NCCL_CTA_POLICY_DEFAULT},
     {"reduce_scatter,symmetric,bf16", Does::scatter, ncclBfloat16, true, NCCL_CTA_POLICY_DEFAULT},
     {"reduce_scatter,symmetric,fp32", Does::scatter, ncclFloat32, true, NCCL_CTA_POLICY_DEFAULT}}};

constexpr std::size_t kElements = 218103808;  // parameters of a block
constexpr std::size_t kIds = kNeighbours.size() + 1;

/// Collectives of a block's size on a communicator of their own.
class Collectives {
 public:
  Collectives(const Neighbour& neighbour, const ncclUniqueId& id, int rank, int ranks)
      : neighbour_(neighbour),
        part_(kElements / static_cast<std::size_t>(ranks)),
        stream_(make_stream(true)) {
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.CTAPolicy = neighbour.policy;
    check_nccl(ncclCommInitRankConfig(&communicator_, ranks, id, rank, &config), "init");
    const std::size_t bytes = kElements * (neighbour.type == ncclFloat32 ? 4 : 2);
    for (void** memory : {&first_, &second_}) {
      check_nccl(ncclMemAlloc(memory, bytes), "ncclMemAlloc");
      require(check(cudaMemset(*memory, 0, bytes), "cudaMemset"));
      ncclWindow_t window = nullptr;
      if (neighbour.window)
        check_nccl(
            ncclCommWindowRegister(communicator_, *memory, bytes, &window, NCCL_WIN_COLL_SYMMETRIC),
            "ncclCommWindowRegister");
    }
  }
  // A process ends after its benchmark, and NCCL's memory with it.

  void launch() const {
    const auto call = [&] {
      switch (neighbour_.does) {
        case Does::gather:
          return ncclAllGather(first_, second_, part_, neighbour_.type, communicator_, stream_);
        case Does::scatter:
          return ncclReduceScatter(first_, second_, part_, neighbour_.type, ncclSum, communicator_,
                                   stream_);
        case Does::exchange: break;
      }
      return ncclAlltoAll(first_, second_, part_, neighbour_.type, communicator_, stream_);
    };
    check_nccl(call(), neighbour_.name);
  }

  /// Milliseconds of each of `count`; the streams of all ranks have met.
  [[nodiscard]] double alone(int count) const {
    Mark begin;
    Mark end;
    launch();
    begin.set(stream_);
    for (int i = 0; i < count; ++i) launch();
    end.set(stream_);
    synchronise(stream_);
    return end.since(begin) / count;
  }

  [[nodiscard]] cudaStream_t stream() const { return stream_; }

 private:
  Neighbour neighbour_;
  std::size_t part_;
  cudaStream_t stream_;
  ncclComm_t communicator_ = nullptr;
  void* first_ = nullptr;
  void* second_ = nullptr;
};

struct Beside {
  double solo = 0;       ///< milliseconds of a run
  double beside = 0;     ///< the same while collectives run
  double neighbour = 0;  ///< milliseconds of a collective meanwhile
};

double time_solo(Block& block, Kind kind, int runs) {
  Mark begin;
  Mark end;
  begin.set(block.stream());
  for (int i = 0; i < runs; ++i) block.run(kind);
  end.set(block.stream());
  synchronise(block.stream());
  return end.since(begin) / runs;
}

/// Collectives are queued for longer than the kernels take. Those that end meanwhile count.
Beside time_beside(Block& block, Kind kind, int runs, const Collectives& collectives, int count) {
  Beside times{.solo = time_solo(block, kind, runs)};
  const Marks ends = marks(static_cast<std::size_t>(count) + 1);
  Mark begin;
  Mark end;
  ends[0]->set(collectives.stream());
  for (int i = 0; i < count; ++i) {
    collectives.launch();
    ends[static_cast<std::size_t>(i) + 1]->set(collectives.stream());
    if (i != 1) continue;  // they are on their way
    begin.set(block.stream());
    for (int k = 0; k < runs; ++k) block.run(kind);
    end.set(block.stream());
  }
  synchronise(block.stream());
  synchronise(collectives.stream());
  times.beside = end.since(begin) / runs;
  std::size_t ended = 2;
  while (ended + 1 < ends.size() && end.since(*ends[ended + 1]) > 0) ++ended;
  times.neighbour =
      ends[ended]->since(*ends[2]) / static_cast<double>(std::max<std::size_t>(1, ended - 2));
  if (ended + 1 == ends.size()) times.beside = 0;  // they ended first: no answer
  return times;
}

void bench_beside(int rank, int ranks, const ncclUniqueId* ids) {
  require(open_device(rank));
  ncclComm_t world = nullptr;
  check_nccl(ncclCommInitRank(&world, ranks, ids[kIds - 1], rank), "ncclCommInitRank");
  Block block(make_stream(false));
  DeviceArray<float> token(1);
  const auto meet = [&] {
    require(check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"));
    check_nccl(
        ncclAllReduce(token.data(), token.data(), 1, ncclFloat32, ncclSum, world, block.stream()),
        "ncclAllReduce");
    synchronise(block.stream());
  };
  if (rank == 0)
    fmt::print("kernels,collective,transport,dtype,solo_ms,beside_ms,collective_ms,alone_ms\n");
  for (std::size_t i = 0; i < kNeighbours.size(); ++i) {
    const Collectives collectives(kNeighbours[i], ids[i], rank, ranks);
    meet();
    const double alone = collectives.alone(20);
    for (std::size_t kind = 0; kind < kKinds; ++kind) {
      const auto which = static_cast<Kind>(kind);
      const double one = time_solo(block, which, 4);
      const int runs = std::max(4, static_cast<int>(250 / one));
      time_solo(block, which, 2 * runs);
      std::array<Beside, 3> repeats;
      for (Beside& repeat : repeats) {
        meet();
        // All ranks queue as many; those that are slow beside kernels take up to 2.5 times as long.
        repeat = time_beside(block, which, runs, collectives, static_cast<int>(420 / alone) + 4);
      }
      std::ranges::sort(repeats, {}, [](const Beside& b) { return b.beside / b.solo; });
      if (rank == 0)
        fmt::print("{},{},{:.4f},{:.4f},{:.4f},{:.4f}\n", kKindNames[kind], kNeighbours[i].name,
                   repeats[1].solo, repeats[1].beside, repeats[1].neighbour, alone);
      std::fflush(stdout);
    }
  }
}

/// A process a GPU, before any of them knows CUDA; rank 0's ids reach the others by pipes.
int bench_ranks(int ranks) {
  std::vector<std::array<int, 2>> pipes(static_cast<std::size_t>(ranks));
  for (auto& pair : pipes)
    if (pipe(pair.data()) != 0) return 3;
  for (int rank = 0; rank < ranks; ++rank) {
    if (fork() != 0) continue;
    std::array<ncclUniqueId, kIds> ids;
    constexpr auto kBytes = static_cast<ssize_t>(sizeof(ids));
    set_environment(true);
    if (rank == 0) {
      for (ncclUniqueId& id : ids) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
      for (int other = 1; other < ranks; ++other)
        if (write(pipes[static_cast<std::size_t>(other)][1], ids.data(), sizeof ids) != kBytes)
          return 3;
    } else if (read(pipes[static_cast<std::size_t>(rank)][0], ids.data(), sizeof ids) != kBytes) {
      return 3;
    }
    bench_beside(rank, ranks, ids.data());
    return 0;
  }
  int worst = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    int status = 0;
    wait(&status);
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) worst = 3;
  }
  return worst;
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  const int gpus = argc > 1 ? std::atoi(argv[1]) : 1;
  if (gpus < 1 || gpus > 16) {
    std::fprintf(stderr, "usage: block_bench [GPUS], at most 16\n");
    return 2;
  }
  if (gpus > 1) return mfsdp::cuda::bench_ranks(gpus);
  mfsdp::cuda::bench_mixtures();
  return 0;
}
