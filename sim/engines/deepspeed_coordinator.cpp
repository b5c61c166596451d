#include "sim/engines/deepspeed_coordinator.hpp"

#include <algorithm>
#include <set>

namespace mfsdp {

void DeepSpeedCoordinator::reset() {
  // What stayed available is still here, but is no longer counted.
  is_here_.resize(parameters_.size(), false);
  for (std::size_t i = 0; i < parameters_.size(); ++i)
    if (parameters_[i].is_persistent) is_here_[i] = true;
  fetched_for_.assign(parameters_.size(), -1);
  queue_.clear();
  for (std::size_t call = 0; call < trace_.size(); ++call)
    for (const std::size_t parameter : trace_[call])
      queue_.push_back({.parameter = parameter, .call = call});
  step_ = 0;
  live_ = 0;
}

DeepSpeedCoordinator::Fetched DeepSpeedCoordinator::fetch() {
  const Call& call = trace_[step_];
  Fetched fetched;
  std::size_t new_uses = 0;
  for (const std::size_t parameter : call) {
    if (fetched_for_[parameter] < static_cast<std::int64_t>(step_)) ++new_uses;
    if (is_here_[parameter]) continue;
    is_here_[parameter] = true;
    live_ += parameters_[parameter].elements;
    fetched.now.push_back(parameter);
  }
  std::ranges::sort(fetched.now);
  // Uses that an earlier prefetch did not pass.
  for (; new_uses > 0; --new_uses) {
    fetched_for_[queue_.front().parameter] = static_cast<std::int64_t>(queue_.front().call);
    queue_.pop_front();
  }
  fetched.ahead = prefetch();
  ++step_;
  return fetched;
}

std::vector<std::size_t> DeepSpeedCoordinator::prefetch() {
  const std::int64_t most = std::min(limits_.live_parameters - live_, limits_.prefetch_bucket);
  std::set<std::size_t> ahead;
  std::int64_t elements = 0;
  while (!queue_.empty() && elements < most) {
    const auto [parameter, call] = queue_.front();
    queue_.pop_front();
    fetched_for_[parameter] = std::max(fetched_for_[parameter], static_cast<std::int64_t>(call));
    if (is_here_[parameter] || !ahead.insert(parameter).second) continue;
    elements += parameters_[parameter].elements;
  }
  for (const std::size_t parameter : ahead) is_here_[parameter] = true;
  live_ += elements;
  return {ahead.begin(), ahead.end()};
}

std::vector<std::size_t> DeepSpeedCoordinator::release(const Call& call) {
  std::set<std::size_t> released;
  for (const std::size_t parameter : call)
    if (!parameters_[parameter].is_persistent &&
        fetched_for_[parameter] <= static_cast<std::int64_t>(step_))
      released.insert(parameter);
  std::int64_t passed = 0;
  for (std::size_t later = step_; later < trace_.size() && passed < limits_.reuse_distance; ++later)
    for (const std::size_t parameter : trace_[later]) {
      released.erase(parameter);
      passed += parameters_[parameter].elements;
    }
  for (const std::size_t parameter : released) {
    is_here_[parameter] = false;
    live_ -= parameters_[parameter].elements;
  }
  return {released.begin(), released.end()};
}

}  // namespace mfsdp
