// Optimizers as data: what each keeps of a parameter, and its arithmetic, for planner, backends and
// saves.
//
// To add one: its name in Optimizer, its rule here and in UpdateRules. The kernel `update` of a
// group runs the rule of the group's optimizer on every element of a rank's slice, on the CPU and
// on GPUs alike; tests/gpu_backend/train and tests/verify/cpu/oracle hold rules against references
// of their own.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>
#include <string_view>
#include <type_traits>

#include "core/base/vocabulary.hpp"

#if defined(__CUDACC__)
#define MFSDP_ON_DEVICE_TOO __host__ __device__
#else
#define MFSDP_ON_DEVICE_TOO
#endif

namespace mfsdp {

enum class Optimizer { adamw, sgd };

template <>
struct Names<Optimizer> {
  static constexpr std::array<std::string_view, 2> values{"adamw", "sgd"};
};

/// One value for each element that is updated, of PlanConfig::statistic_dtype; 0 before the first
/// step.
struct OptimizerState {
  std::string_view name;   ///< of its buffers, and of the update's operand
  std::string_view saved;  ///< in saves, older ones included
};

/// What is the same for all elements of a slice that all decay or all do not.
template <class R>
struct UpdateStep {
  R learning_rate = 0;
  R keep = 1;  ///< what decay leaves of a weight: 1 - learning rate * weight decay, or 1
  R beta1 = 0;
  R beta2 = 0;
  R epsilon = 0;
  R corrected_rate = 0;   ///< learning rate / (1 - beta1^t)
  R correction_root = 1;  ///< root of 1 - beta2^t
};

/// Adam's moments with decay apart from the gradient (Loshchilov and Hutter, arXiv 1711.05101), in
/// the order of PyTorch's AdamW.
struct AdamwRule {
  static constexpr Optimizer optimizer = Optimizer::adamw;
  static constexpr std::array<OptimizerState, 2> states{
      OptimizerState{.name = "exp_avg", .saved = "first_moment"},
      OptimizerState{.name = "exp_avg_sq", .saved = "second_moment"}};
  static constexpr bool takes_betas = true;

  /// The weight after the step. `gradient` is the mean over tokens, clipped; `state` has a value
  /// of each of `states`.
  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R weight, R gradient, R* state, const UpdateStep<R>& s) {
    using std::sqrt;
    state[0] = s.beta1 * state[0] + (1 - s.beta1) * gradient;
    state[1] = s.beta2 * state[1] + (1 - s.beta2) * gradient * gradient;
    const R divisor = sqrt(state[1]) / s.correction_root + s.epsilon;
    return weight * s.keep - s.corrected_rate * state[0] / divisor;
  }
};

/// Plain gradient descent, with the same decay.
struct SgdRule {
  static constexpr Optimizer optimizer = Optimizer::sgd;
  static constexpr std::array<OptimizerState, 0> states{};
  static constexpr bool takes_betas = false;

  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R weight, R gradient, R* /*state*/, const UpdateStep<R>& s) {
    return weight * s.keep - s.learning_rate * gradient;
  }
};

template <class... Rules>
struct RuleList {};
using UpdateRules = RuleList<AdamwRule, SgdRule>;

/// A rule without its arithmetic.
struct OptimizerSpec {
  std::span<const OptimizerState> states;
  bool takes_betas = false;     ///< it has use for beta1, beta2 and epsilon
  bool whole_matrices = false;  ///< it updates matrices, not elements of flat shards
};

/// Calls `use` with the rule of an optimizer and returns what that returns.
template <class Use, class First, class... Others>
decltype(auto) with_rule(RuleList<First, Others...>, Optimizer optimizer, const Use& use) {
  if constexpr (sizeof...(Others) > 0)
    if (First::optimizer != optimizer) return with_rule(RuleList<Others...>{}, optimizer, use);
  return use(First{});
}
template <class Use>
decltype(auto) with_rule(Optimizer optimizer, const Use& use) {
  return with_rule(UpdateRules{}, optimizer, use);
}

[[nodiscard]] inline OptimizerSpec spec_of(Optimizer optimizer) {
  return with_rule(optimizer, []<class Rule>(Rule) {
    return OptimizerSpec{.states = Rule::states, .takes_betas = Rule::takes_betas};
  });
}

/// Whether any optimizer has a state of that name.
template <class... Rules>
[[nodiscard]] constexpr bool is_optimizer_state(RuleList<Rules...>, std::string_view name) {
  const auto is_one = [&](const auto& states) {
    return std::ranges::find(states, name, &OptimizerState::name) != std::ranges::end(states);
  };
  return (is_one(Rules::states) || ...);
}
[[nodiscard]] constexpr bool is_optimizer_state(std::string_view name) {
  return is_optimizer_state(UpdateRules{}, name);
}

/// The most states that an optimizer has.
template <class... Rules>
constexpr std::size_t most_states(RuleList<Rules...>) {
  return std::max({Rules::states.size()...});
}
inline constexpr std::size_t kMostOptimizerStates = most_states(UpdateRules{});

}  // namespace mfsdp
