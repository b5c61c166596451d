// Blocks and ends of a model in the code of transformers or torchtitan.
#pragma once

#include <memory>

#include "sim/engines/block.hpp"
#include "sim/engines/eager_ops.hpp"
#include "sim/engines/fsdp2_units.hpp"
#include "sim/engines/llama_ends.hpp"

namespace mfsdp {

/// Operator by operator. `units`: gets the hooks of parts of blocks, and gradients that are added in
/// place.
[[nodiscard]] std::unique_ptr<LlamaBlock> eager_module_block(StepBuilder& step,
                                                             const PlanConfig& config,
                                                             const Fsdp2Options& options,
                                                             Fsdp2Units& units);

/// As Inductor fuses them.
[[nodiscard]] std::unique_ptr<LlamaBlock> compiled_module_block(StepBuilder& step,
                                                                const PlanConfig& config,
                                                                const Fsdp2Options& options);

/// Embedding, final norm, head and loss around such blocks.
[[nodiscard]] std::unique_ptr<LlamaEnds> module_ends(StepBuilder& step, const PlanConfig& config,
                                                     const Fsdp2Options& options,
                                                     bool compiles_loss);

/// How the model's class computes its norms.
[[nodiscard]] NormCode norm_code(const ModelShape& model, Modules modules);

/// Bytes of a mask of sliding layers: one of each pair of tokens, `element` bytes each; 0 without.
[[nodiscard]] std::int64_t mask_bytes(const PlanConfig& config, std::int64_t element);

}  // namespace mfsdp
