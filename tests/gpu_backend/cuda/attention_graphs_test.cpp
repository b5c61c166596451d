// Without a GPU: cuDNN reports for a described H200 which engines support a graph, and their
// workspace (data/h200_cudnn_deviceprop.json, read from such a GPU).
#include "gpu_backend/cuda/attention_graphs.hpp"

#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

#include "core/base/read_file.hpp"

namespace mfsdp::cuda {
namespace {

struct Sizes {
  std::int64_t batch = 1;
  std::int64_t heads = 1;
  std::int64_t kv_heads = 1;
  std::int64_t seq_len = 1;
  std::int64_t head_dim = 8;
};

AttentionBackwardLayout packed(const Sizes& s, bool deterministic) {
  const auto in_rows = [&](std::int64_t heads) {
    const std::int64_t row = heads * s.head_dim;
    return HeadStrides{.batch = s.seq_len * row, .head = s.head_dim, .position = row};
  };
  const HeadStrides qkv = in_rows(s.heads + 2 * s.kv_heads);
  const HeadStrides output = in_rows(s.heads);
  return {.forward = {.batch = s.batch,
                      .heads = s.heads,
                      .kv_heads = s.kv_heads,
                      .seq_len = s.seq_len,
                      .head_dim = s.head_dim,
                      .query = qkv,
                      .key = qkv,
                      .value = qkv,
                      .output = output},
          .d_output = output,
          .d_query = qkv,
          .d_key = qkv,
          .d_value = qkv,
          .deterministic = deterministic};
}

/// Llama-3-8B; queries that share keys and not; sequences and heads of odd sizes; scenarios/pipeline.
const std::vector<Sizes> kSizes{{1, 32, 8, 8192, 128}, {2, 32, 8, 4096, 128}, {2, 8, 2, 200, 64},
                                {1, 8, 8, 256, 128},   {1, 28, 4, 1000, 128}, {3, 6, 3, 33, 40},
                                {1, 4, 2, 31, 8},      {1, 4, 1, 129, 104},   {1, 2, 1, 8, 8}};

class AttentionGraphs : public testing::Test {
 protected:
  void SetUp() override {
    auto text =
        read_file(MFSDP_SOURCE_DIR "/tests/gpu_backend/cuda/data/h200_cudnn_deviceprop.json",
                  "device properties", 1 << 20);
    ASSERT_TRUE(text) << text.error().message();
    auto target = CudnnTarget::described(*text);
    ASSERT_TRUE(target) << target.error().message();
    target_.emplace(std::move(*target));
  }

  /// Of cuDNN's first choice.
  std::int64_t workspace_needed(const CudnnGraph& graph) {
    const auto engines = graph.engines(*target_);
    if (!engines || engines->empty()) {
      ADD_FAILURE() << (engines ? "no engine" : engines.error().message());
      return 0;
    }
    return engines->front().workspace_bytes;
  }

  std::optional<CudnnTarget> target_;
};

TEST_F(AttentionGraphs, ForwardIsServedWithTheWorkspaceThatIsPlanned) {
  for (const Sizes& sizes : kSizes) {
    const AttentionForwardPlan plan(packed(sizes, false).forward);
    EXPECT_EQ(workspace_needed(plan.graph()), kAttentionWorkspaceBytes) << sizes.seq_len;
  }
}

TEST_F(AttentionGraphs, BackwardIsServedWithTheWorkspaceThatIsPlanned) {
  for (const Sizes& sizes : kSizes)
    for (const bool deterministic : {false, true}) {
      const AttentionBackwardLayout layout = packed(sizes, deterministic);
      const AttentionBackwardPlan plan(layout);
      EXPECT_EQ(workspace_needed(plan.graph()), attention_backward_workspace(layout))
          << sizes.seq_len << (deterministic ? " deterministic" : "");
    }
}

TEST_F(AttentionGraphs, WindowsCapsAndDocumentsAreServedWithTheSameWorkspace) {
  for (const Sizes& sizes : kSizes)
    for (const int which : {1, 2, 3, 5, 6, 7, 8, 9, 11, 12, 15}) {
      const bool deterministic = (which & 4) != 0;
      AttentionBackwardLayout layout = packed(sizes, deterministic);
      if ((which & 1) != 0) layout.forward.window = (sizes.seq_len + 1) / 2;
      if ((which & 2) != 0) layout.forward.score_cap = 50;
      layout.forward.documents = (which & 8) != 0;
      const AttentionForwardPlan forward(layout.forward);
      EXPECT_EQ(workspace_needed(forward.graph()), kAttentionWorkspaceBytes) << sizes.seq_len;
      const AttentionBackwardPlan backward(layout);
      EXPECT_EQ(workspace_needed(backward.graph()), attention_backward_workspace(layout))
          << sizes.seq_len << " case " << which;
    }
}

TEST_F(AttentionGraphs, BackwardWorkspaceByHand) {
  // 8192 tokens of 32 heads of 128 in bf16, twice; scores of 32 heads in bf16.
  constexpr std::int64_t kGradients = 2LL * 8192 * 32 * 128 * 2;
  EXPECT_EQ(attention_backward_workspace(packed(kSizes[0], false)), 256 + kGradients);
  EXPECT_EQ(attention_backward_workspace(packed(kSizes[0], true)),
            256 + kGradients + 32LL * 8192 * 8192 * 2);
}

TEST_F(AttentionGraphs, WhatCudnnCannotServeHasNoEngine) {
  const AttentionForwardPlan plan(packed({1, 4, 4, 128, 12}, false).forward);  // head_dim 12
  const auto engines = plan.graph().engines(*target_);
  ASSERT_TRUE(engines);
  EXPECT_TRUE(engines->empty());
}

TEST(CudnnTarget, DescriptionThatIsNoneIsAnError) { EXPECT_FALSE(CudnnTarget::described("{")); }

}  // namespace
}  // namespace mfsdp::cuda
