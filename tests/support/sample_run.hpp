// Runs with something in every field, for tests of what is written from them.
#pragma once

#include <string>
#include <utility>

#include "reports/record/result.hpp"

namespace mfsdp::test {

inline PlanConfig sample_config() {
  PlanConfig config;
  config.model = {.vocab = 128256,
                  .hidden = 4096,
                  .layers = 32,
                  .heads = 32,
                  .kv_heads = 8,
                  .head_dim = 128,
                  .intermediate = 14336,
                  .max_seq_len = 8192,
                  .tied_embeddings = false,
                  .qkv_bias = true,
                  .qk_norm = true,
                  .rms_norm_eps = {1, 100000},
                  .rope_theta = {500000, 1},
                  .rope_scaling = {.factor = {8, 1},
                                   .low_freq_factor = {1, 1},
                                   .high_freq_factor = {1, 3},  // no decimal stands for it
                                   .original_max_seq_len = 8192}};
  config.mesh = data_parallel_mesh(2, 32);
  config.strategy = Strategy::optim_grads;
  config.outer_strategy = Strategy::optim;
  config.layout = LayoutRule::megatron_fsdp;
  config.microbatches = 3;
  config.recompute = {.kind = Recompute::full, .full_blocks = 3};
  config.grad_dtype = DType::bf16;
  config.allocator = AllocatorPolicy::trace_pool;
  config.optimizer = Optimizer::sgd;
  config.clip = {1, 2};
  config.exact_sums = true;
  config.frozen = {"embed", "o'brien \"norm\""};
  return config;
}

/// Fills the figures of both kinds of run; `ops` ops that alternate between two streams.
inline void fill_figures(RunFigures& run, std::string run_id, std::int64_t ops) {
  run.version = "0.1.0";
  run.run_id = std::move(run_id);
  run.name = "naïve'); DROP TABLE runs; -- \"日本\"";
  run.created_unix_ns = 1'790'000'000'123'456'789;
  run.plan_hash = "0123456789abcdef0123456789abcdef";
  run.model_name = "llama3_8b";
  run.parameters = 8'030'261'248;
  run.config = sample_config();
  run.cluster = {.gpu = "h100", .gpus = 64, .nodes = 8, .gpus_per_node = 8, .network = "8 x 400G"};
  run.plan = {.units = 34,
              .groups = 35,
              .ops = 3500,
              .events = 70,
              .waits = 80,
              .buffers = 900,
              .collectives = 200,
              .segments = 4,
              .max_live_full_weights = 2,
              .max_live_full_gradients = 2,
              .allocator = AllocatorPolicy::trace_pool,
              .pools = {{"weights", Bytes(1000), Bytes(990)}, {"scratch", Bytes(64), Bytes(64)}},
              .padding = Bytes(4096)};
  run.memory = {.capacity = Bytes(100),
                .allocated = Bytes(120),
                .peak = Bytes(55),
                .fits = false,
                .reserve = Bytes(0),
                .headroom = Bytes(-20),
                .categories = {},
                .runtime_source = "assumed"};
  for (std::size_t i = 0; i < run.memory.categories.size(); ++i)
    run.memory.categories.at(i) = Bytes(static_cast<std::int64_t>(i) + 1);  // 1 + ... + 10 = 55
  run.time = {.step = Nanos(1000),                                          // = 700 + 200 + 100
              .compute = Nanos(700),
              .communication = Nanos(800),
              .exposed_communication = Nanos(200),
              .idle = Nanos(100),
              .contention = Nanos(30),
              .overlap_fraction = 0.75,  // 1 - 200 / 800
              .median_step = Nanos(1000),
              .tokens_per_second_per_gpu = 12345.678,
              .tflops_per_gpu = 0.1,
              .mfu = 1.0 / 3.0};
  run.traffic = {.all_gather = Bytes(11), .reduce_scatter = Bytes(22), .all_reduce = Bytes(33)};
  for (std::int64_t i = 0; i < ops; ++i)
    run.timeline.push_back({.op = OpId(static_cast<std::size_t>(i)),
                            .name = "layers." + std::to_string(i / 2 % 1500) + ".op",
                            .stream = i % 2 == 0 ? "compute" : "all_gather",
                            .kind = i % 2 == 0 ? "gemm" : "all_gather",
                            .segment = i < ops / 2 ? "first" : "last",
                            .instance = i % 3,
                            .start = Nanos(i * 100'001),
                            .end = Nanos(i * 100'001 + 150'000)});
}

/// Predicted, with `points` memory points.
inline PredictedRun sample_run(std::string run_id = "run-1", std::int64_t ops = 6,
                               std::int64_t points = 5) {
  PredictedRun run;
  fill_figures(run, std::move(run_id), ops);
  run.tool = "mfsdp-sim";
  run.calibration = "measured";
  run.cost_model_version = "1";
  run.peak_op = "layers.31.swiglu";
  run.exposed_units = {{"head", Nanos(150)}, {"layers.0", Nanos(50)}};
  MemoryPoint point;
  for (std::int64_t i = 0; i < points; ++i) {
    point.at = Nanos(i * 70'007);
    if (i % 4 != 1) point.categories.at(static_cast<std::size_t>(i % 10)) = Bytes(i * 1'000'003);
    run.memory_timeline.push_back(point);
  }
  return run;
}

/// A step with a loss and a duration alone.
inline StepResult sample_step(std::int64_t step, Nanos duration, double loss) {
  StepResult result;
  result.step = step;
  result.duration = duration;
  result.loss = loss;
  return result;
}

/// Measured, with launches of two ranks.
inline MeasuredRun measured_run(std::string run_id = "run-1", std::int64_t ops = 6) {
  MeasuredRun run;
  fill_figures(run, std::move(run_id), ops);
  run.tool = "mfsdp-exec";
  for (const std::int64_t rank : {0, 2}) {
    run.launches.push_back({.op = OpId(3),
                            .rank = rank,
                            .step = 9,
                            .stream = StreamId(1),
                            .drains = 2,
                            .issued = Nanos(rank),
                            .begin = Nanos(100),
                            .end = Nanos(9'000'000'000'000)});
    run.launches.push_back({.op = OpId(4'000'000'000),
                            .rank = rank,
                            .step = 10,
                            .stream = std::nullopt,
                            .drains = 3,
                            .issued = Nanos(300),
                            .begin = Nanos(300),
                            .end = Nanos(370)});
  }
  return run;
}

}  // namespace mfsdp::test
