// Predictions of small models, for tests of what is drawn and written from them.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

#include "core/model/hf_config.hpp"
#include "core/schedule/build.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/predict/predict.hpp"
#include "tests/support/scenarios.hpp"

namespace mfsdp::test {

struct Predicted {
  Program program;
  Prediction prediction;

  [[nodiscard]] const PredictedRun& run() const { return prediction.run; }
  [[nodiscard]] const Plan& plan() const { return *program.find_plan(PlanRole::train); }
};

template <class T>
T value_or_throw(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message());
  return std::move(*result);
}

/// The prediction of llama_nano's configuration on 8 H200 after `change`.
template <class Change>
Predicted predicted(Change change, const RankVariation& variation = {}) {
  PlanConfig config;
  config.model = value_or_throw(load_model("llama_nano", kScenarios / "models")).shape;
  config.mesh = data_parallel_mesh(1, 8);
  config.seq_len = 128;
  change(config);
  Program program = value_or_throw(
      build_program(config, {.model_name = "llama_nano", .tool_version = "", .stored_hash = ""}));
  const Gpu gpu = value_or_throw(load_gpu("h200", kScenarios / "gpus"));
  const Cluster cluster = value_or_throw(make_cluster(gpu, config.mesh.world_size(), 8));
  const CostModel costs = value_or_throw(make_cost_model(cluster));
  Prediction prediction = value_or_throw(predict(program, costs, variation));
  return {.program = std::move(program), .prediction = std::move(prediction)};
}

}  // namespace mfsdp::test
