#include "core/plan/context_parallel.hpp"

#include <gtest/gtest.h>

#include <string>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/op.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// Two ranks that read other sequences, of which two share each.
PlanConfig shared_config() {
  PlanConfig config = test::small_config(2);
  config.model.kv_heads = 2;
  config.mesh.resize(Axis::cp, 2);
  return config;
}

std::string refusal_of(const PlanConfig& config) {
  const auto outcome = validate(config);
  return outcome ? "" : outcome.error().message();
}

std::string refusal_after(void (*edit)(PlanConfig&)) {
  PlanConfig config = shared_config();
  edit(config);
  return refusal_of(config);
}

TEST(ContextParallel, CountsTheTokensOfEachSequenceOnce) {
  PlanConfig config = shared_config();
  EXPECT_EQ(refusal_of(config), "");
  EXPECT_EQ(config.tokens_per_microbatch(), 8);
  EXPECT_EQ(config.global_batch(), 2);
  EXPECT_EQ(config.global_tokens(), 32);
  EXPECT_EQ(config.token_rows(), 2);
  config.document_mask = true;
  EXPECT_EQ(config.token_rows() * config.tokens_per_microbatch(), 8 + 8 + 16);
  for (const std::int64_t rank : {0, 1, 2, 3}) {
    EXPECT_EQ(data_index(config.mesh, rank), rank / 2);
    EXPECT_EQ(sequence_part(config.mesh, rank), rank % 2);
  }
}

TEST(ContextParallel, NamesTheRuleAndItsNumbers) {
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.model.heads = 3, c.model.kv_heads = 3; }),
            "--cp: expected a number of ranks that divides the 3 attention heads, got 2");
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.model.kv_heads = 1; }),
            "--cp: expected a number of ranks that divides the 1 key-value heads, got 2");
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.seq_len = 15; }),
            "--cp: expected a number of ranks that divides the 15 tokens of a sequence "
            "(--seq-len), got 2");
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.micro_batch = 2; }),
            "--micro-batch: expected 1 with --cp and --cp-comm a2a, got 2");
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.exact_sums = true, c.logits_chunk = 16; }),
            "--logits-chunk: expected a divisor of the 8 tokens of a sequence that a rank has with "
            "--cp and --exact-sums, got 16");
}

TEST(ContextParallel, GatheredKeysNeedTwoChunksARank) {
  const auto gathered = [](void (*edit)(PlanConfig&)) {
    PlanConfig config = shared_config();
    config.model.kv_heads = 1;  // heads stay whole
    config.cp_comm = ContextExchange::all_gather;
    edit(config);
    return refusal_of(config);
  };
  EXPECT_EQ(gathered([](PlanConfig&) {}), "");
  EXPECT_EQ(gathered([](PlanConfig& c) { c.seq_len = 14; }),
            "--cp: expected a number of ranks that divides half of the 14 tokens of a sequence "
            "(--seq-len) with --cp-comm all_gather, got 2");
  EXPECT_EQ(gathered([](PlanConfig& c) { c.exact_sums = true; }),
            "--exact-sums: cannot be combined with --cp-comm all_gather: gradients of keys and "
            "values are rounded on each rank before they are added");
  EXPECT_EQ(gathered([](PlanConfig& c) { c.mesh.resize(Axis::cp, 1); }),
            "--cp-comm: expected a2a without --cp, got all_gather");
}

TEST(ContextParallel, RingsNeedTheSame) {
  PlanConfig config = shared_config();
  config.model.kv_heads = 1;
  config.cp_comm = ContextExchange::p2p;
  EXPECT_EQ(refusal_of(config), "");
  config.mesh.resize(Axis::cp, 65);
  config.seq_len = 130;
  config.model.max_seq_len = 130;
  EXPECT_EQ(refusal_of(config), "--cp: expected at most 64 ranks with --cp-comm p2p, got 65");
  config.seq_len = 120;
  EXPECT_EQ(refusal_of(config),
            "--cp: expected a number of ranks that divides half of the 120 tokens of a sequence "
            "(--seq-len) with --cp-comm p2p, got 65");
}

/// FLOPs of a rank are those of the whole sequence over the ranks; a rank needs no scores or gradients
/// by query head beside its operands.
TEST(ContextParallel, AttentionOfAPartCostsItsShare) {
  for (const KernelKind kind : {KernelKind::attention_forward, KernelKind::attention_backward}) {
    Operand query;
    query.role = "query";
    query.dtype = DType::bf16;
    Kernel whole{.kind = kind,
                 .operands = {query},
                 .attributes = {{"batch", 1},
                                {"deterministic", 1},
                                {"head_dim", 8},
                                {"heads", 4},
                                {"kv_heads", 2},
                                {"seq", 64}}};
    Kernel part = whole;
    part.attributes.insert(part.attributes.begin() + 5, {"parts", 4});
    const auto flops = spec_of(kind).flops;
    EXPECT_EQ(4 * flops(part), flops(whole));
    EXPECT_EQ(least_workspace(part), kAttentionWorkspaceBytes);
    Kernel step = part;  // with the keys of one of four ranks
    step.attributes.insert(step.attributes.begin() + 4, {"key_parts", 1});
    EXPECT_EQ(16 * flops(step), flops(whole));
  }
}

TEST(ContextParallel, RefusesByName) {
  const auto refused = [](const char* what) {
    return std::string("--cp: cannot be combined with ") + what + " so far";
  };
  EXPECT_EQ(refusal_after([](PlanConfig& c) {
              c.model.qk_norm = c.exact_sums = true;
              c.logits_chunk = 4;
            }),
            refused("norms of queries and keys and --exact-sums"));
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.optimizer = Optimizer::muon; }),
            refused("--optimizer muon"));
  EXPECT_EQ(refusal_after([](PlanConfig& c) { c.reduce = Transport::symmetric; }),
            refused("--reduce symmetric"));
  EXPECT_EQ(refusal_after([](PlanConfig& c) {
              test::add_experts(c.model, 4, 2);
              c.exact_sums = true;
              c.logits_chunk = 4;
            }),
            refused("experts and --exact-sums"));
}

}  // namespace
}  // namespace mfsdp
