// A GPT as MosaicML's llm-foundry writes it (MPT): query, key and value are views of one GEMM's rows,
// FlashAttention, LayerNorm of bf16 rows (low_precision_layernorm), biases, learned positions, and
// FlashAttention's cross entropy on bf16 logits.
#pragma once

#include <memory>

#include "sim/engines/block.hpp"
#include "sim/engines/llama_ends.hpp"

namespace mfsdp {

/// Operator by operator. `every`: as in GradientRules.
[[nodiscard]] std::unique_ptr<LlamaBlock> gpt_block(StepBuilder& step, const PlanConfig& config,
                                                    std::int64_t every = 0);

/// Gradients of embedding_backward() are in the order of root_weights().
[[nodiscard]] std::unique_ptr<LlamaEnds> gpt_ends(StepBuilder& step, const PlanConfig& config);

}  // namespace mfsdp
