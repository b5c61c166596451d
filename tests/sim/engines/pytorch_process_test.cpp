#include "sim/engines/pytorch_process.hpp"

#include <gmock/gmock.h>

#include "tests/sim/engines/recorded_llamas.hpp"

namespace mfsdp::test {
namespace {

using testing::ElementsAre;

constexpr std::int64_t kChannels = 24;  // of NCCL on H100 and H200

PlanConfig on_mesh(std::int64_t outer, std::int64_t shard) {
  PlanConfig config = config_of(small_llama(), 128);
  config.mesh = data_parallel_mesh(outer, shard);
  return config;
}

/// total - free - reserved of runs: docs/lab, each in its file.
TEST(PytorchProcess, TakesWhatWasMeasured) {
  const auto bytes = [](std::int64_t ranks) {
    return pytorch_process(EngineKind::fsdp2, on_mesh(1, ranks), kChannels).total().value;
  };
  EXPECT_EQ(bytes(1), 1'389'166'592);
  EXPECT_EQ(bytes(2), 1'691'222'016);
  // The probe's second and third communicators were as large on four GPUs as on two.
  EXPECT_EQ(bytes(4), bytes(2));
}

/// Beside the default group each dimension has a communicator that is not the whole world.
TEST(PytorchProcess, CountsProcessGroups) {
  EXPECT_THAT(communicator_sizes(EngineKind::fsdp2, on_mesh(1, 8)), ElementsAre(8));
  EXPECT_THAT(communicator_sizes(EngineKind::megatron_fsdp_v2, on_mesh(1, 8)), ElementsAre(8));
  EXPECT_THAT(communicator_sizes(EngineKind::fsdp2, on_mesh(2, 4)), ElementsAre(8, 2, 4));
  // As many copies as ranks: the outer dimension is the world, the other one has one rank.
  EXPECT_THAT(communicator_sizes(EngineKind::fsdp2, on_mesh(8, 1)), ElementsAre(8, 1));
  EXPECT_THAT(communicator_sizes(EngineKind::megatron_fsdp_v1, on_mesh(1, 8)), ElementsAre(8, 1));
  EXPECT_THAT(communicator_sizes(EngineKind::mcore, on_mesh(1, 8)), ElementsAre(8, 8));
}

/// 194 pages of 2 MiB, and of several ranks two for each channel: 194 + 48 pages are the probe's
/// 507,510,784 bytes.
TEST(PytorchProcess, FurtherCommunicatorsAreSmaller) {
  const auto bytes = [](std::int64_t outer, std::int64_t shard) {
    return pytorch_process(EngineKind::fsdp2, on_mesh(outer, shard), kChannels).total().value;
  };
  EXPECT_EQ(bytes(2, 4) - bytes(1, 8), 2 * 507'510'784);
  EXPECT_EQ(bytes(8, 1) - bytes(1, 8), 406'847'488);
}

}  // namespace
}  // namespace mfsdp::test
