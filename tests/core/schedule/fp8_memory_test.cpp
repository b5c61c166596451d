// Memory of plans with FP8 GEMMs beside that of the same plan in bf16: with gathered casts less, without
// where casts are kept in place of inputs.
#include <gtest/gtest.h>

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
        EXPECT_TRUE(recompute != Recompute::none || ranks == 1 || in_fp8 < in_bf16);
        EXPECT_LT(gathered, in_bf16) << ranks << " " << to_string(recompute) << " " << micro_batch;
      }
}

}  // namespace
}  // namespace mfsdp
