// A measured run that scales predictions for the same machine.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "sim/cost/cost_model.hpp"

namespace mfsdp {

/// Price factors from a measured run.
struct Anchor {
  std::string run;    ///< its name, or its id without one
  std::string model;  ///< what it trained
  std::int64_t gpus = 0;
  std::int64_t domains = 1;      ///< number of domains of those GPUs
  double kernel_factor = 1;      ///< on every kernel's time
  double collective_factor = 1;  ///< on every collective's time
  double before = 0;             ///< predicted / measured - 1 of its step, unscaled
  double after = 0;              ///< the same, scaled
  bool waited = false;           ///< its step waited for collectives, so it measures them
  bool parts = false;  ///< compute and exposed communication were known, not only the step
  /// The factor of collectives is at a bound; a value beyond it would fit better.
  bool collectives_bound = false;

  /// "kernels x 1.03, collectives x 1.00 (night-7)"; the name, of any length, is last.
  [[nodiscard]] std::string text() const;
};

/// Makes the cost model of a cluster with this number of GPUs and node size, for the machine.
using CostsOf = std::function<Result<CostModel>(std::int64_t gpus, std::int64_t gpus_per_node)>;

/// Reads a result of schema mfsdp.result/1 whose source is "measured", predicts its configuration
/// with `costs_of`, and finds the factors with which the prediction has the measured times.
/// If compute and exposed communication are known, the factor of kernels is the ratio of compute,
/// and the factor of collectives the ratio of exposed communication; both are iterated, as each
/// shifts the other. Collectives keep their prices if either side exposes none. If only the step is
/// known, both factors are its ratio. Attention is priced as the run computed it: by cuDNN unless
/// the result states "warpgroups" (kAttentionFact).
/// A kernel factor outside 0.25 to 4 is an error, and so is a step above the GPU's peak: the run is
/// of another machine or configuration. A factor of collectives is limited to 0.25 to 4, which the
/// text reports.
/// Errors name `where` and the field: another schema, a simulated run, a GPU other than the
/// model's, a number of GPUs other than the mesh's, or tokens per second that contradict the
/// configuration.
[[nodiscard]] Result<Anchor> anchor_from(std::string_view result_json, const std::string& where,
                                         const CostsOf& costs_of);

/// anchor_from a file.
[[nodiscard]] Result<Anchor> load_anchor(const std::filesystem::path& file,
                                         const CostsOf& costs_of);

}  // namespace mfsdp
