// From flags to questions: a plan's request (core/request), and the prices of the machine. What
// many questions share is read once.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/request/plan_request.hpp"
#include "reports/tool/session.hpp"
#include "sim/search/question.hpp"
#include "sim/tool/sim_options.hpp"

namespace mfsdp {

class Asker {
 public:
  explicit Asker(Session session)
      : session_(std::move(session)),
        requests_(session_.scenarios, talk_on(session_.err, session_.tool)) {}

  /// The question that the options ask: of the configuration that they describe, or of --plan.
  [[nodiscard]] Result<Question> question(const SimOptions& options);
  /// The same of a plan that is requested already.
  [[nodiscard]] Result<Question> question(const PlanRequest& request, const SimOptions& options);

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
                             std::optional<PriceTables>, std::optional<std::int64_t>,
                             std::optional<std::pair<std::int64_t, std::int64_t>>,
                             std::optional<std::int64_t>, AttentionChoice>;

  struct Priced {
    std::shared_ptr<const CostModel> costs;
    PriceErrors errors;
    std::optional<Anchor> anchor;
  };

  /// What is measured of a kind of GPU, on whatever number of them.
  struct Measured {
    CostTables tables;
    double kernel_error = 0;
  };

  Result<const Measured*> measured(const SimOptions& options, const Gpu& gpu);
  Result<Priced> priced(const SimOptions& options, std::int64_t gpus);
  /// Runs with which predictions were compared, read once.
  Result<std::shared_ptr<const std::vector<OwnStep>>> own_steps();

  Session session_;
  PlanRequests requests_;
  std::map<Machine, Priced> priced_;
  std::shared_ptr<const std::vector<OwnStep>> own_steps_;
  std::map<std::tuple<std::string, std::optional<std::string>, std::optional<PriceTables>>,
           Measured>
      measured_;
  std::shared_ptr<AllocationCache> cache_ = std::make_shared<AllocationCache>();
  std::shared_ptr<LeastMemoryTable> least_ = std::make_shared<LeastMemoryTable>();
};

}  // namespace mfsdp
