// Trains on GPUs in one process, with a thread for each rank, and records the events of rank 0.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "core/plan/job.hpp"
#include "gpu_backend/cuda/cuda_backend.hpp"
#include "gpu_backend/train/trainer.hpp"
#include "tests/gpu_backend/train/training.hpp"

namespace mfsdp::cuda {

/// Exchange between threads in place of sockets between processes.
class ThreadPeers {
 public:
  explicit ThreadPeers(std::size_t ranks) : ranks_(ranks) {}

  std::vector<Peers::Bytes> all_gather(std::size_t rank, Peers::Bytes own) {
    std::unique_lock lock(mutex_);
    const std::size_t round = round_;
    given_.resize(ranks_);
    given_[rank] = std::move(own);
    if (++arrived_ == ranks_) {
      taken_ = std::exchange(given_, {});
      arrived_ = 0;
      ++round_;
      all_here_.notify_all();
    }
    all_here_.wait(lock, [&] { return round_ != round; });
    return taken_;
  }

  Peers of(std::size_t rank) {
    return {
        .all_gather = [this, rank](const Peers::Bytes& own) -> Result<std::vector<Peers::Bytes>> {
          return all_gather(rank, own);
        },
        .alive = {}};
  }

 private:
  std::size_t ranks_;
  std::mutex mutex_;
  std::condition_variable all_here_;
  std::size_t arrived_ = 0;
  std::size_t round_ = 0;
  std::vector<Peers::Bytes> given_;
  std::vector<Peers::Bytes> taken_;
};

/// The record of a run on GPUs.
struct CudaTold : test::Told {
  std::vector<Result<void>> ends;         ///< by rank; `end` is the first that is bad
  std::vector<std::vector<Bytes>> pools;  ///< by rank
  std::vector<OpTiming> timings;          ///< of rank 0; their ops are gone
};

using Change = std::function<void(CudaSettings&)>;

/// As test::train() does on the CPU's machine. `programs`: of a job.
inline CudaTold train_on_gpus(
    std::span<const Program> programs, std::int64_t steps, const Dataset& data,
    const Change& change = [](CudaSettings&) {}) {
  const PlanConfig& config = programs.front().config;
  const std::vector<std::uint32_t> classes = class_of_ranks(programs);
  const auto reporting = static_cast<std::size_t>(reporting_rank(programs));
  const auto ranks = static_cast<std::size_t>(config.mesh.world_size());
  SharedHostGather gather(config.mesh.world_size());
  TrainInputs inputs{.data = &data, .gather = &gather};
  inputs.settings.steps = steps;
  inputs.settings.learning_rate = {.peak = 1e-2, .minimum = 1e-3, .warmup = 2};
  inputs.settings.seed = 7;
  ThreadPeers peers(ranks);
  CudaTold told;
  told.ends.resize(ranks);
  told.pools.resize(ranks);
  test::Listener listener(told);
  std::mutex putting;
  const auto run_rank = [&](std::size_t r) -> Result<void> {
    const Program& program = programs[classes[r]];
    CudaSettings settings;
    if (programs.size() > 1) settings.classes = classes;
    settings.kernels = {.program = &program, .optimizer = inputs.settings.optimizer};
    settings.rank = static_cast<std::int64_t>(r);
    settings.local_rank = static_cast<std::int64_t>(r);
    settings.peers = peers.of(r);
    settings.gemm.deterministic = config.deterministic;
    settings.timed_from = steps - 1;
    change(settings);
    MFSDP_LET(backend, CudaBackend::create(program, settings));
    MFSDP_LET(trainer, Trainer::create(programs, *backend, settings.rank, inputs,
                                       r == reporting ? &listener : nullptr));
    MFSDP_TRY(trainer->run());
    told.pools[r] = backend->allocated();
    const std::scoped_lock lock(putting);
    test::put_all(told, *trainer, *backend);
    if (r == 0) told.timings = backend->take_timings();
    return {};
  };
  {
    std::vector<std::jthread> threads;
    for (std::size_t r = 0; r < ranks; ++r)
      threads.emplace_back([&, r] { told.ends[r] = run_rank(r); });
  }
  for (const Result<void>& end : told.ends)
    if (told.end && !end) told.end = end;
  for (std::size_t r = 0; r < ranks; ++r) {
    std::vector<Bytes> heights;
    for (const Pool& pool : programs[classes[r]].pools) heights.push_back(pool.height);
    told.allocated_as_planned = told.allocated_as_planned && told.pools[r] == heights;
  }
  return told;
}

inline CudaTold train_on_gpus(
    const PlanConfig& config, std::int64_t steps, const Dataset& data,
    const Change& change = [](CudaSettings&) {}) {
  const Program program = build_program(config, {}).value();
  return train_on_gpus(std::span(&program, 1), steps, data, change);
}

}  // namespace mfsdp::cuda
