// A result made by hand, for tests of what is printed.
#pragma once

#include "reports/record/result.hpp"

namespace mfsdp {

inline Bytes mebibytes(std::int64_t count) { return Bytes(count << 20); }

inline PredictedRun sample_run() {
  PredictedRun run;
  run.tool = "mfsdp-sim";
  run.version = "0.1.0";
  run.run_id = "00112233445566778899aabbccddeeff";
  run.created_unix_ns = 1'700'000'000'000'000'000;
  run.plan_hash = "0123456789abcdef0123456789abcdef";
  run.model_name = "llama3_8b";
  run.parameters = 8'030'261'248;
  run.config.mesh = data_parallel_mesh(1, 64);
  run.cluster = {.gpu = "h100",
                 .gpus = 64,
                 .nodes = 8,
                 .gpus_per_node = 8,
                 .network = "NVLink 450 GB/s inside a node, 50 GB/s per GPU between nodes"};
  run.calibration = "datasheet";
  run.cost_model_version = "1";
  run.plan.pools = {{.name = "weights", .height = mebibytes(1100), .lower_bound = mebibytes(1000)},
                    {.name = "empty", .height = Bytes(0), .lower_bound = Bytes(0)}};
  run.plan.max_live_full_weights = 2;
  run.plan.max_live_full_gradients = 2;
  // 1 + 2 + ... + 10 GiB = 55 GiB.
  for (std::size_t i = 0; i < run.memory.categories.size(); ++i)
    run.memory.categories[i] = mebibytes(1024 * (static_cast<std::int64_t>(i) + 1));
  run.memory.peak = mebibytes(55 * 1024);
  run.memory.allocated = mebibytes(56 * 1024);
  run.memory.capacity = mebibytes(80 * 1024);
  run.memory.headroom = mebibytes(24 * 1024);
  run.memory.fits = true;
  run.peak_op = "layers.31.attention_backward";
  run.memory.runtime_source = "measured on H200";
  run.time = {.step = Nanos(1'000'000'000),
              .compute = Nanos(900'000'000),
              .communication = Nanos(400'000'000),
              .exposed_communication = Nanos(60'000'000),
              .idle = Nanos(40'000'000),
              .contention = Nanos(9'000'000),
              .overlap_fraction = 0.85,  // 1 - 60 / 400
              .median_step = Nanos(1'000'000'000),
              .tokens_per_second_per_gpu = 8192,
              .tflops_per_gpu = 421.5,
              .mfu = 0.426};
  run.traffic = {.all_gather = mebibytes(30'000),
                 .reduce_scatter = mebibytes(30'000),
                 .all_reduce = mebibytes(1440)};  // 61440 MiB = 60 GiB
  run.exposed_units = {{.unit = "embedding", .exposed = Nanos(50'000'000)},
                       {.unit = "head", .exposed = Nanos(10'000'000)}};
  return run;
}

}  // namespace mfsdp
