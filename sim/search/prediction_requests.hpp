// From jobs to prediction requests. Reads models, machines and prices once for many jobs.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/request/plan_request.hpp"
#include "sim/predict/prediction_request.hpp"
#include "sim/search/job_options.hpp"

namespace mfsdp {

/// Serves one thread.
class PredictionRequests {
 public:
  /// `scenarios`: the folder with models, GPUs, clusters and measurements.
  explicit PredictionRequests(std::filesystem::path scenarios, Notes notes = {})
      : scenarios_(std::move(scenarios)), plans_(scenarios_, std::move(notes)) {}

  /// The request of a job: of the configuration that it describes, or of its plan file. Errors name
  /// a flag, or the field of a file.
  [[nodiscard]] Result<PredictionRequest> read(const JobOptions& job);
  /// The same for a plan that was requested already.
  [[nodiscard]] Result<PredictionRequest> read(const PlanRequest& plan, const JobOptions& job);

  /// The job's model.
  [[nodiscard]] Result<ModelShape> shape(const JobOptions& job);
  /// The job's kind of GPU, and how many of them a node has.
  [[nodiscard]] Result<Gpu> gpu(const JobOptions& job) const;
  [[nodiscard]] Result<std::int64_t> gpus_per_node(const JobOptions& job) const;
  /// The number of GPUs that there are, where --gpus or the cluster's file states it.
  [[nodiscard]] Result<std::optional<std::int64_t>> limit_of_gpus(const JobOptions& job) const;

 private:
  /// Everything that a cost model depends on.
  using Machine =
      std::tuple<std::string, std::string, std::int64_t, std::optional<std::int64_t>,
                 std::optional<PriceTables>, std::optional<std::int64_t>,
                 std::optional<std::pair<std::int64_t, std::int64_t>>, std::optional<std::int64_t>,
                 AttentionChoice, std::optional<std::string>>;

  struct Priced {
    std::shared_ptr<const CostModel> costs;
    PriceErrors errors;
    std::optional<Anchor> anchor = {};
  };

  /// Measurements of a kind of GPU, for any number of them.
  struct Measured {
    CostTables tables;
    double kernel_error = 0;
  };

  Result<const Measured*> measured(const JobOptions& job, const Gpu& gpu);
  Result<Priced> priced(const JobOptions& job, std::int64_t gpus);
  /// Runs with which predictions were compared.
  Result<std::shared_ptr<const OwnRuns>> own_runs();

  std::filesystem::path scenarios_;
  PlanRequests plans_;
  std::map<Machine, Priced> priced_;
  std::shared_ptr<const OwnRuns> own_runs_;
  std::map<std::tuple<std::string, std::optional<std::string>, std::optional<PriceTables>>,
           Measured>
      measured_;
  std::shared_ptr<AllocationCache> cache_ = std::make_shared<AllocationCache>();
  std::shared_ptr<LeastMemoryTable> least_ = std::make_shared<LeastMemoryTable>();
};

}  // namespace mfsdp
