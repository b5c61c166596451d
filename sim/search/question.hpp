// One configuration on one cluster, and what is asked about it.
#pragma once

#include <memory>
#include <optional>

#include "core/base/error.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/plan/config.hpp"
#include "core/plan/plan.hpp"
#include "core/schedule/least_memory.hpp"
#include "sim/allocator/settings.hpp"
#include "sim/calibrate/anchor.hpp"
#include "sim/calibrate/trust.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/engine/ranks.hpp"
#include "sim/engines/engine.hpp"
#include "sim/predict/engine_step.hpp"
#include "sim/predict/predict.hpp"
#include "sim/predict/routing.hpp"

namespace mfsdp {

struct Question {
  PlanConfig config;
  EngineKind engine = EngineKind::mfsdp;   ///< whose; the configuration is as it has it
  AllocatorSettings allocator;             ///< of an engine that has PyTorch's
  Meta meta;                               ///< of the program that is built
  std::shared_ptr<const Program> program;  ///< instead of building one; may be null
  std::shared_ptr<const EngineStep> step;  ///< that has it, of engines that are not ours
  std::shared_ptr<const CostModel> costs;  ///< of a cluster with as many GPUs as the mesh
  PriceErrors errors;                      ///< of those costs
  std::optional<Anchor> anchor;            ///< that has scaled them
  std::shared_ptr<const std::vector<OwnStep>> own_steps;  ///< runs to compare with; may be null
  RankVariation variation;                                ///< how ranks differ
  std::shared_ptr<const RoutedModel> routed;  ///< how experts are chosen; null: in balance
  Bytes reserve;                              ///< memory to keep free; part of whether it fits
  std::shared_ptr<AllocationCache> cache;     ///< of all questions of one session; may be null
  std::shared_ptr<LeastMemoryTable> least;    ///< likewise
};

/// Whether that much memory leaves the reserve free.
[[nodiscard]] bool fits(Bytes memory, const Question& question);

/// Device memory of a question whose program is there: of an engine with PyTorch's allocator what
/// it reserves at most and what lies beside it; at least what it allocates.
[[nodiscard]] Footprint footprint_of(const Question& built);

/// Whether it leaves the reserve free; of such an engine, whether its allocations end well in what
/// is left.
[[nodiscard]] bool fits(const Question& built);

/// Memory that the plan allocates at least, found without building it; never above what
/// footprint_of() says of the built one. 0 where that cannot be known.
[[nodiscard]] Bytes least_allocated(const Question& question);

/// Whether least_allocated() leaves too little free. Quicker than that: activations grow with the
/// micro-batch, so a smaller one is often enough to know, and many questions share it.
[[nodiscard]] bool cannot_fit(const Question& question);

/// The question with the program that is asked about, built where none was given.
[[nodiscard]] Result<Question> built(Question question);

/// As predict(), with `fits` and `headroom` after the reserve, with trust, and with what ranks
/// differ in where they do.
[[nodiscard]] Result<Prediction> answer(const Question& question);

}  // namespace mfsdp
