// One measured run that pins predictions of the same machine to reality.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "sim/cost/cost_model.hpp"

namespace mfsdp {

/// What a measured run says of the prices: factors on top of them.
struct Anchor {
  std::string run;    ///< its name, or its id where it has none
  std::string model;  ///< what it trained
  std::int64_t gpus = 0;
  std::int64_t domains = 1;      ///< that those GPUs filled
  double kernel_factor = 1;      ///< on every kernel's time
  double collective_factor = 1;  ///< on every collective's time
  double before = 0;             ///< predicted / measured - 1 of its step, unscaled
  double after = 0;              ///< the same, scaled
  bool waited = false;  ///< its step waited for collectives, so that it says what they take
  bool parts = false;   ///< compute and exposed communication were known, not only the step
  /// The factor of collectives is at a bound, and more or less of it would come nearer.
  bool collectives_bound = false;

  /// "kernels x 1.03, collectives x 1.00 (night-7)": the name, of any length, comes last.
  [[nodiscard]] std::string text() const;
};

/// The cost model of a cluster of so many GPUs in nodes of so many, of the machine in question.
using CostsOf = std::function<Result<CostModel>(std::int64_t gpus, std::int64_t gpus_per_node)>;

/// Reads a result of schema mfsdp.result/1 whose source is "measured", predicts its configuration
/// with `costs_of`, and finds the factors with which that prediction gives the measured times.
/// With compute and exposed communication known: kernels take their ratio of compute, collectives
/// their ratio of exposed communication, repeated as each shifts the other; collectives stay as
/// they are where either side exposes none. With the step alone: both take its ratio. Attention is
/// priced as the run's own was: by cuDNN where it does not say "warpgroups" (kAttentionFact).
/// A factor of kernels outside 0.25 to 4 is an error: such a run is not of this machine or
/// configuration. So is a step in which the GPU would pass its peak. A factor of collectives ends
/// at 0.25 and 4, and says so.
/// Errors name `where` and the field: another schema, a simulated run, another GPU than the
/// model's, GPUs that are not the mesh's, tokens a second that are not the configuration's.
[[nodiscard]] Result<Anchor> anchor_from(std::string_view result_json, const std::string& where,
                                         const CostsOf& costs_of);

/// anchor_from a file.
[[nodiscard]] Result<Anchor> load_anchor(const std::filesystem::path& file,
                                         const CostsOf& costs_of);

}  // namespace mfsdp
