// From flags, a model and a plan file to a program: the one way of all tools. The same flags are
// the same plan, whoever asks.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/cli/common_options.hpp"
#include "core/memory/allocation_cache.hpp"
#include "core/model/hf_config.hpp"
#include "core/plan/plan.hpp"
#include "core/request/talk.hpp"

namespace mfsdp {

/// What flags ask for: of a model a configuration, of which nothing is built yet; of --plan its
/// program.
struct PlanRequest {
  PlanConfig config;
  Meta meta;                               ///< of the program that is built
  std::shared_ptr<const Program> program;  ///< of --plan; else null
};

/// How flags are meant.
struct RequestTerms {
  bool gpus_are_chosen = false;  ///< else a cluster's file says how many there are
  bool runs = false;             ///< the plan is to be run: it must compute all of the model
};

/// Whether the flags of these names say how many GPUs there are.
[[nodiscard]] bool say_gpus(const std::vector<std::string>& given);

/// Reads what many requests share once: models and plans. What a model has and a plan does not
/// compute is warned of once.
class PlanRequests {
 public:
  /// `scenarios`: the folder with models and clusters.
  explicit PlanRequests(std::filesystem::path scenarios, Talk talk = {})
      : scenarios_(std::move(scenarios)), talk_(std::move(talk)) {}

  /// Errors name the flag, or the field of a file.
  [[nodiscard]] Result<PlanRequest> read(const CommonOptions& options, const RequestTerms& terms);
  /// Reads the request and builds what is not there yet.
  [[nodiscard]] Result<std::shared_ptr<const Program>> program(const CommonOptions& options,
                                                               const RequestTerms& terms);

  /// `name`: as --model takes it. The result lasts as long as this.
  [[nodiscard]] Result<const NamedModel*> model(const std::string& name);
  /// GPUs that the cluster's file says there are.
  [[nodiscard]] Result<std::optional<std::int64_t>> gpus_of_cluster(
      const CommonOptions& options) const;

 private:
  [[nodiscard]] Result<std::shared_ptr<const Program>> plan(const std::string& path);
  [[nodiscard]] Result<void> tell_gaps(const NamedModel& model, bool runs);

  std::filesystem::path scenarios_;
  Talk talk_;
  std::map<std::string, NamedModel> models_;
  std::set<std::string> told_;  ///< warnings
  std::map<std::string, std::shared_ptr<const Program>> plans_;
};

/// The request's program, built where it has none. `cache` may be null.
[[nodiscard]] Result<std::shared_ptr<const Program>> build_requested(
    const PlanRequest& request, AllocationCache* cache = nullptr);

}  // namespace mfsdp
