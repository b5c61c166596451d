// A plan of two ranks that share each block's weights, on the CPU: loss and gradients are those of one
// rank with the whole model.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/schedule/build.hpp"
#include "tests/support/shipped_plan.hpp"
#include "tests/verify/cpu/oracle/training_step.hpp"

namespace mfsdp {
namespace {

constexpr std::int64_t kRanks = 2;

/// The same model on one rank.
Program on_one_rank(const Program& shared) {
  PlanConfig config = shared.config;
  config.mesh = data_parallel_mesh(1, 1);
  config.strategy = Strategy::no_shard;
  return build_program(config, {}).value();
}

/// Calls visit(element of the whole parameter, element of the rank's part). Fused matrices have
/// several: of each, a rank has an equal part of the rows.
void for_each_element(const PlacedParameter& parameter, const Group& group, const ModelShape& model,
                      std::int64_t rank, const auto& visit) {
  const std::int64_t cols = parameter.shape.size() == 2 ? parameter.shape[1] : 1;
  const std::int64_t rows = parameter.shape[0];
  std::vector<std::int64_t> matrices{rows};  ///< rows of each on the rank
  if (parameter.role == ParameterRole::qkv) {
    const std::int64_t keys = model.kv_heads / kRanks * model.head_dim;
    matrices = {model.heads / kRanks * model.head_dim, keys, keys};
  }
  if (parameter.role == ParameterRole::gate_up) matrices = {rows / 2, rows / 2};
  const bool by_rows = !group.shard.empty() && *group.shard[0].dim == 0;
  const bool by_columns = !group.shard.empty() && !by_rows;
  const std::int64_t whole_cols = by_columns ? cols * kRanks : cols;
  std::int64_t row = 0;
  std::int64_t begin = 0;  // of the matrix in the whole parameter
  for (const std::int64_t own : matrices) {
    const std::int64_t first = begin + (by_rows ? rank * own : 0);
    for (std::int64_t i = 0; i < own; ++i, ++row)
      for (std::int64_t j = 0; j < cols; ++j)
        visit((first + i) * whole_cols + (by_columns ? rank * cols : 0) + j, row * cols + j);
    begin += by_rows ? own * kRanks : own;
  }
}

/// The buffer that holds a group's weights or gradients.
const Buffer& buffer_of(const Program& program, const Group& group, ContentKind kind) {
  return *std::ranges::find_if(program.buffers, [&](const Buffer& buffer) {
    return buffer.persistent && buffer.holds && buffer.holds->kind == kind &&
           buffer.holds->groups[0].group == group.id;
  });
}

void fill(const Program& program, const test::RankState& state, std::int64_t rank,
          const test::Tensors& weights) {
  for (const Buffer& buffer : program.buffers)
    if (buffer.persistent && buffer.name != "gemm_workspace")
      std::memset(state.bytes(buffer), 0, static_cast<std::size_t>(buffer.size.value));
  const auto table = make_rope_table(program.config.model, program.config.seq_len);
  std::memcpy(state.bytes(*state.find("rope_table")), table.data(), table.size() * sizeof(float));
  for (const Group& group : program.groups) {
    const Buffer& buffer = buffer_of(program, group, ContentKind::parameter);
    for (const PlacedParameter& parameter : group.parameters)
      for_each_element(parameter, group, program.config.model, rank, [&](auto from, auto to) {
        test::store(state.bytes(buffer), buffer.dtype, parameter.offset + to,
                    weights.at(parameter.name).at(static_cast<std::size_t>(from)));
      });
  }
}

TEST(TensorParallel, HasTheLossAndTheGradientsOfOneRank) {
  const Program shared = test::shipped_plan("tensor_parallel/llama_tp2.json");
  const Program whole = on_one_rank(shared);
  const test::Tensors weights = test::random_weights(whole, 1);
  const test::Batches batch = test::random_batches(whole, 2);
  // Ranks of tp have the same tokens.
  const test::Batches same = [&](std::int64_t /*rank*/, std::int64_t microbatch, auto all) {
    batch(0, microbatch, all);
  };
  test::TrainingStep alone(whole, same);
  const test::StepOutcome expected = alone.run(weights);
  test::TrainingStep step(shared, same);
  step.run_plan(PlanRole::train, [&](std::size_t rank) {
    fill(shared, step.state(rank), static_cast<std::int64_t>(rank), weights);
  });
  // In bf16, sums of halves round otherwise than sums of all.
  EXPECT_NEAR(step.reported_loss(), expected.loss, 0.01 * expected.loss);
  for (std::int64_t rank = 0; rank < kRanks; ++rank) {
    const test::RankState state = step.state(static_cast<std::size_t>(rank));
    for (const Group& group : shared.groups) {
      const Buffer& buffer = buffer_of(shared, group, ContentKind::gradient);
      for (const PlacedParameter& parameter : group.parameters) {
        test::Values own, wanted;
        for_each_element(parameter, group, shared.config.model, rank, [&](auto from, auto to) {
          own.push_back(test::load(state.bytes(buffer), buffer.dtype, parameter.offset + to));
          wanted.push_back(
              expected.gradients.at(parameter.name).at(static_cast<std::size_t>(from)));
        });
        EXPECT_LT(test::relative_error(own, wanted), 0.05) << parameter.name << " on " << rank;
      }
    }
  }
}

}  // namespace
}  // namespace mfsdp
