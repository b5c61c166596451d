#include "core/shard/groups.hpp"

#include <gtest/gtest.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "tests/support/configurations.hpp"

namespace mfsdp {
namespace {

/// By Megatron-FSDP's rule, whose padding the numbers below follow.
PlanConfig llama3_8b(std::int64_t ranks, Strategy strategy) {
  const auto model =
      load_model("llama3_8b", std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios" / "models");
  PlanConfig config;
  config.model = model->shape;
  config.mesh = data_parallel_mesh(1, ranks);
  config.strategy = strategy;
  config.layout = LayoutRule::megatron_fsdp;
  return config;
}

std::vector<Group> groups_of(const PlanConfig& config) {
  return make_groups(make_model(config.model, config.param_dtype), config);
}

/// The bytes of resident_elements(), summed over groups.
struct ResidentBytes {
  Bytes model_weight;
  Bytes main_weight;
  Bytes main_grad;
  Bytes optimizer_state;
};

ResidentBytes resident_bytes(const PlanConfig& config) {
  ResidentBytes sum;
  for (const Group& group : groups_of(config)) {
    const ResidentElements elements = resident_elements(group, config);
    sum.model_weight += bytes_of(elements.model_weight, config.param_dtype);
    sum.main_weight += bytes_of(elements.main_weight, config.main_dtype);
    sum.main_grad += bytes_of(elements.main_grad, config.grad_dtype);
    for (const ResidentElements::State& kept : elements.states)
      sum.optimizer_state += bytes_of(kept.values, kept.state.dtype);
  }
  return sum;
}

TEST(Groups, OneForEachUnitOfLlama) {
  const auto groups = groups_of(llama3_8b(8, Strategy::optim_grads_params));
  ASSERT_EQ(groups.size(), 34U);  // embedding, 32 blocks, head
  // Rows of 4096 and 14336: c = lcm = 28672. 218,112,000 elements padded to a multiple of
  // 8 * 28672 = 229,376: 951 * 229,376 = 218,136,576.
  EXPECT_EQ(groups[1].chunk, 28672);
  EXPECT_EQ(groups[1].elements, 218136576);
  EXPECT_EQ(groups[1].parameters.size(), 6U);
  // 128,256 * 4096 = 525,336,576 = 16,032 * (8 * 4096): no padding.
  EXPECT_EQ(groups[0].elements, 525336576);
}

TEST(Groups, ArePackedByDefault) {
  PlanConfig config = llama3_8b(8, Strategy::optim_grads_params);
  config.layout = PlanConfig{}.layout;
  const auto groups = groups_of(config);
  EXPECT_EQ(groups[1].elements, 218112000);  // = 8 * 27,264,000: no padding
  EXPECT_EQ(groups[1].chunk, 64);
  EXPECT_EQ(groups[1].parameters[1].name, "model.layers.0.self_attn.qkv_proj.weight");
  EXPECT_EQ(groups[1].parameters[1].offset, 4096);  // after the norm
}

/// Bytes that stay on a rank, from B of the three kinds of units alone:
///   no_shard           2B + 4B + 4B + 8B
///   optim              2B + 4B + (4 + 8) S
///   optim_grads        2B + (4 + 4 + 8) S
///   optim_grads_params (2 + 4 + 4 + 8) S
TEST(Groups, ResidentBytesFollowTheFormulas) {
  for (const std::int64_t ranks : {1, 2, 7, 8, 64}) {
    const auto padded = [&](std::int64_t elements, std::int64_t chunk) {
      const std::int64_t unit = ranks * chunk;
      return (elements + unit - 1) / unit * unit;
    };
    // Embedding: rows of 4096. Block: chunk 28672. Head: norm of 4096 and the same matrix.
    const std::int64_t b =
        padded(525336576, 4096) + 32 * padded(218112000, 28672) + padded(525336576 + 4096, 4096);
    const std::int64_t s = b / ranks;
    const auto total = [&](Strategy strategy) {
      const PlanConfig config = llama3_8b(ranks, strategy);
      const ResidentBytes bytes = resident_bytes(config);
      return (bytes.model_weight + bytes.main_weight + bytes.main_grad + bytes.optimizer_state)
          .value;
    };
    EXPECT_EQ(total(Strategy::no_shard), 18 * b) << ranks;
    EXPECT_EQ(total(Strategy::optim), (ranks > 1 ? 6 * b + 12 * s : 18 * b)) << ranks;
    EXPECT_EQ(total(Strategy::optim_grads), (ranks > 1 ? 2 * b + 16 * s : 18 * b)) << ranks;
    EXPECT_EQ(total(Strategy::optim_grads_params), 18 * s) << ranks;
  }
}

TEST(Groups, MainWeightsOfTheComputeDtypeAreNotKeptTwice) {
  PlanConfig config = llama3_8b(8, Strategy::optim_grads_params);
  config.main_dtype = DType::bf16;
  EXPECT_EQ(resident_bytes(config).main_weight, Bytes(0));
  config.main_dtype = DType::fp32;
  config.optimizer = Optimizer::sgd;
  EXPECT_EQ(resident_bytes(config).optimizer_state, Bytes(0));
}

/// Bytes a parameter, as docs/reference/optimizers.md has them.
TEST(Groups, StateBytesAreThoseOfTheFormula) {
  PlanConfig config = llama3_8b(8, Strategy::optim_grads_params);
  config.layout = LayoutRule::packed;
  const auto bytes = [&](Optimizer optimizer, StateDtype kept) {
    config.optimizer = optimizer;
    config.state_dtype = kept;
    return resident_bytes(config).optimizer_state.value;
  };
  using enum StateDtype;
  // 8,030,261,248 parameters, none of which a layout pads: all sizes are multiples of 8 x 256.
  const std::int64_t shard = 8'030'261'248 / 8;
  EXPECT_EQ(bytes(Optimizer::adamw, full), 8 * shard);
  EXPECT_EQ(bytes(Optimizer::adamw, bf16), 4 * shard);
  EXPECT_EQ(bytes(Optimizer::adamw, blockwise8), 2 * (shard + shard / 256 * 4));
  EXPECT_EQ(bytes(Optimizer::lion, full), 4 * shard);
  EXPECT_EQ(bytes(Optimizer::lion, bf16), 2 * shard);
  EXPECT_EQ(bytes(Optimizer::lion, blockwise8), shard + shard / 256 * 4);
  EXPECT_EQ(bytes(Optimizer::sgd, full), 0);
  // Muon: q and o 4096 x 4096, k and v 1024 x 4096, gate, up and down 14336 x 4096, of 32 blocks;
  // AdamW's two for all else.
  const std::int64_t matrices = 32LL * 4096 * (2 * 4096 + 2 * 1024 + 3 * 14336) / 8;
  EXPECT_EQ(bytes(Optimizer::muon, full), 4 * matrices + 8 * (shard - matrices));
  EXPECT_EQ(bytes(Optimizer::muon, bf16), 2 * matrices + 4 * (shard - matrices));
}

TEST(Groups, MuonTakesTheMatricesOfBlocks) {
  PlanConfig config = test::small_config(2);
  config.optimizer = Optimizer::muon;
  config.frozen = {"mlp.down"};
  for (const Group& group : groups_of(config)) {
    const bool in_block = group.unit != UnitId(0) && group.unit != UnitId(3);
    for (const PlacedParameter& parameter : group.parameters) {
      const bool frozen = parameter.role == ParameterRole::down;
      EXPECT_EQ(group.optimizer.has_value(), !frozen);
      if (frozen) continue;
      EXPECT_EQ(*group.optimizer,
                in_block && parameter.shape.size() == 2 ? Optimizer::muon : Optimizer::adamw)
          << parameter.name;
    }
  }
}

TEST(Groups, BlocksOfAStateAreWholeOnEveryRank) {
  PlanConfig config = test::small_config(3);
  config.state_dtype = StateDtype::blockwise8;
  for (const std::int64_t ranks : {1, 2, 3, 7, 64}) {
    config.mesh = data_parallel_mesh(1, ranks);
    for (const Group& group : groups_of(config)) {
      EXPECT_EQ(group.elements % (ranks * kStateBlock), 0);
      for (const PlacedParameter& parameter : group.parameters)
        EXPECT_EQ(parameter.offset % kStateBlock, 0) << parameter.name;
    }
  }
}

TEST(Groups, RatesAndDecayAreByName) {
  PlanConfig config = test::small_config();
  config.lr_scale = {"embed_tokens=0.5", "layers.1.mlp=2"};
  config.no_decay = {"embed_tokens"};
  for (const Group& group : groups_of(config))
    for (const PlacedParameter& parameter : group.parameters) {
      const bool embeds = parameter.name == "model.embed_tokens.weight";
      const bool in_mlp = parameter.name.find("layers.1.mlp") != std::string::npos;
      std::optional<Rational> rate;
      if (embeds) rate = Rational{1, 2};
      if (in_mlp) rate = Rational{2, 1};
      EXPECT_EQ(parameter.rate, rate) << parameter.name;
      EXPECT_EQ(parameter.decay, parameter.shape.size() == 2 && !embeds) << parameter.name;
    }
}

TEST(Groups, HfsdpCutsTheOptimizerAlongBothAxes) {
  PlanConfig config = llama3_8b(8, Strategy::optim_grads_params);
  config.mesh = data_parallel_mesh(4, 8);
  config.outer_strategy = Strategy::optim;
  std::int64_t b = 0;
  for (const Group& group : groups_of(config)) {
    // The layout is cut for all 32 ranks, so that no row is split on either axis.
    EXPECT_EQ(group.elements % (32 * group.chunk), 0);
    b += group.elements;
  }
  const ResidentBytes bytes = resident_bytes(config);
  EXPECT_EQ(bytes.model_weight, Bytes(2 * b / 8));
  EXPECT_EQ(bytes.main_grad, Bytes(4 * b / 8));
  EXPECT_EQ(bytes.main_weight, Bytes(4 * b / 32));
  EXPECT_EQ(bytes.optimizer_state, Bytes(8 * b / 32));
}

TEST(Groups, FrozenParametersKeepTheirWeightsOnly) {
  PlanConfig config = test::small_config(2);
  config.frozen = {"mlp"};
  const auto groups = groups_of(config);
  // embedding; two blocks of a trainable and a frozen group each; head
  ASSERT_EQ(groups.size(), 6U);
  const Group& frozen = groups[2];
  EXPECT_FALSE(frozen.requires_grad);
  EXPECT_EQ(frozen.unit, groups[1].unit);
  const ResidentElements resident = resident_elements(frozen, config);
  EXPECT_EQ(resident.model_weight, frozen.elements / 2);
  EXPECT_EQ(resident.main_weight + resident.main_grad, 0);
  EXPECT_TRUE(resident.states.empty());
}

TEST(Groups, TiedWeightsAreOneParameter) {
  PlanConfig config = test::small_config(2);
  config.model.tied_embeddings = true;
  const auto groups = groups_of(config);
  ASSERT_EQ(groups.size(), 3U);  // embedding with final norm, two blocks
  EXPECT_EQ(groups[0].parameters[0].name, "model.embed_tokens.weight");
  EXPECT_EQ(groups[0].parameters[1].name, "model.norm.weight");
}

TEST(Groups, LayoutReadsBackAndOwnsEveryElementOnce) {
  const PlanConfig config = test::small_config(7);
  for (const Group& group : groups_of(config)) {
    const FlatLayout layout = layout_of(group, config.mesh);
    for (std::size_t p = 0; p < group.parameters.size(); ++p) {
      std::int64_t owned = 0;
      for (std::int64_t rank = 0; rank < layout.ranks; ++rank)
        owned += owned_interval(layout, p, rank).size();
      EXPECT_EQ(owned, layout.sizes[p]);
    }
  }
}

TEST(Groups, StrategiesArePresetsOfPlacements) {
  PlanConfig config = test::small_config(2);
  config.mesh = data_parallel_mesh(3, 2);
  const AxisPlacement shard{.axis = Axis::dp_shard};
  const AxisPlacement outer{.axis = Axis::dp_outer};
  const auto expect = [&](const Placement& weight, const Placement& gradient,
                          const Placement& state) {
    for (const Group& group : groups_of(config)) {
      EXPECT_EQ(group.weight, weight) << to_string(config.strategy);
      EXPECT_EQ(group.gradient, gradient) << to_string(config.strategy);
      EXPECT_EQ(group.state, state) << to_string(config.strategy);
      EXPECT_EQ(group.reduce, (std::vector{Axis::dp_outer, Axis::dp_shard}));
      EXPECT_EQ(group.cut, flat_axes(state.empty() ? Placement{shard} : state));
    }
  };
  config.strategy = Strategy::no_shard;
  expect({}, {}, {});
  config.strategy = Strategy::optim;
  expect({}, {}, {shard});
  config.strategy = Strategy::optim_grads;
  expect({}, {shard}, {shard});
  config.strategy = Strategy::optim_grads_params;
  expect({shard}, {shard}, {shard});
  config.outer_strategy = Strategy::optim;
  expect({shard}, {shard}, {shard, outer});
}

/// Over their own grid, by their own strategy where there is one.
TEST(Groups, ExpertsDealtOutArePresetsOfTheirOwnAxes) {
  PlanConfig config = test::small_config(4);
  test::make_family(config.model, Family::olmoe);
  config.expert_parallel = 2;
  config.mesh = with_expert_grid(data_parallel_mesh(3, 4), 2);
  config.strategy = Strategy::optim_grads_params;
  const AxisPlacement shard{.axis = Axis::expt_dp};
  const AxisPlacement outer{.axis = Axis::expt_dp_outer};
  const auto expect = [&](const Placement& weight, const Placement& gradient,
                          const Placement& state) {
    int experts = 0;
    for (const Group& group : groups_of(config)) {
      if (group.shard.empty()) {
        EXPECT_EQ(group.weight, Placement{{.axis = Axis::dp_shard}});
        continue;
      }
      ++experts;
      EXPECT_EQ(group.weight, weight);
      EXPECT_EQ(group.gradient, gradient);
      EXPECT_EQ(group.state, state);
      EXPECT_EQ(group.reduce, (std::vector{Axis::expt_dp_outer, Axis::expt_dp}));
      EXPECT_EQ(group.cut, flat_axes(state.empty() ? Placement{shard} : state));
    }
    EXPECT_EQ(experts, config.model.layers);
  };
  expect({shard}, {shard}, {shard});
  config.outer_strategy = Strategy::optim;
  expect({shard}, {shard}, {shard, outer});
  config.outer_strategy = Strategy::no_shard;
  config.expert_strategy = Strategy::optim;
  expect({}, {}, {shard});
  config.expert_strategy = Strategy::no_shard;
  expect({}, {}, {});
}

TEST(Groups, ReplicasCountOnce) {
  PlanConfig config = test::small_config(2);
  config.mesh = data_parallel_mesh(3, 2);
  const auto first = [&](Strategy strategy, Strategy outer = Strategy::no_shard) {
    config.strategy = strategy;
    config.outer_strategy = outer;
    const Group group = groups_of(config).front();
    std::string ranks;
    for (std::int64_t rank = 0; rank < 6; ++rank)
      if (is_first_replica(group, config.mesh, rank)) ranks += std::to_string(rank);
    return ranks;
  };
  EXPECT_EQ(first(Strategy::no_shard), "0");
  EXPECT_EQ(first(Strategy::optim), "01");
  EXPECT_EQ(first(Strategy::optim_grads_params), "01");
  EXPECT_EQ(first(Strategy::optim_grads_params, Strategy::optim), "012345");
  config.mesh = data_parallel_mesh(1, 6);
  EXPECT_EQ(first(Strategy::optim), "012345");
}

}  // namespace
}  // namespace mfsdp
