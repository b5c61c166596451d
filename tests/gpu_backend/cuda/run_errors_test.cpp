// Errors of a failed run name the op that failed. Steps count from 1 in messages.
#include "gpu_backend/cuda/run_errors.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/tiny_program.hpp"

namespace mfsdp::cuda {
namespace {

class RunErrorsTest : public testing::Test {
 protected:
  const Program program_ = test::tiny_program();
  const BoundPlan bound_ = PlanBinder(program_, PoolBases(program_.pools.size(), nullptr), 1)
                               .bind(program_.plans.front())
                               .value();
  const std::vector<BoundOp>& ops_ = bound_.lists.front().ops;
};

TEST_F(RunErrorsTest, AFailureNamesRankOpStepAndShape) {
  const Error error =
      op_failure(program_, 1, ops_[5], 6, {.where = "cudaLaunch", .what = "invalid argument"});
  EXPECT_EQ(error.message(),
            "rank 1, gemm (compute), step 7: cudaLaunch: invalid argument: "
            "cast, weight bf16 [128], output bf16 [128]");
  EXPECT_EQ(error.fault, Fault::environment);
}

TEST_F(RunErrorsTest, AStallNamesWhatTheDeviceIsAt) {
  const UnfinishedOp at{.op = &ops_[1], .step = 0};
  const Error error = stall(program_, 1, at, std::chrono::milliseconds(60'200));
  EXPECT_EQ(error.message(),
            "rank 1, gather (all_gather), step 1: has not ended while the host waited for 60.2 s: "
            "all_gather of 64 bf16 over 2 ranks (all_gather)");
  EXPECT_EQ(error.fault, Fault::environment);
}

TEST_F(RunErrorsTest, AStallOfTheHostAloneNamesTheRank) {
  const Error error = stall(program_, 0, std::nullopt, std::chrono::milliseconds(1'500));
  EXPECT_EQ(error.message(), "rank 0: the host has been held in one call for 1.5 s");
}

}  // namespace
}  // namespace mfsdp::cuda
