// Memory as the CPU's machine allocates and uses it against memory as mfsdp-sim predicts it.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "core/model/hf_config.hpp"
#include "core/runtime/interpreter.hpp"
#include "core/runtime/memory_meter.hpp"
#include "core/schedule/build.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/hardware/gpu.hpp"
#include "sim/predict/predict.hpp"
#include "verify/cpu/machine/machine.hpp"

namespace mfsdp {
namespace {

const std::filesystem::path scenarios = std::filesystem::path(MFSDP_SOURCE_DIR) / "scenarios";

/// Every strategy and mesh; recompute policy, prefetch, slots and allocator change from one
/// configuration to the next so that each meets each other strategy.
std::vector<PlanConfig> configurations() {
  const ModelShape model = load_model("llama_nano", scenarios / "models").value().shape;
  std::vector<PlanConfig> all;
  const auto add = [&](Strategy strategy, Mesh mesh, Strategy outer, std::int64_t microbatches) {
    const auto n = static_cast<std::int64_t>(all.size());
    PlanConfig config;
    config.model = model;
    config.strategy = strategy;
    config.mesh = mesh;
    config.outer_strategy = outer;
    config.microbatches = microbatches;
    config.recompute.kind = static_cast<Recompute>(n % 3);
    config.prefetch = n % 4;
    config.grad_slots = 2 + n % 2;
    config.allocator = static_cast<AllocatorPolicy>(n / 2 % 4);
    config.seq_len = 64;
    config.logits_chunk = 32;
    all.push_back(config);
  };
  for (const std::int64_t microbatches : {1, 3, 2}) {
    for (const auto strategy : {Strategy::no_shard, Strategy::optim, Strategy::optim_grads,
                                Strategy::optim_grads_params}) {
      for (const std::int64_t ranks : {1, 2, 3})
        add(strategy, data_parallel_mesh(1, ranks), Strategy::no_shard, microbatches);
      add(strategy, data_parallel_mesh(2, 2), Strategy::no_shard, microbatches);
    }
    add(Strategy::optim_grads_params, data_parallel_mesh(2, 2), Strategy::optim, microbatches);
  }
  return all;
}

MemorySummary predicted(const Program& program) {
  const Gpu gpu = load_gpu("h200", scenarios / "gpus").value();
  const Cluster cluster = make_cluster(gpu, program.config.mesh.world_size(), 8).value();
  const CostModel costs = make_cost_model(cluster).value();
  return predict(program, costs).value().run.memory;
}

TEST(MeasuredMemory, IsWhatWasPredictedButForTheRuntime) {
  for (const PlanConfig& config : configurations()) {
    const Program program = build_program(config, {}).value();
    const MemorySummary expected = predicted(program);
    const Bytes runtime = expected.categories.at(static_cast<std::size_t>(Category::runtime));
    std::vector<Bytes> heights;
    for (const Pool& pool : program.pools) heights.push_back(pool.height);

    MachineSettings settings;
    settings.kernel = [](const KernelCall&) { return Result<void>(); };
    Machine machine(program, settings);
    const auto ran = machine.run([&](std::int64_t rank, Backend& backend) -> Result<void> {
      MemoryMeter meter(program, PlanRole::train, backend);
      MFSDP_LET(interpreter, Interpreter::create(program, meter, rank));
      MFSDP_TRY(interpreter->run("train", 2));
      MFSDP_TRY(interpreter->finish());
      const MeasuredMemory memory = meter.measured();
      const std::string where = fmt::format(
          "{} on {} x {}, {} microbatches", to_string(config.strategy),
          config.mesh.size(Axis::dp_outer), config.mesh.size(Axis::dp_shard), config.microbatches);
      EXPECT_EQ(memory.pools, heights) << where;
      EXPECT_EQ(sum_of(memory.categories), expected.peak - runtime) << where;
      auto categories = expected.categories;
      categories.at(static_cast<std::size_t>(Category::runtime)) = Bytes(0);
      EXPECT_EQ(memory.categories, categories) << where;
      return {};
    });
    ASSERT_TRUE(ran) << ran.error().message();
    for (std::int64_t rank = 0; rank < config.mesh.world_size(); ++rank)
      EXPECT_EQ(machine.allocated(rank), heights);
  }
}

}  // namespace
}  // namespace mfsdp
