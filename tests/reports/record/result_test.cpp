#include "reports/record/result.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/plan/config_fields.hpp"
#include "reports/record/result_json.hpp"
#include "tests/support/sample_run.hpp"

namespace mfsdp {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using Json = nlohmann::ordered_json;
using test::sample_config;
using test::sample_run;

std::vector<std::string> keys(const Json& object) {
  std::vector<std::string> names;
  for (const auto& item : object.items()) names.push_back(item.key());
  return names;
}

TEST(ResultJson, HasTheKeysOfTheSchemaInItsOrder) {
  const Json json = Json::parse(to_json(sample_run()));
  EXPECT_EQ(json["schema"], "mfsdp.result/1");
  EXPECT_THAT(keys(json), ElementsAre("schema", "tool", "version", "commit", "run_id", "name",
                                      "created_unix_ns", "plan_hash", "model", "cluster", "config",
                                      "engine", "calibration", "cost_model_version", "plan",
                                      "memory", "time", "traffic", "facts", "source"));
  EXPECT_THAT(keys(json["cluster"]),
              ElementsAre("gpu", "gpus", "nodes", "gpus_per_node", "network"));
  EXPECT_THAT(keys(json["plan"]),
              ElementsAre("units", "groups", "ops", "events", "waits", "buffers", "collectives",
                          "segments", "max_live_full_weights", "max_live_full_gradients",
                          "allocator", "pools", "padding_bytes", "model_flops"));
  EXPECT_THAT(keys(json["plan"]["pools"][0]),
              ElementsAre("name", "height_bytes", "lower_bound_bytes"));
  EXPECT_THAT(
      keys(json["memory"]),
      ElementsAre("capacity_bytes", "allocated_bytes", "peak_bytes", "live_peak_bytes", "peak_op",
                  "fits", "reserve_bytes", "headroom_bytes", "categories", "runtime_source"));
  EXPECT_THAT(
      keys(json["memory"]["categories"]),
      ElementsAre("model_weight", "main_weight", "main_grad", "optimizer_state", "unsharded_weight",
                  "unsharded_grad", "activation", "logits", "workspace", "runtime"));
  EXPECT_THAT(keys(json["time"]),
              ElementsAre("step_ns", "compute_ns", "communication_ns", "exposed_communication_ns",
                          "idle_ns", "contention_ns", "overlap_fraction", "median_step_ns",
                          "tokens_per_second_per_gpu", "tflops_per_gpu", "mfu", "exposed_units"));
  EXPECT_THAT(keys(json["traffic"]),
              ElementsAre("all_gather_bytes", "reduce_scatter_bytes", "all_reduce_bytes"));
}

TEST(ResultJson, NumbersAreExactAndSumsHold) {
  const Json json = Json::parse(to_json(sample_run()));
  EXPECT_EQ(json["created_unix_ns"].get<std::int64_t>(), 1'790'000'000'123'456'789);
  EXPECT_EQ(json["model"]["parameters"].get<std::int64_t>(), 8'030'261'248);
  std::int64_t sum = 0;
  for (const auto& item : json["memory"]["categories"].items()) {
    EXPECT_TRUE(item.value().is_number_integer()) << item.key();
    sum += item.value().get<std::int64_t>();
  }
  EXPECT_EQ(sum, json["memory"]["peak_bytes"]);
  const Json& time = json["time"];
  EXPECT_EQ(time["step_ns"].get<int>(), time["compute_ns"].get<int>() +
                                            time["exposed_communication_ns"].get<int>() +
                                            time["idle_ns"].get<int>());
  EXPECT_EQ(time["mfu"].get<double>(), 1.0 / 3.0);  // the same double comes back
  EXPECT_THAT(to_json(sample_run()), HasSubstr("\"tflops_per_gpu\": 0.1,"));
}

TEST(ResultJson, ConfigNamesEveryFlag) {
  const Json config = Json::parse(to_json(sample_run()))["config"];
  EXPECT_THAT(
      keys(config),
      ElementsAre("strategy", "outer_strategy", "dp_outer", "dp_shard", "seq_len", "micro_batch",
                  "microbatches", "global_batch", "recompute", "param_dtype", "main_dtype",
                  "grad_dtype", "reduce_dtype", "prefetch", "grad_slots", "allocator", "optimizer",
                  "clip", "deterministic", "exact_sums", "frozen", "logits_chunk", "layout",
                  "state_dtype", "lr_scale", "no_decay", "document_mask", "loss_scale",
                  "loss_scale_window", "placement", "gather", "reduce", "keep_gathered",
                  "lora_rank", "lora_alpha", "lora_targets", "expert_parallel", "capacity_factor",
                  "expert_strategy", "base_dtype", "fp8", "fp8_keep_bf16", "fp8_accumulate",
                  "fp8_history", "fp8_amax", "fp8_gather", "cp_comm", "schedule", "virtual_stages",
                  "microbatch_group", "layers_of_stages"));
  EXPECT_EQ(config["strategy"], "optim_grads");
  EXPECT_EQ(config["global_batch"], 192);  // 1 sequence * 3 microbatches * 2 * 32 ranks
  EXPECT_EQ(config["recompute"], "full:3");
  EXPECT_EQ(config["clip"], 0.5);
  EXPECT_EQ(config["grad_dtype"], "bf16");
}

TEST(ResultJson, StepsAppearWhereSomethingWasMeasured) {
  EXPECT_FALSE(Json::parse(to_json(sample_run())).contains("steps"));
  MeasuredRun run = test::measured_run();
  EXPECT_EQ(Json::parse(to_json(run))["steps"], Json::array());
  run.steps = {{.step = 1,
                .duration = Nanos(7),
                .loss = 2.5,
                .grad_norm = std::nullopt,
                .tokens = std::nullopt,
                .learning_rate = std::nullopt}};
  const Json step = Json::parse(to_json(run))["steps"][0];
  EXPECT_THAT(keys(step), ElementsAre("step", "loss", "grad_norm", "step_ns"));
  EXPECT_EQ(step["loss"], 2.5);
  EXPECT_TRUE(step["grad_norm"].is_null());
  EXPECT_EQ(step["step_ns"], 7);
}

TEST(RunResult, IsPredictedOrMeasured) {
  const RunResult predicted = sample_run();
  ASSERT_NE(predicted.predicted(), nullptr);
  EXPECT_EQ(predicted.measured(), nullptr);
  EXPECT_EQ(predicted.source(), "simulated");
  EXPECT_EQ(predicted.predicted()->peak_op, "layers.31.swiglu");
  EXPECT_EQ(predicted.plan_hash, sample_run().plan_hash);
  const RunResult measured = test::measured_run();
  ASSERT_NE(measured.measured(), nullptr);
  EXPECT_EQ(measured.predicted(), nullptr);
  EXPECT_EQ(measured.source(), "measured");
  EXPECT_EQ(measured.measured()->launches.size(), 4U);
  EXPECT_EQ(measured.timeline.size(), 6U);
}

/// The JSON of measured runs has the keys of predictions too, without a value.
TEST(ResultJson, MeasuredRunsHaveTheSameKeys) {
  const Json json = Json::parse(to_json(test::measured_run()));
  EXPECT_EQ(json["source"], "measured");
  EXPECT_EQ(json["status"], "complete");
  EXPECT_EQ(json["calibration"], "");
  EXPECT_EQ(json["cost_model_version"], "");
  EXPECT_TRUE(json["memory"]["live_peak_bytes"].is_null());
  EXPECT_EQ(json["memory"]["peak_op"], "");
  EXPECT_EQ(json["time"]["exposed_units"], Json::array());
  EXPECT_EQ(json["skipped_steps"], 0);
  for (const char* key : {"trust", "ranks", "routing", "training", "resumed", "evaluations"})
    EXPECT_FALSE(json.contains(key)) << key;
}

TEST(ResultJson, AnyTextIsEscapedAndReadableByAll) {
  PredictedRun run = sample_run();
  run.name = "a\"b\\c\nd\t\x01 \xff\xfe Ω";
  const Json json = Json::parse(to_json(run));
  EXPECT_EQ(json["name"], "a\"b\\c\nd\t\x01 \uFFFD\uFFFD Ω");
}

TEST(ResultJson, NumbersThatAreNotFiniteBecomeNull) {
  PredictedRun run = sample_run();
  run.time.mfu = std::numeric_limits<double>::quiet_NaN();
  run.time.tflops_per_gpu = std::numeric_limits<double>::infinity();
  const Json json = Json::parse(to_json(run));
  EXPECT_TRUE(json["time"]["mfu"].is_null());
  EXPECT_TRUE(json["time"]["tflops_per_gpu"].is_null());
}

TEST(ResultJson, OneLineHoldsTheSame) {
  const std::string line = to_json_line(sample_run());
  EXPECT_THAT(line, Not(HasSubstr("\n")));
  EXPECT_EQ(Json::parse(line).dump(2) + "\n", to_json(sample_run()));
}

TEST(ResultConfig, ReadsBackWhatWasWritten) {
  PredictedRun run = sample_run();
  auto read = config_from_json(model_json(run), config_json(run.config), "run");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, run.config);

  run.config = PlanConfig{};
  read = config_from_json(model_json(run), config_json(run.config), "run");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(*read, run.config);
}

TEST(ResultConfig, WithoutALayoutIsOfMegatronFsdps) {
  const PredictedRun run = sample_run();
  Json config = Json::parse(config_json(run.config));
  config.erase("layout");
  const auto read = config_from_json(model_json(run), config.dump(), "run");
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->layout, LayoutRule::megatron_fsdp);
  config["layout"] = "tight";
  EXPECT_EQ(config_from_json(model_json(run), config.dump(), "run").error().message(),
            "run.config.layout: expected packed or megatron_fsdp");
}

/// Results of before a field came lack it; all others are whole.
TEST(ResultConfig, OnlyLaterFieldsMayBeMissing) {
  const PredictedRun run = sample_run();
  const Json whole = Json::parse(config_json(run.config));
  for (const std::string& key : keys(whole)) {
    if (key == "global_batch") continue;  // follows from the others
    Json config = whole;
    config.erase(key);
    const auto read = config_from_json(model_json(run), config.dump(), "run 7");
    const auto field = std::ranges::find(kConfigFields, key, &ConfigField::name);
    const bool is_later = field != kConfigFields.end() && field->age >= FieldAge::later;
    EXPECT_EQ(read.has_value(), is_later) << key;
    if (!read) {
      EXPECT_EQ(read.error().where, "run 7.config." + key);
    }
  }
}

TEST(ResultConfig, ErrorsNameTheField) {
  const PredictedRun run = sample_run();
  const auto message = [&](const char* key, const Json& value) {
    Json config = Json::parse(config_json(run.config));
    config[key] = value;
    const auto read = config_from_json(model_json(run), config.dump(), "run 7");
    return read ? std::string("accepted") : read.error().message();
  };
  EXPECT_EQ(message("seq_len", "8192"), "run 7.config.seq_len: expected an integer below 2^63");
  EXPECT_EQ(message("seq_len", 18446744073709551615U),
            "run 7.config.seq_len: expected an integer below 2^63");
  EXPECT_EQ(message("strategy", "fsdp"),
            "run 7.config.strategy: expected no_shard, optim, optim_grads or optim_grads_params");
  EXPECT_EQ(message("recompute", "full:x"),
            "run 7.config.recompute: expected none, selective or full, or full:K");
  EXPECT_EQ(message("clip", "1/0"), "run 7.config.clip: expected a number or \"num/den\"");
  EXPECT_EQ(message("clip", "1/3x"), "run 7.config.clip: expected a number or \"num/den\"");
  EXPECT_EQ(message("deterministic", 1), "run 7.config.deterministic: expected true or false");
  EXPECT_EQ(message("frozen", {1}), "run 7.config.frozen: expected a list of text");
  EXPECT_EQ(message("logits_chunk", nullptr),
            "run 7.config.logits_chunk: expected an integer below 2^63");
  EXPECT_EQ(config_from_json("{}", "[", "run 7").error().message(),
            "run 7.config: expected a JSON object");
  EXPECT_EQ(config_from_json("{}", "{}", "run 7").error().message(),
            "run 7.model.layers: expected an integer below 2^63");
}

}  // namespace
}  // namespace mfsdp
