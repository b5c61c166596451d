// Memory of plans with FP8 GEMMs beside that of the same plan in bf16: less with gathered casts, and where
// casts are kept in place of inputs; else the same but for largest magnitudes.
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

Bytes device_pools(const PlanConfig& config) {
  const Program program = build_program(config, {}).value();
  Bytes sum;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) sum += pool.height;
  return sum;
}

/// Largest magnitudes that each block keeps until backward: of four inputs and four weights, a slot each;
/// and a slot where a step needs the most.
Bytes largest_magnitudes(const PlanConfig& config) {
  constexpr std::int64_t kSlot = 256;
  return Bytes{kSlot * (8 * config.model.layers + 1)};
}

TEST(Fp8Memory, IsBelowThatOfBf16) {
  PlanConfig config;
  config.model =
      load_model("llama3_8b", std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models")
          ->shape;
  config.seq_len = 8192;
  for (const std::int64_t ranks : {1, 8})
    for (const Recompute recompute : {Recompute::none, Recompute::selective, Recompute::full})
      for (const std::int64_t micro_batch : {1, 2}) {
        if (micro_batch > 1 && recompute != Recompute::selective) continue;
        config.mesh = data_parallel_mesh(1, ranks);
        config.recompute.kind = recompute;
        config.micro_batch = micro_batch;
        config.fp8 = Fp8Recipe::off;
        config.fp8_gather = false;
        const Bytes in_bf16 = device_pools(config);
        config.fp8 = Fp8Recipe::current;
        const Bytes in_fp8 = device_pools(config);
        config.fp8_gather = true;
        const Bytes gathered = device_pools(config);
        if (recompute == Recompute::none)
          EXPECT_LT(in_fp8, in_bf16) << ranks << " " << micro_batch;
        else
          EXPECT_LE(in_fp8, in_bf16 + largest_magnitudes(config))
              << ranks << " " << to_string(recompute) << " " << micro_batch;
        EXPECT_LT(gathered, in_bf16) << ranks << " " << to_string(recompute) << " " << micro_batch;
      }
}

/// The bytes that are live at once, which no packing of a pool is below.
Bytes live_at_most(const PlanConfig& config) {
  const Program program = build_program(config, {}).value();
  Bytes sum;
  for (const Pool& pool : program.pools)
    if (pool.space == MemorySpace::device) sum += pool.lower_bound;
  return sum;
}

/// Models are Llamas with at least as many tokens as the MLP is wide: with fewer, casts of weights can be more than
/// what casts of the tokens save. In a model of one block its gradient is begun before the head's is reduced.
RC_GTEST_PROP(Fp8Memory, IsNotAboveThatOfBf16ButForLargestMagnitudes, ()) {
  const auto pick = [](std::int64_t low, std::int64_t high) {
    return *rc::gen::inRange(low, high + 1);
  };
  PlanConfig config = test::small_config();
  config.logits_chunk = 1024;
  config.model.layers = pick(2, 5);
  config.model.hidden = 256 * pick(2, 16);
  config.model.heads = config.model.hidden / 128;
  config.model.kv_heads = config.model.heads % 2 == 0 ? config.model.heads / 2 : config.model.heads;
  config.model.head_dim = 128;
  config.model.intermediate = config.model.hidden * pick(4, 8) / 2;
  config.model.vocab = 1000 * pick(1, 130);
  config.micro_batch = pick(1, 2);
  config.seq_len = (config.model.intermediate + 1023) / 1024 * 1024 * pick(1, 2);
  config.model.max_seq_len = config.seq_len;
  config.mesh = data_parallel_mesh(1, std::int64_t{1} << pick(0, 3));
  config.recompute.kind = *rc::gen::element(Recompute::none, Recompute::selective);
  config.fp8 = Fp8Recipe::off;
  const Bytes in_bf16 = live_at_most(config);
  config.fp8 = Fp8Recipe::current;
  RC_ASSERT(live_at_most(config) <= in_bf16 + largest_magnitudes(config));
}

}  // namespace
}  // namespace mfsdp
