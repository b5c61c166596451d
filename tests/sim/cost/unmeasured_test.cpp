#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/schedule/build.hpp"
#include "tests/sim/cost/cost_fixture.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// The unmeasured kinds of a step of a small model with these heads.
std::vector<std::string> unmeasured(const std::string& gpu, std::int64_t head_dim,
                                    DType dtype = DType::bf16, std::int64_t window = 0) {
  PlanConfig config = test::small_config(2);
  config.seq_len = 256;
  config.model.max_seq_len = 256;
  config.logits_chunk = 256;
  config.model.head_dim = head_dim;
  config.param_dtype = dtype;
  if (window != 0) {
    config.model.sliding_window = window;
    config.model.sliding_layers = {0, 1};
  }
  const Program program = build_program(config, {}).value();
  return testing_cost::model_of(gpu, 2).unmeasured(*program.find_plan(PlanRole::train));
}

/// The tables have heads of 64 and 128 by cuDNN, and of 96 and 256 by our own kernels.
TEST(Unmeasured, IsWhatNoRowOfTheGpusTablesHas) {
  EXPECT_THAT(unmeasured("h200", 64), IsEmpty());
  EXPECT_THAT(unmeasured("h200", 128), IsEmpty());
  EXPECT_THAT(unmeasured("h200", 128, DType::bf16, 64), IsEmpty());
  EXPECT_THAT(unmeasured("h200", 256), IsEmpty());
  EXPECT_THAT(unmeasured("h200", 320),
              ElementsAre("attention of heads of 320 (priced from heads of 128)"));
  EXPECT_THAT(unmeasured("h200", 128, DType::fp32),
              ElementsAre("GEMMs in fp32 (priced at bf16's share of the peak)",
                          "attention in fp32 (priced as in bf16)"));
}

TEST(Unmeasured, IsWhatFp8Multiplies) {
  PlanConfig config = test::fp8_config(2);
  config.model.head_dim = 64;
  const Program program = build_program(config, {}).value();
  const Plan& plan = *program.find_plan(PlanRole::train);
  EXPECT_THAT(testing_cost::model_of("h200", 2).unmeasured(plan), IsEmpty());
  EXPECT_THAT(testing_cost::model_of("b200", 2).unmeasured(plan),
              ElementsAre("GEMMs in FP8 (priced at twice the rate of bf16)"));
}

/// Where attention was not measured at all, the line of trust states that.
TEST(Unmeasured, IsNothingOfAGpuWithoutTables) { EXPECT_THAT(unmeasured("h100", 320), IsEmpty()); }

}  // namespace
}  // namespace mfsdp
