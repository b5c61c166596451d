// GEMMs of models' layers by length as mfsdp-exec runs them, for scenarios/gpus/tables.
//
//   gemm_table_bench [SECONDS [MODEL...]]
//
// Each row runs for SECONDS (0.5) without pause and times the second half, at the power limit.
// `first_ms` is of the algorithm that cuBLASLt's heuristics put first, as PyTorch has it,
// `chosen_ms` of the one that GemmPlanner chose by time. Llama-3-8B's have, up to 8192 tokens,
// `burst_ms` as well, the median of ten runs of a GPU that has just rested, and `cold_ms`: no
// operand has been read for half a gigabyte. Prints CSV; kinds as in those tables, and of its
// weight gradients at 2048 and 8192 tokens results in fp32, and added to them, too.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "tests/bench/cuda/llama_kernels.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kWorkspaceBytes = 32 << 20;
constexpr std::int64_t kColdBytes = 512 << 20;

struct Layer {
  std::int64_t outputs = 0;
  std::int64_t inputs = 0;
};

struct Model {
  std::string_view name;
  std::vector<std::int64_t> tokens;
  std::vector<Layer> layers;
};

const std::vector<Model>& models() {
  static const std::vector<Model> kModels{
      {"llama3_8b",
       {1024, 2048, 4096, 8192, 16384},
       {{6144, 4096}, {4096, 4096}, {28672, 4096}, {4096, 14336}}},
      {"loss", {1024, 8192}, {{128256, 4096}}},
      {"llama3_1b", {2048, 8192}, {{3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}}},
      {"llama3_3b", {2048, 8192}, {{5120, 3072}, {3072, 3072}, {16384, 3072}, {3072, 8192}}},
      {"qwen2.5_7b", {2048, 8192}, {{4608, 3584}, {37888, 3584}, {3584, 18944}}},
      {"llama2_13b", {2048, 8192}, {{15360, 5120}, {5120, 5120}, {27648, 5120}, {5120, 13824}}}};
  return kModels;
}

/// Copies of a GEMM's operands, enough that none is in a cache when it is used again.
class Operands {
 public:
  Operands(const GemmShape& shape, bool are_cold)
      : size_a_(shape.rows * shape.inner),
        size_b_(shape.inner * shape.cols),
        size_c_(shape.rows * shape.cols * (shape.result == DType::fp32 ? 2 : 1)),
        sets_(are_cold ? 1 + kColdBytes / (2 * (size_a_ + size_b_ + size_c_)) : 1),
        a_(sets_ * size_a_),
        b_(sets_ * size_b_),
        c_(sets_ * size_c_) {
    // Activations and gradients as norms leave them, weights as they are initialised.
    fill(a_, 1);
    fill(b_, shape.a_transposed ? 1 : 0.02F);
  }

  GemmMemory next(DeviceArray<std::uint8_t>& workspace) {
    const std::int64_t at = at_++ % sets_;
    return {.a = a_.data() + at * size_a_,
            .b = b_.data() + at * size_b_,
            .c = c_.data() + at * size_c_,
            .workspace = workspace.as_bytes()};
  }

 private:
  std::int64_t size_a_, size_b_, size_c_, sets_;  // in numbers of 16 bits
  DeviceArray<Bf16> a_, b_, c_;
  std::int64_t at_ = 0;
};

void bench(double seconds, const Model& model) {
  auto first = require(GemmPlanner::create({}));
  auto chosen = require(GemmPlanner::create(kSearch));
  DeviceArray<std::uint8_t> workspace(kWorkspaceBytes);
  Timer timer;
  for (const std::int64_t tokens : model.tokens)
    for (const Layer& layer : model.layers)
      for (const Product& product : products(tokens, layer.outputs, layer.inputs)) {
        const GemmShape& shape = product.shape;
        const bool is_reference = model.name == "llama3_8b";
        if (shape.result == DType::fp32 && !(is_reference && (tokens == 2048 || tokens == 8192)))
          continue;
        Operands warm(shape, false);
        require(first.prepare(shape, warm.next(workspace), nullptr));
        require(chosen.prepare(shape, warm.next(workspace), nullptr));
        const auto run = [&](const GemmPlanner& planner, Operands& operands) {
          return [&] { require(planner.run(shape, operands.next(workspace), nullptr)); };
        };
        const double sustained = timer.sustained(seconds, run(chosen, warm));
        fmt::print("{},{},{},{},{:.4f},{:.4f}", product.name, tokens, layer.outputs, layer.inputs,
                   timer.sustained(seconds, run(first, warm)), sustained);
        if (is_reference && tokens <= 8192) {
          Operands cold(shape, true);
          fmt::print(",{:.4f},{:.4f}\n", timer.burst(run(chosen, warm)),
                     timer.sustained(seconds, run(chosen, cold)));
        } else {
          fmt::print(",,\n");
        }
        std::fflush(stdout);
      }
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) {
  fmt::print("kind,M,N,K,first_ms,chosen_ms,burst_ms,cold_ms\n");
  for (const mfsdp::cuda::Model& model : mfsdp::cuda::models())
    if (argc <= 2 || std::find(argv + 2, argv + argc, model.name) != argv + argc)
      mfsdp::cuda::bench(argc > 1 ? std::atof(argv[1]) : 0.5, model);
}
