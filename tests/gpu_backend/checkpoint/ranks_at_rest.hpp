// Ranks without a machine: their state in memory, and saves of it.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "core/schedule/build.hpp"
#include "gpu_backend/checkpoint/saved_state.hpp"
#include "gpu_backend/checkpoint/saver.hpp"
#include "gpu_backend/train/held_values.hpp"
#include "gpu_backend/train/initial_weights.hpp"
#include "tests/gpu_backend/train/rank_memory.hpp"
#include "tests/support/idle_backend.hpp"

namespace mfsdp::test {

inline RunIdentity identity(const PlanConfig& config) {
  return {.model_name = "nano",
          .parameters = 45'504,
          .config = config,
          .optimizer = {},
          .seed = 7,
          .data = {.description = "counting", .samples = 64, .fingerprint = 12},
          .plan_hash = "0123",
          .run_id = "4567"};
}

/// Where a run of this configuration is after `steps` steps.
inline TrainPosition position(const PlanConfig& config, std::int64_t steps) {
  const std::int64_t samples = steps * config.global_batch();
  return {.step = steps, .samples = samples, .tokens = samples * config.seq_len};
}

/// All ranks of a program, each with its own state.
class Ranks {
 public:
  explicit Ranks(const PlanConfig& config) : program(build_program(config, {}).value()) {
    for (std::int64_t r = 0; r < config.mesh.world_size(); ++r) {
      memory.push_back(std::make_unique<RankMemory>(program));
      parameters.push_back(find_parameters(program, memory.back()->bytes(), r).value());
    }
  }

  [[nodiscard]] RestingRank at(std::int64_t rank) {
    return {.program = program,
            .backend = backend,
            .rank = rank,
            .parameters = parameters[static_cast<std::size_t>(rank)]};
  }

  /// Saves on a thread for each rank; the first error of any.
  [[nodiscard]] Result<void> save(Saver& saver, const TrainPosition& position) {
    SharedHostGather gather(std::ssize(parameters));
    std::atomic<bool> failed = false;
    std::vector<Result<Bytes>> outcomes(parameters.size());
    const HostGather::Alive alive = [&]() -> Result<void> {
      return failed ? fail("", "another rank failed") : Result<void>();
    };
    {
      std::vector<std::jthread> threads;
      for (std::size_t r = 0; r < parameters.size(); ++r)
        threads.emplace_back([&, r] {
          outcomes[r] = saver.keep(at(static_cast<std::int64_t>(r)), position, gather, alive);
          if (!outcomes[r]) failed = true;
        });
    }
    for (const auto& outcome : outcomes)
      if (!outcome && outcome.error().what != "another rank failed")
        return tl::unexpected<Error>(outcome.error());
    return {};
  }

  Program program;
  IdleBackend backend;
  std::vector<std::unique_ptr<RankMemory>> memory;
  std::vector<std::vector<ParameterPlaces>> parameters;
};

}  // namespace mfsdp::test
