#include "core/plan/kernel_spec.hpp"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/plan/op.hpp"

namespace mfsdp {
namespace {

TEST(KernelSpec, EveryKindHasARow) {
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const auto kind = static_cast<KernelKind>(i);
    EXPECT_EQ(spec_of(kind).kind, kind) << to_string(kind);
    EXPECT_TRUE(std::ranges::is_sorted(spec_of(kind).attributes)) << to_string(kind);
  }
  for (const auto kind : {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient}) {
    EXPECT_EQ(spec_of(KernelKind::gemm, kind).variant, kind);
    EXPECT_EQ(spec_of(KernelKind::gemm_fp8, kind).variant, kind);
  }
}

/// So prices are those of all ranks.
TEST(KernelSpec, CostsDoNotDependOnNumbersByRank) {
  int kinds = 0;
  for (std::size_t i = 0; i < kKernelKinds; ++i) {
    const KernelSpec& spec = spec_of(static_cast<KernelKind>(i));
    if (spec.rank_attributes.empty()) continue;
    ++kinds;
    Kernel kernel{.kind = spec.kind, .operands = {}};
    for (const std::string_view name : spec.attributes)
      kernel.attributes.emplace_back(std::string(name), 2);
    Kernel other = kernel;
    for (const std::string_view name : spec.rank_attributes) {
      EXPECT_TRUE(std::ranges::binary_search(spec.optional_attributes, name)) << name;
      other.attributes.emplace_back(std::string(name), 1000);
    }
    EXPECT_EQ(kernel.bytes(), other.bytes());
    if (spec.flops != nullptr) {
      EXPECT_EQ(spec.flops(kernel), spec.flops(other));
    }
    EXPECT_EQ(least_workspace(kernel), least_workspace(other));
  }
  // Lookups and their gradient, softmaxes in parts and losses of these; attention and RoPE of a part
  // of a sequence, and RoPE with norms of heads or rows, both ways; parts of heads of keys, both ways.
  EXPECT_EQ(kinds, 15);
}

TEST(KernelSpec, AProductOfNoKindHasNone) {
  Kernel kernel;
  kernel.attributes = {{"kind", 3}};
  EXPECT_EQ(spec_of(kernel), nullptr);
  kernel.attributes = {{"kind", 2}};
  EXPECT_EQ(gemm_kind(kernel), GemmKind::weight_gradient);
  kernel.kind = KernelKind::cast;
  EXPECT_EQ(gemm_kind(kernel), std::nullopt);
}

TEST(KernelSpec, ProductsOfFp8CountAsAllProductsDo) {
  Kernel kernel{.kind = KernelKind::gemm_fp8, .operands = {}};
  kernel.attributes = {{"beta", 0}, {"k", 7}, {"kind", 1}, {"m", 3}, {"n", 5}};
  EXPECT_EQ(spec_of(kernel)->flops(kernel), 2 * 3 * 5 * 7);
  EXPECT_EQ(spec_of(kernel)->operands[2].role, "weight_t");
  EXPECT_EQ(spec_of(kernel)->operands[2].element, Element::fp8);
}

TEST(KernelSpec, AttentionBackwardWorkspaceIsWhatCudnnAskedFor) {
  // docs/lab: at S = 2048, 4096 and 8192 on an H200, as they come and deterministic
  const auto at = [&](std::int64_t seq, bool deterministic) {
    return attention_backward_workspace(
        {.heads = 32, .kv_heads = 8, .seq = seq, .head_dim = 128, .deterministic = deterministic});
  };
  EXPECT_EQ(at(2048, false), 33554688);
  EXPECT_EQ(at(2048, true), 301990144);
  EXPECT_EQ(at(4096, false), 67109120);
  EXPECT_EQ(at(4096, true), 1140850944);
  EXPECT_EQ(at(8192, false), 134217984);  // 256 + 2 * 8192 * 4096 * 2
  EXPECT_EQ(at(8192, true), 4429185280);  // + 32 * 8192^2 * 2
}

/// Twice the pairs, counted by hand but for the diagonal: of a window of w tokens s - w queries see
/// w keys, the first w queries see half of w^2.
TEST(KernelSpec, AttentionCountsPairsInsideTheWindow) {
  EXPECT_EQ(attention_pairs(10, 0), 100);
  EXPECT_EQ(attention_pairs(10, 3), 2 * (7 * 3) + 3 * 3);
  EXPECT_EQ(attention_pairs(10, 10), 100);
  EXPECT_EQ(attention_pairs(10, 4096), 100);
  Kernel kernel;
  kernel.kind = KernelKind::attention_forward;
  kernel.attributes = {{"batch", 2}, {"head_dim", 8}, {"heads", 4}, {"seq", 10}};
  const auto flops = [&] { return spec_of(kernel)->flops(kernel); };
  EXPECT_EQ(flops(), 2 * 2 * 8 * 4 * 100);  // two GEMMs
  kernel.attributes.push_back({"window", 3});
  EXPECT_EQ(flops(), 2 * 2 * 8 * 4 * 51);
}

TEST(KernelSpec, AttentionBackwardWorkspaceOfOddShapes) {
  AttentionSizes sizes{.batch = 3, .heads = 6, .kv_heads = 3, .seq = 33, .head_dim = 41};
  // 3 * 33 * 6 * 41 * 2 = 48,708 bytes of a gradient, 48,768 as whole 128
  EXPECT_EQ(attention_backward_workspace(sizes), 256 + 2 * 48768);
  sizes.deterministic = true;
  // scores of 64 by 128
  EXPECT_EQ(attention_backward_workspace(sizes), 256 + 2 * 48768 + 3 * 6 * 64 * 128 * 2);
  sizes.kv_heads = 6;  // dK and dV are summed over nothing
  EXPECT_EQ(attention_backward_workspace(sizes), 256 + 3 * 6 * 64 * 128 * 2);
  sizes.compute = DType::fp32;  // not cuDNN's
  EXPECT_EQ(attention_backward_workspace(sizes), 256);
}

}  // namespace
}  // namespace mfsdp
