#include "sim/engines/adamw.hpp"

namespace mfsdp {

void keep_adamw_state(StepBuilder& step, const OwnedWeight& weight, std::int64_t main) {
  step.at(weight.unit, Phase::optimizer);
  step.keep(weight.name + "_step", kFull, Category::optimizer_state);
  if (weight.elements == 0) return;
  for (const char* moment : {"_exp_avg", "_exp_avg_sq"})
    step.keep(weight.name + moment, weight.elements * main, Category::optimizer_state);
}

void update_weights(StepBuilder& step, const PlanConfig& config, std::int64_t elements,
                    std::size_t parameters, std::int64_t main,
                    const std::function<void()>& sum_norm) {
  const auto lists = static_cast<HostLaunches>(parameters);
  // Reads weight, gradient and moments; writes all except the gradient.
  const std::int64_t update = 7 * main;
  if (config.clip.num != 0) {
    step.host_work(lists * kClipParameter);
    step.memory_bound(KernelKind::norm_partial, "gradient_norm", elements * main);
    if (sum_norm) sum_norm();
    step.memory_bound(KernelKind::accumulate, "clip", 2 * elements * main);
  }
  step.host_work(lists * kOptimizerParameter);
  step.memory_bound(KernelKind::update, "adamw", elements * update);
}

}  // namespace mfsdp
