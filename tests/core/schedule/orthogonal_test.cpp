// Muon's rounds: who gets which block, and what is live meanwhile.
#include "core/schedule/orthogonal.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/plan/newton_schulz.hpp"
#include "core/schedule/build.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

using testing::ElementsAre;

PlanConfig muon(std::int64_t ranks, std::int64_t layers) {
  PlanConfig config = test::small_config(ranks, layers);
  config.optimizer = Optimizer::muon;
  return config;
}

/// Blocks of each round.
std::vector<std::size_t> rounds_of(const Program& program) {
  std::vector<std::size_t> rounds;
  for (const Buffer& buffer : program.buffers)
    if (buffer.holds && buffer.holds->kind == ContentKind::direction &&
        buffer.name.ends_with(".slices"))
      rounds.push_back(buffer.holds->groups.size());
  return rounds;
}

std::int64_t count(const Program& program, KernelKind kind) {
  std::int64_t found = 0;
  for (const Op& op : program.find_plan(PlanRole::train)->segments.back().ops)
    if (const auto* kernel = std::get_if<Kernel>(&op.body)) found += kernel->kind == kind ? 1 : 0;
  return found;
}

TEST(OrthogonalRounds, HaveAsManyBlocksAsRanksShareTheState) {
  PlanConfig config = muon(4, 6);
  EXPECT_THAT(rounds_of(build_program(config, {}).value()), ElementsAre(4, 2));
  config.strategy = Strategy::no_shard;  // every rank has all of them
  EXPECT_THAT(rounds_of(build_program(config, {}).value()), ElementsAre(1, 1, 1, 1, 1, 1));
  config.strategy = Strategy::optim_grads_params;
  config.mesh = data_parallel_mesh(2, 2);  // HSDP: each group of two for itself
  EXPECT_THAT(rounds_of(build_program(config, {}).value()), ElementsAre(2, 2, 2));
}

/// Blocks of which other parameters are frozen are laid out in another way: no round has both.
TEST(OrthogonalRounds, HaveBlocksThatAreLaidOutAlike) {
  PlanConfig config = muon(4, 4);
  config.frozen = {"layers.1.mlp"};
  EXPECT_THAT(rounds_of(build_program(config, {}).value()), ElementsAre(1, 1, 2));
}

TEST(OrthogonalRounds, OrthogonaliseEachOfHuggingFacesMatrices) {
  // q, k, v, o, gate, up, down of the one block that a rank has in each of two rounds; and a
  // momentum of each of six.
  const Program program = build_program(muon(4, 6), {}).value();
  EXPECT_EQ(count(program, KernelKind::newton_schulz), 2 * 7);
  EXPECT_EQ(count(program, KernelKind::momentum), 6);
  EXPECT_EQ(count(program, KernelKind::update), 6 * 2 + 2);  // matrices, vectors; both ends
}

/// Expert parallelism over two of four ranks: two ranks with the same experts share their rounds;
/// the other matrices of blocks are distributed over all four.
TEST(OrthogonalRounds, OfExpertsDealtOutAreOfTheRanksThatHaveThem) {
  PlanConfig config = muon(4, 6);
  test::add_experts(config.model, 4, 2);
  config.expert_parallel = 2;
  config.mesh = with_expert_grid(config.mesh, 2);
  const Program program = build_program(config, {}).value();
  EXPECT_THAT(rounds_of(program), ElementsAre(2, 2, 2, 4, 2));
  // q, k, v, o and the router in two rounds; gate, up and down of a rank's two experts in three.
  EXPECT_EQ(count(program, KernelKind::newton_schulz), 2 * 5 + 3 * 2 * 3);
  EXPECT_EQ(count(program, KernelKind::momentum), 6 + 6);
  EXPECT_EQ(count(program, KernelKind::update), 6 * 3 + 2);
}

TEST(NewtonSchulzCosts, AreThoseOfTheForms) {
  // 4096 x 4096, the plain form: in each of five steps two symmetric GEMMs, of which 5/8 is
  // computed, and a whole one.
  const std::int64_t m = 4096;
  EXPECT_EQ(newton_schulz_flops(m, m), 5 * 2 * m * m * m * (2 * 5 + 8) / 8);
  // 4096 x 14336, by the Gram matrix: it and X once, and 5 + 3 * 4 symmetric GEMMs of m.
  const std::int64_t n = 14336;
  EXPECT_EQ(newton_schulz_flops(m, n), 2 * m * m * (17 * 5 * m + 5 * n + 8 * n) / 8);
  EXPECT_EQ(newton_schulz_flops(n, m), newton_schulz_flops(m, n));
  // 100 is no multiple of 256: nothing is cut in parts.
  EXPECT_EQ(newton_schulz_flops(100, 300), 2 * 100 * 100 * (17 * 100 + 2 * 300));
}

}  // namespace
}  // namespace mfsdp
