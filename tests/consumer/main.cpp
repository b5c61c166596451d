// Builds the plan of Llama-3-8B on 8 H100, proves it, and prints how many nanoseconds a step of it
// should take.
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <iostream>

#include "core/model/hf_config.hpp"
#include "core/plan/mesh.hpp"
#include "core/schedule/build.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/predict/predict.hpp"
#include "verify/proof/prove.hpp"

namespace {

using namespace mfsdp;

/// README.md shows these lines; tests/install/consumer.sh compares.
Result<std::int64_t> step_of(const std::filesystem::path& scenarios) {
  MFSDP_LET(model, load_model("llama3_8b", scenarios / "models"));
  PlanConfig config;
  config.model = model.shape;
  config.mesh = data_parallel_mesh(1, 8);
  const Meta meta{.model_name = model.name, .tool_version = {}, .stored_hash = {}};
  MFSDP_LET(program, build_program(config, meta));
  MFSDP_LET(proof, prove(program));
  if (has_errors(proof.findings)) return fail("plan", proof.findings.front().message);
  MFSDP_LET(gpu, load_gpu("h100", scenarios / "gpus"));
  MFSDP_LET(cluster, make_cluster(gpu, 8, 8));
  MFSDP_LET(costs, make_cost_model(cluster));
  MFSDP_LET(prediction, predict(program, costs));
  return prediction.run.time.step.value;  // nanoseconds
}

}  // namespace

int main() {
  const auto step = step_of(SCENARIOS);
  if (!step) {
    std::cerr << step.error().message() << "\n";
    return EXIT_FAILURE;
  }
  std::cout << *step << "\n";
  return EXIT_SUCCESS;
}
