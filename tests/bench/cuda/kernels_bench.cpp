// Memory-bound kernels at the shapes of Llama-3-8B (8192 tokens, slices of 8 ranks), as a Markdown
// table: bytes that the kernel must move, time, and the share of what a copy reaches.
//
//   kernels_bench [NAME]     only those whose name contains NAME
//
// Operands are taken from one arena, anew for each launch, so that no launch finds what it reads in
// the L2 cache. A figure is the median of seven runs of at least 20 launches.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "core/runtime/step_report.hpp"
#include "gpu_backend/cuda/kernels/experts.hpp"
#include "gpu_backend/cuda/kernels/grid_scratch.hpp"
#include "gpu_backend/cuda/kernels/norm.hpp"
#include "gpu_backend/cuda/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/sums.hpp"
#include "gpu_backend/cuda/kernels/swiglu.hpp"
#include "gpu_backend/cuda/kernels/tokens.hpp"
#include "gpu_backend/cuda/kernels/update.hpp"
#include "tests/bench/cuda/kernel_table.hpp"

namespace mfsdp::cuda {
namespace {

constexpr std::int64_t kTokens = 8192;
constexpr std::int64_t kHidden = 4096;
constexpr std::int64_t kIntermediate = 14336;
constexpr std::int64_t kQkv = 6144;
constexpr std::int64_t kHeads = 40;  // 32 of queries, 8 of keys
constexpr std::int64_t kHeadDim = 128;
constexpr std::int64_t kVocab = 128256;
constexpr std::int64_t kChunk = 2048;  // rows of logits
constexpr std::int64_t kPartialRows = 256;
constexpr std::int64_t kSlice = 218112000 / 8;  // of a block's parameters

/// Kernels that go over rows of hidden states, `cols` wide.
void rows_of(Table& table, std::int64_t tokens, std::int64_t cols) {
  Arena& a = table.arena;
  const std::int64_t rows = tokens * cols;
  const std::string shape = std::to_string(tokens) + " x " + std::to_string(cols);
  const DeviceArray<Bf16> weight(random_values<Bf16>(cols, 1));
  const auto take = [&] { return a.take<Bf16>(rows); };
  const auto row = [&] { return a.take<float>(tokens); };
  table.row("rms_norm_forward", shape + ", residual + delta", 4 * rows * 2, [&] {
    return rms_norm_forward(kernels::RmsNormForward<Bf16>{.rows = tokens,
                                                          .cols = cols,
                                                          .epsilon = 1e-5F,
                                                          .residual = take(),
                                                          .delta = take(),
                                                          .weight = weight.data(),
                                                          .residual_out = take(),
                                                          .normed = take(),
                                                          .rstd = row()},
                            nullptr);
  });
  table.row("rms_norm_backward", shape + ", adds, output again",
            5 * rows * 2 + kPartialRows * cols * 4, [&] {
              auto* const d_normed = take();
              return rms_norm_backward(
                  kernels::RmsNormBackward<Bf16>{.rows = tokens,
                                                 .cols = cols,
                                                 .partial_rows = kPartialRows,
                                                 .d_normed = d_normed,
                                                 .input = take(),
                                                 .rstd = row(),
                                                 .weight = weight.data(),
                                                 .adds = true,
                                                 .d_residual = take(),
                                                 .normed = d_normed,
                                                 .partials = a.take<float>(kPartialRows * cols)},
                  nullptr);
            });
  table.row("layer_norm_forward", shape + ", residual + delta", 4 * rows * 2, [&] {
    return layer_norm_forward(kernels::LayerNormForward<Bf16>{.rows = tokens,
                                                              .cols = cols,
                                                              .epsilon = 1e-5F,
                                                              .residual = take(),
                                                              .delta = take(),
                                                              .weight = weight.data(),
                                                              .bias = weight.data(),
                                                              .residual_out = take(),
                                                              .normed = take(),
                                                              .mean = row(),
                                                              .rstd = row()},
                              nullptr);
  });
  table.row(
      "layer_norm_backward", shape + ", adds, output again",
      5 * rows * 2 + 2 * kPartialRows * cols * 4, [&] {
        auto* const d_normed = take();
        return layer_norm_backward(
            kernels::LayerNormBackward<Bf16>{.rows = tokens,
                                             .cols = cols,
                                             .partial_rows = kPartialRows,
                                             .d_normed = d_normed,
                                             .input = take(),
                                             .mean = row(),
                                             .rstd = row(),
                                             .weight = weight.data(),
                                             .bias = weight.data(),
                                             .adds = true,
                                             .d_residual = take(),
                                             .normed = d_normed,
                                             .partials = a.take<float>(2 * kPartialRows * cols)},
            nullptr);
      });
  table.row("bias_grad", shape, rows * 2, [&] {
    return column_sums(
        kernels::ColumnSums<Bf16, float>{.rows = tokens,
                                         .cols = cols,
                                         .in = take(),
                                         .out = a.take<float>(cols),
                                         .partial_rows = kPartialRows,
                                         .partials = a.take<float>(kPartialRows * cols)},
        nullptr);
  });
}

/// Llama-3-8B's hidden size, and widths from GPT-2's to twice Llama's.
void norms(Table& table) {
  Arena& a = table.arena;
  rows_of(table, kTokens, kHidden);
  for (const std::int64_t cols : {768, 1152, 1600, 2048, 3072}) rows_of(table, 2 * kTokens, cols);
  rows_of(table, kTokens, 2 * kHidden);
  table.row("norm_weight_grad", "256 x 4096 fp32", kPartialRows * kHidden * 4, [&] {
    return column_sums(
        kernels::ColumnSums<float, float>{.rows = kPartialRows,
                                          .cols = kHidden,
                                          .in = a.take<float>(kPartialRows * kHidden),
                                          .out = a.take<float>(kHidden)},
        nullptr);
  });
  table.row("bias_grad", "8192 x 6144", kTokens * kQkv * 2, [&] {
    return column_sums(
        kernels::ColumnSums<Bf16, float>{.rows = kTokens,
                                         .cols = kQkv,
                                         .in = a.take<Bf16>(kTokens * kQkv),
                                         .out = a.take<float>(kQkv),
                                         .partial_rows = kPartialRows,
                                         .partials = a.take<float>(kPartialRows * kQkv)},
        nullptr);
  });
}

void swiglu(Table& table) {
  Arena& a = table.arena;
  const std::int64_t count = kTokens * kIntermediate;
  table.row("swiglu_forward", "8192 x 14336", 3 * count * 2, [&] {
    return swiglu_forward(kernels::SwigluForward<Bf16>{.rows = kTokens,
                                                       .cols = kIntermediate,
                                                       .gate_up = a.take<Bf16>(2 * count),
                                                       .product = a.take<Bf16>(count)},
                          nullptr);
  });
  table.row("swiglu_backward", "8192 x 14336, product again", 6 * count * 2, [&] {
    auto* const d_product = a.take<Bf16>(count);
    return swiglu_backward(kernels::SwigluBackward<Bf16>{.rows = kTokens,
                                                         .cols = kIntermediate,
                                                         .gate_up = a.take<Bf16>(2 * count),
                                                         .d_product = d_product,
                                                         .product = d_product},
                           nullptr);
  });
}

void ropes(Table& table) {
  Arena& a = table.arena;
  const kernels::RopeShape shape{.tokens = kTokens,
                                 .seq_len = kTokens,
                                 .heads = kHeads,
                                 .head_dim = kHeadDim,
                                 .turned = kHeadDim};
  const std::int64_t heads_bytes = kTokens * kHeads * kHeadDim * 2;
  const DeviceArray<float> angles(random_values<float>(kTokens * kHeadDim, 1));
  const DeviceArray<Bf16> weight(random_values<Bf16>(kHeadDim, 1));
  const auto heads = [](auto* data) {
    return kernels::HeadRows<std::remove_pointer_t<decltype(data)>>{
        .data = data, .row = kQkv, .head = kHeadDim};
  };
  const auto take = [&] { return a.take<Bf16>(kTokens * kQkv); };
  table.row(
      "rope", "8192 x 40 x 128, in rows of 6144", 2 * heads_bytes + kTokens * kHeadDim * 4, [&] {
        return rope(
            kernels::Rope<Bf16>{
                .shape = shape, .heads = heads(take()), .table = angles.data(), .backwards = false},
            nullptr);
      });
  table.row("qk_norm_rope_forward", "8192 x 40 x 128",
            2 * heads_bytes + kTokens * (kHeadDim + kHeads) * 4, [&] {
              const Bf16* const in = take();
              return qk_norm_rope_forward(
                  kernels::QkNormRopeForward<Bf16, float>{.shape = shape,
                                                          .query_heads = 32,
                                                          .epsilon = 1e-6F,
                                                          .in = heads(in),
                                                          .table = angles.data(),
                                                          .query_weight = weight.data(),
                                                          .key_weight = weight.data(),
                                                          .out = heads(take()),
                                                          .rstd = a.take<float>(kTokens * kHeads)},
                  nullptr);
            });
  table.row("qk_norm_rope_backward", "8192 x 40 x 128",
            3 * heads_bytes + kTokens * (kHeadDim + kHeads) * 4, [&] {
              const Bf16* const in = take();
              return qk_norm_rope_backward(
                  kernels::QkNormRopeBackward<Bf16, float>{
                      .shape = shape,
                      .query_heads = 32,
                      .partial_rows = kPartialRows,
                      .gradient = heads(take()),
                      .in = heads(in),
                      .table = angles.data(),
                      .rstd = a.take<float>(kTokens * kHeads),
                      .query_weight = weight.data(),
                      .key_weight = weight.data(),
                      .partials = a.take<float>(2 * kPartialRows * kHeadDim)},
                  nullptr);
            });
}

/// As Gemma-3-1B has them: 4 heads of queries, 1 of keys.
void few_heads(Table& table) {
  Arena& a = table.arena;
  constexpr std::int64_t kWide = 256;
  constexpr std::int64_t kRow = 6 * kWide;
  const kernels::RopeShape shape{
      .tokens = kTokens, .seq_len = kTokens, .heads = 5, .head_dim = kWide, .turned = kWide};
  const DeviceArray<float> angles(random_values<float>(kTokens * kWide, 1));
  const DeviceArray<Bf16> weight(random_values<Bf16>(kWide, 1));
  table.row("qk_norm_rope_backward, few heads", "8192 x 5 x 256",
            3 * kTokens * 5 * kWide * 2 + kTokens * (kWide + 5) * 4, [&] {
              const Bf16* const in = a.take<Bf16>(kTokens * kRow);
              return qk_norm_rope_backward(
                  kernels::QkNormRopeBackward<Bf16, float>{
                      .shape = shape,
                      .query_heads = 4,
                      .partial_rows = kPartialRows,
                      .gradient = {a.take<Bf16>(kTokens * kRow), kRow, kWide},
                      .in = {in, kRow, kWide},
                      .table = angles.data(),
                      .rstd = a.take<float>(kTokens * 5),
                      .query_weight = weight.data(),
                      .key_weight = weight.data(),
                      .partials = a.take<float>(2 * kPartialRows * kWide)},
                  nullptr);
            });
}

/// As OLMo-2-7B has it: 32 heads of queries, 32 of keys.
void row_norms(Table& table) {
  Arena& a = table.arena;
  constexpr std::int64_t kRow = 64 * kHeadDim;
  const kernels::RopeShape shape{
      .tokens = kTokens, .seq_len = kTokens, .heads = 64, .head_dim = kHeadDim, .turned = kHeadDim};
  const DeviceArray<float> angles(random_values<float>(kTokens * kHeadDim, 3));
  const DeviceArray<Bf16> weight(random_values<Bf16>(kRow, 5));
  const std::int64_t heads_bytes = kTokens * kRow * 2;
  const Bf16* const key_weight = weight.data() + kRow / 2;
  table.row("qk_row_norm_rope_forward", "8192 x 64 x 128", 2 * heads_bytes + kTokens * kHeadDim * 4,
            [&] {
              const Bf16* const in = a.take<Bf16>(kTokens * kRow);
              return qk_row_norm_rope_forward(
                  kernels::QkRowNormRopeForward<Bf16, float>{
                      .shape = shape,
                      .query_heads = 32,
                      .epsilon = 1e-6F,
                      .in = {in, kRow, kHeadDim},
                      .table = angles.data(),
                      .query_weight = weight.data(),
                      .key_weight = key_weight,
                      .out = {a.take<Bf16>(kTokens * kRow), kRow, kHeadDim},
                      .rstd = a.take<float>(2 * kTokens)},
                  nullptr);
            });
  table.row("qk_row_norm_rope_backward", "8192 x 64 x 128",
            3 * heads_bytes + kTokens * kHeadDim * 4, [&] {
              const Bf16* const in = a.take<Bf16>(kTokens * kRow);
              return qk_row_norm_rope_backward(
                  kernels::QkRowNormRopeBackward<Bf16, float>{
                      .shape = shape,
                      .query_heads = 32,
                      .partial_rows = kPartialRows,
                      .gradient = {a.take<Bf16>(kTokens * kRow), kRow, kHeadDim},
                      .in = {in, kRow, kHeadDim},
                      .table = angles.data(),
                      .rstd = a.take<float>(2 * kTokens),
                      .query_weight = weight.data(),
                      .key_weight = key_weight,
                      .partials = a.take<float>(kPartialRows * kRow)},
                  nullptr);
            });
}

/// As gpt-oss-20b has them: 4096 tokens, each with 4 of 32 experts, and 2 x 2880 columns.
void expert_biases(Table& table) {
  Arena& a = table.arena;
  constexpr std::int64_t kRows = 4 * 4096;
  constexpr std::int64_t kCols = 2 * 2880;
  constexpr std::int64_t kExperts = 32;
  std::vector<std::int32_t> all_ends;
  for (std::int64_t e = 1; e <= kExperts; ++e)
    all_ends.push_back(static_cast<std::int32_t>(e * kRows / kExperts));
  const DeviceArray<std::int32_t> ends(all_ends);
  const DeviceArray<Bf16> bias(random_values<Bf16>(kExperts * kCols, 1));
  table.row("expert_bias_forward", "16384 x 5760, 32 experts", 2 * kRows * kCols * 2, [&] {
    return expert_bias_forward(
        kernels::ExpertBiasForward<Bf16>{.rows = kRows,
                                         .cols = kCols,
                                         .experts = kExperts,
                                         .output = a.take<Bf16>(kRows * kCols),
                                         .bias = bias.data(),
                                         .ends = ends.data()},
        nullptr);
  });
  table.row("expert_bias_gradient", "16384 x 5760 to fp32, 32 experts", kRows * kCols * 2, [&] {
    return expert_bias_gradient(
        kernels::ExpertBiasGradient<Bf16, float>{.rows = kRows,
                                                 .cols = kCols,
                                                 .experts = kExperts,
                                                 .d_output = a.take<Bf16>(kRows * kCols),
                                                 .ends = ends.data(),
                                                 .bias_grad = a.take<float>(kExperts * kCols)},
        nullptr, nullptr);
  });
}

void gradients(Table& table, const DeviceArray<GridScratch>& workspace) {
  Arena& a = table.arena;
  table.row("accumulate", "27,264,000 bf16 to fp32, adds", kSlice * (2 + 4 + 4), [&] {
    return accumulate(kernels::Accumulate<Bf16, float>{.count = kSlice,
                                                       .in = a.take<Bf16>(kSlice),
                                                       .adds = true,
                                                       .out = a.take<float>(kSlice)},
                      nullptr);
  });
  table.row("sum_ranks", "8 of 27,264,000 bf16 to fp32", kSlice * (8 * 2 + 4), [&] {
    return sum_ranks(kernels::SumRanks<Bf16, float>{.ranks = 8,
                                                    .count = kSlice,
                                                    .in = a.take<Bf16>(8 * kSlice),
                                                    .out = a.take<float>(kSlice)},
                     nullptr);
  });
  table.row("cast", "27,264,000 fp32 to bf16", kSlice * (4 + 2), [&] {
    return accumulate(
        kernels::Accumulate<float, Bf16>{
            .count = kSlice, .in = a.take<float>(kSlice), .out = a.take<Bf16>(kSlice)},
        nullptr);
  });
  table.row("norm_partial", "27,264,000 fp32", kSlice * 4, [&] {
    return norm_partial(kernels::NormPartial<float>{.values = {a.take<float>(kSlice),
                                                               static_cast<std::size_t>(kSlice)},
                                                    .partial = a.take<float>(1),
                                                    .workspace = workspace.as_bytes()},
                        nullptr);
  });
  const DeviceArray<StepBlock> block(std::vector<StepBlock>{make_step_block(5, 1e-4, {})});
  const DeviceArray<LossReport> loss(std::vector<LossReport>{{.inverse_tokens = 1e-4F}});
  const DeviceArray<NormReport> norm(std::vector<NormReport>{{.norm = 1}});
  // A rank's slice of a block's parameters: matrices with two norms between them.
  const DeviceArray<kernels::DecayRun> runs(std::vector<kernels::DecayRun>{
      {.first = 0, .count = kSlice / 2, .decays = true},
      {.first = kSlice / 2, .count = kHidden, .decays = false},
      {.first = kSlice / 2 + kHidden, .count = kSlice / 2 - kHidden, .decays = true}});
  table.row("adamw", "27,264,000, fp32 main, bf16 weights", kSlice * (4 + 3 * 4 + 3 * 4 + 2), [&] {
    return update(
        kernels::Update<float, float, Bf16>{
            .elements = kSlice,
            .gradients = a.take<float>(kSlice),
            .weights = a.take<float>(kSlice),
            .compute = a.take<Bf16>(kSlice),
            .states = {a.take<float>(kSlice), a.take<float>(kSlice)},
            .step = block.data(),
            .loss = reinterpret_cast<const float*>(loss.data()),
            .norm = reinterpret_cast<const float*>(norm.data())},
        Optimizer::adamw, {}, {runs.data(), 3}, nullptr);
  });
  table.row("sgd", "27,264,000, fp32 main, bf16 weights", kSlice * (4 + 4 + 4 + 2), [&] {
    return update(
        kernels::Update<float, float, Bf16>{.elements = kSlice,
                                            .gradients = a.take<float>(kSlice),
                                            .weights = a.take<float>(kSlice),
                                            .compute = a.take<Bf16>(kSlice),
                                            .step = block.data(),
                                            .loss = reinterpret_cast<const float*>(loss.data())},
        Optimizer::sgd, {}, {runs.data(), 3}, nullptr);
  });
}

void tokens(Table& table, const DeviceArray<GridScratch>& workspace) {
  Arena& a = table.arena;
  std::mt19937 bits(1);
  std::vector<std::int32_t> ids(kTokens);
  for (auto& id : ids) id = static_cast<std::int32_t>(bits() % kVocab);
  const DeviceArray<std::int32_t> d_ids(ids);
  const DeviceArray<float> sums(std::vector<float>{0, 0});
  const std::span<const std::int32_t> all{d_ids.data(), ids.size()};
  const std::int64_t logits = kChunk * kVocab;
  const auto cross = [&]<class T>(T* data) {
    return cross_entropy(kernels::CrossEntropy<T>{.labels = all.first(kChunk),
                                                  .vocab = kVocab,
                                                  .ignored = -100,
                                                  .logits = data,
                                                  .sums = sums.data(),
                                                  .adds = true,
                                                  .workspace = workspace.as_bytes()},
                         nullptr);
  };
  table.row("cross_entropy", "2048 x 128256, read and written", 2 * logits * 2,
            [&] { return cross(a.take<Bf16>(logits)); });
  constexpr std::int64_t kOddVocab = 50257;  // of GPT-2, in rows that end later
  constexpr std::int64_t kOddRow = 50264;
  table.row(
      "cross_entropy, odd", "2048 x 50257, read and written", 2 * kChunk * kOddVocab * 2, [&] {
        return cross_entropy(kernels::CrossEntropy<Bf16>{.labels = all.first(kChunk),
                                                         .vocab = kOddVocab,
                                                         .ignored = -100,
                                                         .logits = a.take<Bf16>(kChunk * kOddRow),
                                                         .row = kOddRow,
                                                         .sums = sums.data(),
                                                         .adds = true,
                                                         .workspace = workspace.as_bytes()},
                             nullptr);
      });
  constexpr std::int64_t kGemmaVocab = 256000;
  const std::int64_t gemma_logits = kChunk * kGemmaVocab;
  table.row("cross_entropy, softcap", "2048 x 256000, read and written", 2 * gemma_logits * 2, [&] {
    return cross_entropy(kernels::CrossEntropy<Bf16>{.labels = all.first(kChunk),
                                                     .vocab = kGemmaVocab,
                                                     .ignored = -100,
                                                     .logits = a.take<Bf16>(gemma_logits),
                                                     .sums = sums.data(),
                                                     .adds = true,
                                                     .cap = 30,
                                                     .workspace = workspace.as_bytes()},
                         nullptr);
  });
  table.row("cross_entropy_loss", "2048 x 128256", logits * 2,
            [&] { return cross(static_cast<const Bf16*>(a.take<Bf16>(logits))); });
  table.row("embedding_forward", "8192 x 4096 of 128256", 2 * kTokens * kHidden * 2, [&] {
    return embedding_forward(
        kernels::EmbeddingForward<Bf16>{.tokens = all,
                                        .cols = kHidden,
                                        .vocab = kVocab,
                                        .table = a.take<Bf16>(kVocab * kHidden),
                                        .output = a.take<Bf16>(kTokens * kHidden)},
        nullptr);
  });
  const auto backward = [&](std::span<const std::int32_t> tokens, bool adds) {
    return embedding_backward(
        kernels::EmbeddingBackward<Bf16, float>{
            .tokens = tokens,
            .cols = kHidden,
            .vocab = kVocab,
            .d_output = a.take<Bf16>(kTokens * kHidden),
            .order = {a.take<kernels::TokenPlace>(kTokens), tokens.size()},
            .adds = adds,
            .gradient = a.take<float>(kVocab * kHidden)},
        nullptr);
  };
  const std::int64_t rows_bytes = kTokens * kHidden * 2;
  table.row("embedding_backward", "8192 x 4096 to fp32 128256, all rows",
            rows_bytes + kVocab * kHidden * 4, [&] { return backward(all, false); });
  table.row("embedding_backward, tied", "8192 x 4096 to fp32, rows in use",
            rows_bytes + 2 * kTokens * kHidden * 4, [&] { return backward(all, true); });
  const DeviceArray<std::int32_t> one(std::vector<std::int32_t>(kTokens, 5));
  table.row("embedding_backward, one token", "8192 x 4096, all the same", rows_bytes,
            [&] { return backward({one.data(), ids.size()}, true); });
}

int run(const std::string& only) {
  const std::string device = device_line();
  if (device.empty()) return kSkipped;
  std::puts(device.c_str());
  const DeviceArray<GridScratch> workspace(1);
  Table table(only);
  norms(table);
  swiglu(table);
  ropes(table);
  few_heads(table);
  row_norms(table);
  expert_biases(table);
  gradients(table, workspace);
  tokens(table, workspace);
  return 0;
}

}  // namespace
}  // namespace mfsdp::cuda

int main(int argc, char** argv) { return mfsdp::cuda::run(argc > 1 ? argv[1] : ""); }
