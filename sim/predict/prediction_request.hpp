// A prediction request: one configuration on one cluster, with everything that its prediction
// needs.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>

#include "core/base/error.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/plan/config.hpp"
#include "core/plan/engine_options.hpp"
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/schedule/least_memory.hpp"
#include "sim/allocator/settings.hpp"
#include "sim/calibrate/anchor.hpp"
#include "sim/calibrate/trust.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/engines/engine.hpp"
#include "sim/predict/engine_step.hpp"
#include "sim/predict/predict.hpp"
#include "sim/predict/routing.hpp"
#include "sim/simulator/ranks.hpp"

namespace mfsdp {

struct PredictionRequest {
  PlanConfig config;                       ///< as the engine uses it
  EngineKind engine = EngineKind::mfsdp;   ///< whose kernels, schedule and allocator
  EngineOptions options;                   ///< that the engine has
  AllocatorSettings allocator;             ///< of engines that use PyTorch's allocator
  Meta meta;                               ///< of the program that is built
  std::shared_ptr<const Program> program;  ///< null: with_program() builds it
  /// All programs, of a plan file or of several stages; else null.
  std::shared_ptr<const Job> job{};
  std::shared_ptr<const Job> without_passes{};  ///< the same, as it is simulated
  std::string plan_hash{};                      ///< of that job
  /// Of other engines, with their programs: of each pipeline stage, and the fullest one's.
  std::shared_ptr<const std::vector<EngineStep>> stages{};
  std::shared_ptr<const EngineStep> step;
  std::shared_ptr<const CostModel> costs;     ///< of a cluster with as many GPUs as the mesh
  PriceErrors errors;                         ///< of those costs
  std::optional<Anchor> anchor;               ///< the measured run that scaled the costs
  std::shared_ptr<const OwnRuns> own_runs;    ///< runs to compare with; may be null
  RankVariation variation;                    ///< how ranks differ
  std::shared_ptr<const RoutedModel> routed;  ///< how tokens choose experts; null: in balance
  Bytes reserve;                              ///< memory to keep free
  std::shared_ptr<AllocationCache> cache;     ///< shared by many requests; may be null
  std::shared_ptr<LeastMemoryTable> least;    ///< shared by many requests; may be null
};

/// The programs of a request that has its program: one for each class of ranks.
[[nodiscard]] std::span<const Program> programs_of(const PredictionRequest& request);

/// Has the request predict that job.
void set_job(PredictionRequest& request, std::shared_ptr<const Job> job, std::string hash);

/// True if that much memory leaves the reserve free.
[[nodiscard]] bool fits(Bytes memory, const PredictionRequest& request);

/// Device memory of a request that has its program; of several classes, that of the fullest. For an
/// engine with PyTorch's allocator
/// `allocated` is what the allocator reserves at most, with the memory outside it, and `least` is
/// what is allocated.
[[nodiscard]] Footprint footprint_of(const PredictionRequest& request);

/// Whether a request with its program leaves the reserve free. For an engine with PyTorch's
/// allocator: whether its allocations succeed in the remaining memory.
[[nodiscard]] bool fits(const PredictionRequest& request);

/// A lower bound of the memory that the plan allocates, computed without building the plan; never
/// above footprint_of(). 0 if no bound is known.
[[nodiscard]] Bytes least_allocated(const PredictionRequest& request);

/// Whether least_allocated() exceeds the memory. Faster than least_allocated() alone: activations
/// grow with the micro-batch, so a smaller micro-batch often decides, and many requests share it.
[[nodiscard]] bool cannot_fit(const PredictionRequest& request);

/// Returns the request with its program; builds it if missing.
[[nodiscard]] Result<PredictionRequest> with_program(PredictionRequest request);

/// As predict() of a program; `fits` and `headroom` count the reserve. The run also states its
/// trust, and how ranks differ where they do.
[[nodiscard]] Result<Prediction> predict(const PredictionRequest& request);

}  // namespace mfsdp
