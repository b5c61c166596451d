#include "core/plan/fp8.hpp"

#include <fmt/format.h>

#include <optional>
#include <string_view>
#include <utility>

#include "core/plan/fp8_blocks.hpp"
#include "core/plan/kernels/fp8.hpp"

namespace mfsdp {

Result<void> check_fp8(const PlanConfig& config) {
  if (!config.has_fp8()) {
    if (config.fp8_keep_bf16 != 0)
      return fail("--fp8-keep-bf16", "expected --fp8 too: without it all blocks are in bf16");
    if (config.fp8_accumulate != Fp8Accumulate::fast_forward)
      return fail("--fp8-accumulate", "expected --fp8 too: without it there are no FP8 GEMMs");
    if (config.fp8_gather)
      return fail("--fp8-gather", "expected --fp8 too: without it no weights are cast");
  }
  if (config.fp8 != Fp8Recipe::delayed)
    for (const auto& [flag, is_set] : {std::pair{"--fp8-history", config.fp8_history != 0},
                                       std::pair{"--fp8-amax", config.fp8_amax != Fp8Amax::max}})
      if (is_set)
        return fail(flag, fmt::format("expected --fp8 delayed, whose scales are of earlier steps, "
                                      "got --fp8 {}",
                                      to_string(config.fp8)));
  if (!config.has_fp8()) return {};
  if (config.fp8_gather && config.fp8 != Fp8Recipe::current)
    return fail("--fp8-gather",
                fmt::format("expected --fp8 current, got --fp8 {}", to_string(config.fp8)));
  const std::optional<BlockFormat> blocks = block_format(config.fp8);
  if (blocks && config.fp8_accumulate != Fp8Accumulate::fast_forward)
    return fail("--fp8-accumulate",
                fmt::format("expected none with --fp8 {}: sums of a block are added up in fp32",
                            to_string(config.fp8)));
  const auto refuse = [&](std::string_view what) {
    return fail("--fp8", fmt::format("expected off with {}, got {}", what, to_string(config.fp8)));
  };
  const ModelShape& model = config.model;
  if (config.exact_sums)
    return fail("--exact-sums",
                "expected none with --fp8: a scale depends on all tokens that a rank casts at "
                "once, so that results depend on how tokens are divided");
  if (config.param_dtype != DType::bf16) return refuse("other --param-dtype than bf16");
  if (config.has_lora()) return refuse("--lora-rank (GEMMs of adapters have no FP8 form)");
  if (model.experts != 0) return refuse("experts (grouped GEMMs have no FP8 form)");
  if (model.traits().latent_attention) return refuse("latent attention, whose layers stay in bf16");
  if (model.qkv_bias || model.traits().biases)
    return refuse("a model whose linear layers have biases");
  if (2 * config.fp8_keep_bf16 >= model.layers)
    return fail("--fp8-keep-bf16",
                fmt::format("expected at most {}, so that some of the model's {} blocks are in "
                            "FP8, got {}",
                            (model.layers - 1) / 2, model.layers, config.fp8_keep_bf16));
  if (config.fp8_gather) {
    const auto unless = [](std::string_view what) {
      return fail("--fp8-gather", fmt::format("expected none with {}", what));
    };
    if (config.outer_strategy != Strategy::no_shard && config.mesh.size(Axis::dp_outer) > 1)
      return unless("--outer-strategy optim: casts are gathered over one axis");
    if (orthogonalises(config.optimizer))
      return unless("an optimizer that orthogonalises matrices of a block together");
    if (!config.frozen.empty()) return unless("frozen parameters, which keep no main weights");
  }
  for (const auto& [what, size] :
       {std::pair{"hidden size", model.hidden},
        {"intermediate size", model.intermediate},
        {"width of query, key and value", model.qkv_width()},
        {"width of all heads", model.attention_width()},
        {"tokens of a microbatch (--micro-batch x --seq-len)", config.tokens_per_microbatch()}})
    if (const std::int64_t grain = blocks ? blocks->block : kernels::kFp8Grain; size % grain != 0)
      return fail("--fp8", fmt::format("expected sizes that are multiples of {}, got {} {}", grain,
                                       size, what));
  return {};
}

}  // namespace mfsdp
