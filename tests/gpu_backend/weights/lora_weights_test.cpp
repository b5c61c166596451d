#include "gpu_backend/weights/lora_weights.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "core/model/lora.hpp"
#include "gpu_backend/weights/hf_export.hpp"
#include "gpu_backend/weights/hf_weights.hpp"
#include "gpu_backend/weights/peft_config.hpp"
#include "tests/gpu_backend/train/rank_memory.hpp"
#include "tests/gpu_backend/weights/hf_files.hpp"
#include "tests/support/idle_backend.hpp"

namespace mfsdp {
namespace {

using ::testing::HasSubstr;

/// Multiples of 1/64 below 2, of B too.
class Numbers final : public WeightSource {
 public:
  [[nodiscard]] Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                  std::span<double> out) const override {
    for (double& value : out) value = at(parameter.name, begin++);
    return {};
  }
  static double at(const std::string& name, std::int64_t element) {
    return test::value_of(std::hash<std::string>{}(name) % 1000, element);
  }
};

PlanConfig with_lora(PlanConfig config) {
  config.lora_rank = 3;
  config.lora_alpha = {9, 2};  // scale 3/2
  config.lora_targets = {"q_proj", "v_proj", "up_proj", "down_proj"};
  return config;
}

/// Every rank begins with the source's weights and exports them.
void export_all(const Program& program, const WeightSource& source, const HfExport& exported) {
  const std::int64_t ranks = program.config.mesh.world_size();
  SharedHostGather gather(ranks);
  std::vector<std::jthread> threads;
  for (std::int64_t rank = 0; rank < ranks; ++rank)
    threads.emplace_back([&, rank] {
      test::RankMemory memory(program);
      const auto bytes = memory.bytes();
      const auto parameters = find_parameters(program, bytes, rank).value();
      test::IdleBackend backend;
      EXPECT_TRUE(clear_state(backend, program, bytes));
      EXPECT_TRUE(fill_initial_weights(backend, parameters, source));
      const auto outcome = exported.write(rank, backend, parameters, gather);
      EXPECT_TRUE(outcome) << outcome.error().message();
    });
}

void export_adapters(const std::filesystem::path& folder, const PlanConfig& config,
                     const WeightSource& source) {
  const Program program = build_program(config, {}).value();
  const auto exported = HfExport::prepare_adapters(program, folder);
  ASSERT_TRUE(exported) << exported.error().message();
  export_all(program, source, *exported);
}

TEST(LoraWeights, GoOutAndComeBackOnAnyMesh) {
  const test::ScratchFolder folder;
  export_adapters(folder / "first", with_lora(test::small_model(3)), Numbers());
  const auto first = test::content(folder / "first");
  EXPECT_EQ(first.size(), 2U);
  const auto config = nlohmann::json::parse(first.at("adapter_config.json"));
  EXPECT_EQ(config["r"], 3);
  EXPECT_EQ(config["lora_alpha"], 4.5);
  EXPECT_EQ(config["target_modules"], nlohmann::json({"q_proj", "v_proj", "up_proj", "down_proj"}));
  EXPECT_NE(first.at("adapter_model.safetensors")
                .find("base_model.model.model.layers.1.self_attn.q_proj.lora_A.weight"),
            std::string::npos);
  for (const auto strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads_params})
    for (const std::int64_t ranks : {1, 2}) {
      PlanConfig again = with_lora(test::small_model(ranks, strategy));
      const Program program = build_program(again, {}).value();
      const auto adapters = PeftAdapters::open(folder / "first", program);
      ASSERT_TRUE(adapters) << adapters.error().message();
      const RandomWeights random(2, 5);
      export_adapters(folder / "again", again, WeightsWithAdapters(random, *adapters));
      EXPECT_TRUE(test::content(folder / "again") == first) << to_string(strategy) << ranks;
    }
}

/// Frozen ones have no main weights: theirs are rounded, which these numbers bear.
TEST(LoraWeights, FrozenAdaptersGoOutToo) {
  const test::ScratchFolder folder;
  export_adapters(folder / "all", with_lora(test::small_model(2)), Numbers());
  PlanConfig config = with_lora(test::small_model(2));
  config.frozen = {"lora_A", "layers.0."};
  export_adapters(folder / "some", config, Numbers());
  EXPECT_TRUE(test::content(folder / "some") == test::content(folder / "all"));
}

/// W + 3/2 B A, of multiples of 1/64 below 2 at rank 3: exact in fp32.
TEST(LoraWeights, AreMergedIntoAModelThatIsExported) {
  for (const std::int64_t ranks : {1, 3}) {
    const test::ScratchFolder folder;
    PlanConfig config = with_lora(test::small_model(ranks));
    config.param_dtype = DType::fp32;
    const Program program = build_program(config, {}).value();
    const auto exported = HfExport::prepare(program, folder / "out");
    ASSERT_TRUE(exported) << exported.error().message();
    export_all(program, Numbers(), *exported);
    ASSERT_EQ(test::content(folder / "out").size(), 2U);  // config.json and one file
    PlanConfig alone = config;
    alone.lora_rank = 0;
    alone.lora_alpha = {0, 1};
    alone.lora_targets = {};
    const Program plain = build_program(alone, {}).value();
    const auto weights = HfWeights::open(folder / "out", plain);
    ASSERT_TRUE(weights) << weights.error().message();
    for (const Group& group : plain.groups)
      for (const PlacedParameter& parameter : group.parameters) {
        std::vector<double> expected(static_cast<std::size_t>(parameter.elements()));
        EXPECT_TRUE(Numbers().read(parameter, 0, expected));
        for (const LoraTarget& target : lora_targets(config.model, config.lora_targets)) {
          if (target.matrix != parameter.role) continue;
          const std::string layer =
              "model." + plain.units[group.unit.value].name + "." + std::string(target.module);
          for (std::int64_t i = 0; i < target.outputs; ++i)
            for (std::int64_t j = 0; j < target.inputs; ++j)
              for (std::int64_t k = 0; k < 3; ++k)
                expected[static_cast<std::size_t>((target.begin + i) * target.inputs + j)] +=
                    1.5 * Numbers::at(layer + ".lora_B.weight", i * 3 + k) *
                    Numbers::at(layer + ".lora_A.weight", k * target.inputs + j);
        }
        std::vector<double> got(expected.size());
        EXPECT_TRUE(weights->read(parameter, 0, got));
        EXPECT_EQ(got, expected) << parameter.name;
      }
  }
}

TEST(LoraWeights, OtherAdaptersAreRefusedByField) {
  const test::ScratchFolder folder;
  const PlanConfig config = with_lora(test::small_model(1));
  export_adapters(folder / "a", config, Numbers());
  const Program program = build_program(config, {}).value();
  const std::string path = folder / "a" / kPeftConfig;
  const auto written = nlohmann::json::parse(test::read_file(path));
  const auto error_with = [&](const char* key, const nlohmann::json& value) {
    nlohmann::json edited = written;
    edited[key] = value;
    test::write_file(path, edited.dump());
    const auto opened = PeftAdapters::open(folder / "a", program);
    return opened ? std::string() : opened.error().message();
  };
  EXPECT_EQ(error_with("lora_dropout", 0.1), "");  // weights are the same
  EXPECT_EQ(error_with("rank_pattern", nlohmann::json::object()), "");
  EXPECT_THAT(error_with("r", 8), HasSubstr(".r: expected 3, as --lora-rank sets, got 8"));
  EXPECT_THAT(error_with("lora_alpha", 16),
              HasSubstr(".lora_alpha: expected 4.5, as --lora-alpha sets, got 16"));
  EXPECT_THAT(error_with("target_modules", {"q_proj"}),
              HasSubstr(".target_modules: expected q_proj,v_proj,up_proj,down_proj, as "
                        "--lora-targets sets, got q_proj"));
  EXPECT_THAT(error_with("use_dora", true), HasSubstr(".use_dora: is not modelled"));
  EXPECT_THAT(error_with("bias", "all"), HasSubstr(".bias: is not modelled"));
  EXPECT_THAT(error_with("peft_type", "LOHA"), HasSubstr(".peft_type: expected LORA, got LOHA"));
  test::write_file(path, written.dump());
  PlanConfig wider = config;
  wider.lora_targets = {"q_proj", "up_proj", "down_proj"};
  test::write_file(path, [&] {
    nlohmann::json edited = written;
    edited["target_modules"] = wider.lora_targets;
    return edited.dump();
  }());
  const auto opened = PeftAdapters::open(folder / "a", build_program(wider, {}).value());
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(), HasSubstr("the plan's adapters have no such tensor"));
}

TEST(LoraWeights, BeginAsPeftHasThem) {
  PlacedParameter a{.name = "model.layers.0.mlp.down_proj.lora_A.weight",
                    .role = ParameterRole::down_lora_a,
                    .shape = {4, 400}};
  std::vector<float> values(1600);
  initial_values(a, 2, 1, 0, values);
  // Uniform within 1 / sqrt(400) = 0.05: mean 0, deviation 0.05 / sqrt(3) = 0.0289.
  double sum = 0;
  double squares = 0;
  for (const float value : values) {
    EXPECT_LE(std::fabs(value), 0.05F);
    sum += value;
    squares += double{value} * value;
  }
  EXPECT_NEAR(sum / 1600, 0, 4 * 0.0289 / 40);
  EXPECT_NEAR(std::sqrt(squares / 1600), 0.0289, 0.002);
  PlacedParameter b{.name = "model.layers.0.mlp.down_proj.lora_B.weight",
                    .role = ParameterRole::down_lora_b,
                    .shape = {12, 4}};
  values.assign(48, 1);
  initial_values(b, 2, 1, 0, values);
  EXPECT_THAT(values, ::testing::Each(0.0F));
}

}  // namespace
}  // namespace mfsdp
