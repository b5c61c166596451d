// From flags to questions. What many questions share is read once: models, tables, cost models.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>

#include "core/base/error.hpp"
#include "core/cli/sim_options.hpp"
#include "core/model/hf_config.hpp"
#include "reports/tool/session.hpp"
#include "sim/search/question.hpp"

namespace mfsdp {

class Asker {
 public:
  explicit Asker(Session session) : session_(std::move(session)) {}

  /// The question that the options ask: of the configuration that they describe, or of --plan.
  [[nodiscard]] Result<Question> question(const SimOptions& options);
  /// Its plan alone, without prices: what tools ask that predict nothing.
  [[nodiscard]] Result<std::shared_ptr<const Program>> program(const SimOptions& options);

  /// The model that the options name.
  [[nodiscard]] Result<ModelShape> shape(const SimOptions& options);
  /// The GPU that the options name, and how many of them make a node.
  [[nodiscard]] Result<Gpu> gpu(const SimOptions& options) const;
  [[nodiscard]] Result<std::int64_t> gpus_per_node(const SimOptions& options) const;
  /// GPUs that --gpus or the cluster file says there are.
  [[nodiscard]] Result<std::optional<std::int64_t>> limit_of_gpus(const SimOptions& options) const;

 private:
  /// What a cost model depends on.
  using Machine = std::tuple<std::string, std::string, std::int64_t, std::optional<std::int64_t>,
                             std::optional<std::pair<std::int64_t, std::int64_t>>>;

  struct Priced {
    std::shared_ptr<const CostModel> costs;
    PriceErrors errors;
    std::optional<Anchor> anchor;
  };

  Result<Question> unpriced(const SimOptions& options);
  /// Warns once of what the model has and a plan does not compute; an error where the plan `runs`.
  Result<void> tell_gaps(const NamedModel& model, std::int64_t seq_len, bool runs);
  Result<Priced> priced(const SimOptions& options, std::int64_t gpus);
  Result<std::shared_ptr<const Program>> plan(const std::string& path);
  Result<const NamedModel*> model(const std::string& name);

  Session session_;
  std::map<std::string, NamedModel> models_;
  std::set<std::string> told_;  ///< warnings
  std::map<std::string, std::shared_ptr<const Program>> plans_;
  std::map<Machine, Priced> priced_;
  std::shared_ptr<AllocationCache> cache_ = std::make_shared<AllocationCache>();
  std::shared_ptr<LeastMemoryTable> least_ = std::make_shared<LeastMemoryTable>();
};

}  // namespace mfsdp
