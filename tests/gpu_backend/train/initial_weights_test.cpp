#include "gpu_backend/train/initial_weights.hpp"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <cmath>

#include "gpu_backend/train/philox.hpp"
#include "tests/gpu_backend/train/rank_memory.hpp"
#include "tests/gpu_backend/train/training.hpp"
#include "tests/support/idle_backend.hpp"

namespace mfsdp {
namespace {

PlacedParameter parameter(ParameterRole role, std::int64_t elements, std::string name = "w") {
  return {.name = std::move(name), .role = role, .shape = {elements, 1}, .offset = 0};
}

std::vector<float> values(const PlacedParameter& parameter, std::uint64_t seed,
                          std::int64_t layers = 8) {
  std::vector<float> all(static_cast<std::size_t>(parameter.elements()));
  initial_values(parameter, layers, seed, 0, all);
  return all;
}

/// The vectors that the authors' library is tested with (Random123, kat_vectors, philox4x32 10).
TEST(Philox, GivesTheKnownAnswers) {
  using Words = std::array<std::uint32_t, 4>;
  constexpr std::uint32_t kOnes = 0xffffffffU;
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (Words{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  EXPECT_EQ(philox4x32({kOnes, kOnes, kOnes, kOnes}, {kOnes, kOnes}),
            (Words{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(
      philox4x32({0x243f6a88U, 0x85a308d3U, 0x13198a2eU, 0x03707344U}, {0xa4093822U, 0x299f31d0U}),
      (Words{0xd16cfe09U, 0x94fdcceb, 0x5001e420U, 0x24126ea1U}));
}

TEST(InitialWeights, AreNormal) {
  constexpr std::int64_t kCount = 400'000;
  const auto moments = [](const std::vector<float>& all) {
    std::array<double, 3> sums{};  // mean, deviation, share beyond two deviations
    for (const float v : all) sums[0] += v / static_cast<double>(kCount);
    for (const float v : all) sums[1] += v * double{v} / static_cast<double>(kCount);
    sums[1] = std::sqrt(sums[1]);
    for (const float v : all) sums[2] += std::abs(v) > 2 * sums[1] ? 1.0 / kCount : 0;
    return sums;
  };
  const auto plain = moments(values(parameter(ParameterRole::gate_up, kCount), 1));
  // Errors: 0.02 / sqrt(400,000) = 3.2e-5 for the mean, 1/sqrt(800,000) = 0.11 % for the deviation.
  EXPECT_NEAR(plain[0], 0, 1.3e-4);
  EXPECT_NEAR(plain[1], 0.02, 1e-4);
  EXPECT_NEAR(plain[2], 0.0455, 0.002);  // of a normal distribution
  // Eight layers: 0.02 / sqrt(16) = 0.005.
  EXPECT_NEAR(moments(values(parameter(ParameterRole::down, kCount), 1))[1], 0.005, 2.5e-5);
}

TEST(InitialWeights, NormsAreOneAndBiasesZero) {
  EXPECT_EQ(values(parameter(ParameterRole::q_norm, 3), 1), (std::vector<float>{1, 1, 1}));
  EXPECT_EQ(values(parameter(ParameterRole::final_norm, 2), 1), (std::vector<float>{1, 1}));
  EXPECT_EQ(values(parameter(ParameterRole::qkv_bias, 2), 1), (std::vector<float>{0, 0}));
}

TEST(InitialWeights, DependOnSeedAndName) {
  const PlacedParameter one = parameter(ParameterRole::qkv, 64);
  EXPECT_NE(values(one, 1), values(one, 2));
  EXPECT_NE(values(one, 1), values(one, std::uint64_t{1} << 32U));
  EXPECT_NE(values(one, 1), values(parameter(ParameterRole::qkv, 64, "v"), 1));
}

RC_GTEST_PROP(InitialWeightsProperty, APieceIsAPieceOfTheWhole, ()) {
  const PlacedParameter whole = parameter(ParameterRole::head, *rc::gen::inRange(1, 70));
  const auto begin = *rc::gen::inRange<std::int64_t>(0, whole.elements());
  const auto end = *rc::gen::inRange<std::int64_t>(begin, whole.elements() + 1);
  std::vector<float> piece(static_cast<std::size_t>(end - begin));
  initial_values(whole, 8, 5, begin, piece);
  const std::vector<float> all = values(whole, 5);
  RC_ASSERT(piece == std::vector<float>(all.begin() + begin, all.begin() + end));
}

/// The contents of all ranks after filling; before it everything is NaN.
struct Filled {
  test::Weights compute;
  test::Weights own;
  std::int64_t nonzero = 0;  ///< elements that are, in all state buffers of all ranks
  std::int64_t random = 0;   ///< those of weights that parameters own or compute with
};

Filled fill(const PlanConfig& config) {
  const Program program = build_program(config, {}).value();
  Filled filled;
  for (std::int64_t rank = 0; rank < config.mesh.world_size(); ++rank) {
    test::RankMemory memory(program);
    const BufferBytes bytes = memory.bytes();
    const auto parameters = find_parameters(program, bytes, rank).value();
    test::IdleBackend backend;
    EXPECT_TRUE(clear_state(backend, program, bytes));
    EXPECT_TRUE(fill_initial_weights(backend, parameters, RandomWeights(config.model.layers, 11)));
    for (const ParameterPlaces& places : parameters) {
      test::put(filled.compute, places, backend, places.weight);
      test::put(filled.own, places, backend, places.own);
      const bool both = places.own.data != nullptr && config.main_dtype != config.param_dtype &&
                        places.group->requires_grad;
      filled.random += places.weight.elements.size() + (both ? places.own.elements.size() : 0);
    }
    for (const Buffer& buffer : program.buffers) {
      if (!buffer.persistent || !buffer.unit) continue;
      const auto all = bytes(buffer.id);
      with_floating(buffer.dtype, [&]<class T>(T) {
        const auto* at = reinterpret_cast<const T*>(all.data());
        for (std::size_t i = 0; i < all.size() / sizeof(T); ++i) {
          const bool nonzero = widen(at[i]) != 0;  // NaN too
          filled.nonzero += nonzero ? 1 : 0;
        }
      });
    }
  }
  return filled;
}

TEST(InitialWeights, AreTheSameForEveryStrategyAndMesh) {
  const Filled expected = fill(test::nano(1, Strategy::no_shard));
  ASSERT_EQ(expected.compute.size(), 20U);  // 6 in each of 3 blocks, the embedding, the last norm
  std::vector<PlanConfig> configs;
  for (const auto strategy :
       {Strategy::no_shard, Strategy::optim, Strategy::optim_grads, Strategy::optim_grads_params})
    for (const std::int64_t ranks : {2, 3, 8}) configs.push_back(test::nano(ranks, strategy));
  for (const auto outer : {Strategy::no_shard, Strategy::optim}) {
    configs.push_back(test::nano());
    configs.back().mesh = data_parallel_mesh(3, 2);
    configs.back().outer_strategy = outer;
  }
  configs.push_back(test::nano(3));
  configs.back().frozen = {"mlp", "embed_tokens"};
  for (const PlanConfig& config : configs) {
    const Filled filled = fill(config);
    EXPECT_EQ(filled.compute, expected.compute) << to_string(config.strategy);
    EXPECT_EQ(filled.nonzero, filled.random);  // so that padding and moments are zero
    for (const auto& [name, weights] : filled.own)
      for (std::size_t i = 0; i < weights.size(); ++i) {
        const float rounded = widen(narrow<Bf16>(weights[i]));
        ASSERT_EQ(rounded, expected.compute.at(name)[i]) << name;
      }
  }
}

TEST(InitialWeights, WithoutMainWeightsTheRoundedValuesAreTheWeights) {
  PlanConfig config = test::nano(2);
  config.main_dtype = DType::bf16;
  const Filled filled = fill(config);
  EXPECT_EQ(filled.own, filled.compute);
  EXPECT_EQ(filled.compute, fill(test::nano(2)).compute);
}

}  // namespace
}  // namespace mfsdp
