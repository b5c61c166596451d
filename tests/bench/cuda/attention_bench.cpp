// Kinds of attention by mfsdp-exec's own kernels and by cuDNN, as CSV on standard output: whole,
// with windows, softcaps and documents, heads of 64 to 256.
//
//   attention_bench [SEQUENCE ...]
//
// Random numbers, bf16, one sequence. Times are medians of ten calls without pause, in
// milliseconds. TFLOP/s count the pairs that a kind has: two GEMMs forward, five backward.
// `of_whole`: the time over that of the kernels which compute the same heads whole fastest, ours or
// cuDNN's, in the same run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <vector>

#include "gpu_backend/cuda/warpgroup_attention.hpp"
#include "tests/bench/cuda/llama_kernels.hpp"

namespace mfsdp::cuda {
namespace {

struct Heads {
  std::int64_t query = 0;
  std::int64_t key = 0;
  std::int64_t dim = 0;
};
struct Kind {
  const char* name = "whole";
  std::int64_t window = 0;
  double cap = 0;
  std::int64_t documents = 1;  ///< of equal lengths

  [[nodiscard]] bool is_whole() const { return window == 0 && cap == 0 && documents == 1; }
};

/// Forward, backward.
struct Times {
  double forward = 0;
  double backward = 0;
};

double median(Timer& timer, const Launch& launch) {
  const auto run = [&] { require(launch()); };
  timer.time(3, run);
  std::vector<double> times;
  for (int i = 0; i < 10; ++i) times.push_back(timer.time(1, run));
  std::ranges::nth_element(times, times.begin() + 5);
  return times[5];
}

/// Pairs of a query and a key that it sees, of one head.
double pairs_of(const Kind& kind, std::int64_t seq) {
  const std::int64_t length = seq / kind.documents;
  const std::int64_t seen = kind.window > 0 ? std::min(kind.window, length) : length;
  const auto pairs = static_cast<double>(seen * (2 * length - seen)) / 2;
  return pairs * static_cast<double>(kind.documents);
}

std::vector<std::int32_t> positions_of(std::int64_t seq, std::int64_t documents) {
  std::vector<std::int32_t> positions;
  for (std::int64_t i = 0; i < seq; ++i)
    positions.push_back(static_cast<std::int32_t>(i % (seq / documents)));
  return positions;
}

class Bench {
 public:
  Bench()
      : own_(require(AttentionPlanner::create(AttentionKernels::warpgroups))),
        library_(require(AttentionPlanner::create(AttentionKernels::library))) {
    fmt::print(
        "kind,way,heads,key_heads,d,sequence,window,cap,documents,forward_ms,backward_ms,"
        "forward_tflops,backward_tflops,forward_of_whole,backward_of_whole\n");
  }

  /// All kinds of the same heads, whole first.
  void run(const Heads& heads, std::int64_t seq, const std::vector<Kind>& kinds) {
    LlamaAttention attention(seq, 1, heads.query, heads.key, heads.dim);
    std::optional<Times> whole;
    const auto row = [&](const Kind& kind, bool own) {
      const DeviceArray<std::int32_t> positions(positions_of(seq, kind.documents));
      auto forward = attention.forward();
      auto backward = attention.backward(false);
      for (kernels::AttentionShape* shape : {&forward.shape, &backward.shape}) {
        shape->window = kind.window;
        shape->score_cap = kind.cap;
        if (kind.documents > 1) shape->positions = positions.data();
      }
      if (own && !(require(warpgroups_take(forward)) && require(warpgroups_take(backward)))) return;
      AttentionPlanner& planner = own ? own_ : library_;
      // In this order, because the backward reads what the forward writes.
      const Times times{.forward = median(timer_, require(planner.bind(forward, nullptr))),
                        .backward = median(timer_, require(planner.bind(backward, nullptr)))};
      if (kind.is_whole())
        whole = whole ? Times{std::min(whole->forward, times.forward),
                              std::min(whole->backward, times.backward)}
                      : times;
      const double flops = 2e-9 * static_cast<double>(heads.query * heads.dim) *
                           pairs_of(kind, seq);  // of one GEMM, for milliseconds
      fmt::print("{},{},{},{},{},{},{},{},{},{:.4f},{:.4f},{:.1f},{:.1f},{:.3f},{:.3f}\n",
                 kind.name, own ? "own" : "cudnn", heads.query, heads.key, heads.dim, seq,
                 kind.window, kind.cap, kind.documents, times.forward, times.backward,
                 2 * flops / times.forward, 5 * flops / times.backward,
                 times.forward / whole->forward, times.backward / whole->backward);
      std::fflush(stdout);
    };
    for (const Kind& kind : kinds)
      for (const bool own : {false, true}) row(kind, own);
  }

 private:
  Timer timer_;
  AttentionPlanner own_, library_;
};

void bench(const std::vector<std::int64_t>& sequences) {
  Bench all;
  const Kind whole;
  const auto window = [](std::int64_t tokens) { return Kind{.name = "window", .window = tokens}; };
  const Kind documents{.name = "documents", .documents = 8};
  for (const std::int64_t seq : sequences) {
    all.run(
        {32, 8, 128}, seq,
        {whole, window(512), window(1024), window(4096), {.name = "cap", .cap = 50}, documents});
    all.run({32, 8, 64}, seq, {whole, window(512), documents});
    all.run({64, 8, 64}, seq, {whole, window(128)});                            // gpt-oss
    all.run({32, 32, 96}, seq, {whole, window(512), window(2047), documents});  // Phi-3
    all.run({8, 4, 256}, seq,
            {whole,
             window(512),
             {.name = "cap", .cap = 50},
             {.name = "cap and window", .window = 4096, .cap = 50}});          // Gemma 2
    all.run({4, 1, 256}, seq, {whole, window(512), window(1024), documents});  // Gemma 3
  }
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  std::vector<std::int64_t> sequences;
  for (int i = 1; i < argc; ++i) sequences.push_back(std::atoll(argv[i]));
  if (sequences.empty()) sequences.push_back(8192);
  mfsdp::cuda::bench(sequences);
}
