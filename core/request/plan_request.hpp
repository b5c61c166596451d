// Turns flags, a model and a plan file into a program. All tools use it, so that equal flags give
// equal plans.
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
#include "core/plan/job.hpp"
#include "core/plan/plan.hpp"
#include "core/request/notes.hpp"

namespace mfsdp {

/// The request of the flags: a configuration, whose plan is not built yet, or the program of
/// --plan.
struct PlanRequest {
  PlanConfig config;
  Meta meta;                               ///< of the program that is built
  std::shared_ptr<const Program> program;  ///< of --plan, its first one; else null
  std::shared_ptr<const Job> job{};        ///< of --plan; else null
  std::string hash{};                      ///< of that job
};

/// How to interpret the flags.
struct RequestTerms {
  bool gpus_are_chosen = false;  ///< else a cluster's file may state their number
  bool runs = false;             ///< the plan will run: it must compute all of the model
  bool takes_jobs = false;       ///< a plan file may have several classes of ranks
};

/// Whether one of these flags sets the number of GPUs.
[[nodiscard]] bool say_gpus(const std::vector<std::string>& given);

/// Reads models and plans once for many requests, and warns once of parts of a model that plans do
/// not compute.
class PlanRequests {
 public:
  /// `scenarios`: the folder with models, GPUs and clusters.
  explicit PlanRequests(std::filesystem::path scenarios, Notes notes = {})
      : scenarios_(std::move(scenarios)), notes_(std::move(notes)) {}

  /// Errors name the flag, or the field of a file.
  [[nodiscard]] Result<PlanRequest> read(const CommonOptions& options, const RequestTerms& terms);
  /// Reads the request and builds its programs if necessary.
  [[nodiscard]] Result<std::shared_ptr<const Job>> planned(const CommonOptions& options,
                                                           const RequestTerms& terms);
  /// The same where one class of ranks is needed.
  [[nodiscard]] Result<std::shared_ptr<const Program>> program(const CommonOptions& options,
                                                               const RequestTerms& terms);

  /// `name`: a value of --model. The result is valid as long as this object.
  [[nodiscard]] Result<const NamedModel*> model(const std::string& name);
  /// The number of GPUs in the cluster's file.
  [[nodiscard]] Result<std::optional<std::int64_t>> gpus_of_cluster(
      const CommonOptions& options) const;

 private:
  struct Loaded {
    std::shared_ptr<const Job> job;
    std::string hash;
  };
  [[nodiscard]] Result<Loaded> job(const std::string& path);
  [[nodiscard]] Result<void> tell_gaps(const NamedModel& model, bool runs);
  /// GPUs of a node of that GPU's usual machine; none of a GPU that cannot be read.
  [[nodiscard]] std::optional<std::int64_t> usual_node(const std::string& gpu);

  std::filesystem::path scenarios_;
  Notes notes_;
  std::map<std::string, NamedModel> models_;
  std::map<std::string, std::optional<std::int64_t>> nodes_;
  std::set<std::string> told_;  ///< warnings that were given
  std::map<std::string, Loaded> jobs_;
};

/// The request's programs, built if it has none.
[[nodiscard]] Result<std::shared_ptr<const Job>> build_requested(const PlanRequest& request);

}  // namespace mfsdp
