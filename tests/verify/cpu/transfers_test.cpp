// Sends and receives that do not fit together end a run with one error.
#include "verify/cpu/machine/transfers.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "core/plan/instances.hpp"
#include "tests/support/machine_run.hpp"
#include "tests/support/pipeline.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

Job small_pipeline() {
  Job job = test::pipeline();
  for (Program& program : job.programs)
    test::shrink_gemm_workspace(program, std::int64_t{1} << 15U);
  return job;
}

/// Calls `edit` with each op of the last stage's plan that is a collective of this name.
void edit_last_stage(Job& job, std::string_view name, const auto& edit) {
  for (Op& op : ops_of(job.programs.back().plans.front()))
    if (op.name == name && op.kind() == OpKind::collective) edit(op);
}

std::string error_of_pipeline(const Job& job) {
  MachineSettings settings = test::hashing();
  settings.deadline = std::chrono::milliseconds(300);
  Machine machine(job.programs, settings);
  const auto outcome = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
    const Program& program = job.programs[static_cast<std::size_t>(rank)];
    MFSDP_TRY(test::run_rank(program, rank, backend, {{"train", 2}}));
    return {};
  });
  return outcome ? "" : outcome.error().message();
}

TEST(Transfers, MustAgreeInCountAndDtype) {
  Job job = small_pipeline();
  EXPECT_EQ(error_of_pipeline(job), "");
  edit_last_stage(job, "layers.0.mid.recv", [](Op& op) {
    auto& collective = std::get<Collective>(op.body);
    collective.count = 64;
    collective.output.shape = {64};
  });
  const std::string error = error_of_pipeline(job);
  EXPECT_THAT(error, HasSubstr("transfers differ on communicator pipeline: "));
  EXPECT_THAT(error, HasSubstr("rank 0 at layers.0.mid.send sends 128 bf16"));
  EXPECT_THAT(error, HasSubstr("rank 1 at layers.0.mid.recv receives 64 bf16"));
}

/// The first stage waits for a gradient that the last one does not send.
TEST(Transfers, OneThatLacksItsCounterpartIsReported) {
  Job job = small_pipeline();
  for (Pass& pass : job.programs.back().plans.front().passes)
    if (pass.name == "send_gradient")
      std::erase_if(pass.ops, [](const Op& op) { return op.kind() == OpKind::collective; });
  const std::string error = error_of_pipeline(job);
  EXPECT_THAT(error, HasSubstr("no op ended for 0.3 s: rank 0, d_residual.recv"));
  EXPECT_THAT(error, HasSubstr("waits for rank 1"));
}

TEST(Transfers, APeerOutsideOfTheMeshIsAnError) {
  Job job = small_pipeline();
  edit_last_stage(job, "report.send", [](Op& op) {
    std::get<Collective>(op.body).peer = PeerStep{.axis = Axis::pp, .step = 1};
  });
  EXPECT_THAT(
      error_of_pipeline(job),
      HasSubstr("(report.send): its peer is 1 steps from index 1 on pp, which has 2 ranks"));
}

}  // namespace
}  // namespace mfsdp
