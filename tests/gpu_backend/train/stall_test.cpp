// A stream stalls while hosts exchange data: the deadline applies there as in a step.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <optional>
#include <stdexcept>

#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

OpId op_named(const Program& program, std::string_view name) {
  for (const Segment& segment : program.find_plan(PlanRole::train)->segments)
    for (const Op& op : segment.ops)
      if (op.name == name && op.kind() == OpKind::kernel) return op.id;
  throw std::out_of_range(std::string(name));
}

/// After every step the hosts meet, as they do for a save.
class Meets final : public StateKeeper {
 public:
  [[nodiscard]] bool is_due(std::int64_t /*steps_done*/) const override { return true; }
  [[nodiscard]] Result<Bytes> keep(const RestingRank& rank, const TrainPosition& /*position*/,
                                   HostGather& gather, const HostGather::Alive& alive) override {
    MFSDP_TRY(gather.all_gather(rank.rank, {}, alive));
    return Bytes(0);
  }
};

/// Rank 1's update of layer 0 never ends; rank 0's step ends without it, so that its host goes to
/// the meeting and waits there.
test::Told train_with_stall(const std::function<void(TrainInputs&)>& inputs) {
  const PlanConfig config = test::nano(2);
  const OpId stopped = op_named(build_program(config, {}).value(), "layers.0.adamw");
  return test::train(config, 3, test::Counting(),
                     {.inputs = inputs, .machine = [&](MachineSettings& settings) {
                        settings.deadline = std::chrono::milliseconds(500);
                        settings.faults.fault = {
                            .kind = InjectedFault::Kind::stop, .rank = 1, .op = stopped, .step = 0};
                      }});
}

void expect_stall_is_told(const test::Told& told) {
  ASSERT_FALSE(told.end);
  EXPECT_EQ(told.end.error().fault, Fault::environment);
  EXPECT_THAT(told.end.error().message(),
              HasSubstr("no op ended for 0.5 s: rank 1, layers.0.adamw (compute), step 1 does "
                        "not end"));
}

TEST(Stall, BeforeASaveMeetsTheDeadline) {
  Meets keeper;
  expect_stall_is_told(train_with_stall([&](TrainInputs& in) { in.keeper = &keeper; }));
}

TEST(Stall, BeforeACheckForNanMeetsTheDeadline) {
  expect_stall_is_told(train_with_stall([](TrainInputs& in) { in.settings.check_nan = true; }));
}

TEST(Stall, BeforeNormsOfParametersMeetsTheDeadline) {
  expect_stall_is_told(train_with_stall([](TrainInputs& in) { in.settings.log_param_norms = 1; }));
}

}  // namespace
}  // namespace mfsdp
