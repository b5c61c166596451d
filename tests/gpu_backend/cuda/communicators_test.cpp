// Checks of a collective before it is passed to NCCL.
#include "gpu_backend/cuda/communicators.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "tests/support/pipeline.hpp"

namespace mfsdp::cuda {
namespace {

/// 8 elements per rank of 4 ranks; all 32 begin at `kBase`.
constexpr std::int64_t kCount = 8;
constexpr std::int64_t kRanks = 4;
std::byte* const kBase = reinterpret_cast<std::byte*>(std::uintptr_t{0x10000});

struct Made {
  Op op;
  BoundOp bound;
  std::array<std::int64_t, 1> count{kCount};
};

Result<void> checked(CollectiveKind kind, std::byte* input, std::byte* output, std::int64_t member,
                     DType dtype = DType::fp32, Reduction reduction = Reduction::sum) {
  Made made;
  Collective collective;
  collective.kind = kind;
  collective.reduction = reduction;
  collective.count = kCount;
  collective.dtype = dtype;
  made.op.body = collective;
  made.bound.op = &made.op;
  for (std::byte* data : {input, output})
    made.bound.operands.push_back(
        {.role = "data", .data = data, .dtype = dtype, .shape = made.count, .strides = {}});
  return check_collective(made.bound, member, kRanks);
}

TEST(Communicators, OperandsLieApartOrInPlace) {
  const auto gather = CollectiveKind::all_gather;
  const auto scatter = CollectiveKind::reduce_scatter;
  // The part of member 2 begins at 2 * 8 elements * 4 bytes = 64.
  EXPECT_TRUE(checked(gather, kBase + 64, kBase, 2, DType::fp32, Reduction::none));
  EXPECT_FALSE(checked(gather, kBase + 64, kBase, 1, DType::fp32, Reduction::none));
  EXPECT_TRUE(checked(scatter, kBase, kBase + 64, 2));
  EXPECT_FALSE(checked(scatter, kBase, kBase + 60, 2));
  // The whole ends at 4 * 32 = 128 bytes.
  EXPECT_TRUE(checked(scatter, kBase, kBase + 128, 0));
  EXPECT_TRUE(checked(CollectiveKind::all_reduce, kBase, kBase, 3));
  EXPECT_FALSE(checked(CollectiveKind::all_reduce, kBase, kBase + 4, 3));
}

TEST(Communicators, OnlySumsOfFloatingNumbers) {
  const auto reduce = CollectiveKind::all_reduce;
  EXPECT_FALSE(checked(reduce, kBase, kBase, 0, DType::fp32, Reduction::none));
  EXPECT_FALSE(checked(reduce, kBase, kBase, 0, DType::int64));
  EXPECT_TRUE(checked(reduce, kBase, kBase, 0, DType::fp32, Reduction::max));
  EXPECT_FALSE(checked(reduce, kBase, kBase, 0, DType::bf16, Reduction::max));
  EXPECT_TRUE(
      checked(CollectiveKind::all_gather, kBase, kBase + 4096, 0, DType::uint8, Reduction::none));
}

TEST(Communicators, ASendHasOneOperand) {
  Made made;
  made.op.body = Collective{.kind = CollectiveKind::send,
                            .communicator = CommunicatorId(0),
                            .count = kCount,
                            .dtype = DType::bf16,
                            .input = {},
                            .output = {}};
  made.bound.op = &made.op;
  made.bound.operands.push_back(
      {.role = "input", .data = kBase, .shape = made.count, .strides = {}});
  EXPECT_TRUE(check_collective(made.bound, 0, kRanks));
}

/// Activations go down the stages, gradients up; parts of the norm to the last stage.
TEST(Communicators, LinksOfAStage) {
  const Job job = test::pipeline("1f1b_4x8.json");
  const auto links_of = [&](std::int64_t rank) {
    const Program& program = program_of(job.programs, rank);
    PlanBinder binder(program, PoolBases(program.pools.size(), nullptr), rank);
    return peer_links(binder.bind(program.plans[0]).value());
  };
  using enum CollectiveKind;
  EXPECT_THAT(links_of(1),
              testing::ElementsAre(PeerLink{0, send, 0}, PeerLink{0, send, 2}, PeerLink{0, send, 3},
                                   PeerLink{0, recv, 0}, PeerLink{0, recv, 2}));
  // For each send of a rank, its peer has a recv.
  for (std::int64_t rank = 0; rank < 4; ++rank)
    for (const auto& [communicator, kind, peer] : links_of(rank))
      EXPECT_TRUE(links_of(peer).contains({communicator, kind == send ? recv : send, rank}))
          << rank << " and " << peer;
}

}  // namespace
}  // namespace mfsdp::cuda
