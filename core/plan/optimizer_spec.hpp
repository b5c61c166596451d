// Optimizers as data: the states of each and its arithmetic, for planner, backends and saves.
// docs/reference/optimizers.md has the bytes of each.
//
// To add one: its name in Optimizer, its rule here and in UpdateRules, and its states in
// verify/checker/places.cpp, which shares no code. The kernel `update` of a group runs the rule of
// the group's optimizer on every element of a rank's slice, on the CPU and on GPUs.
// tests/gpu_backend/train and tests/verify/cpu/oracle compare rules with separate references.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/base/vocabulary.hpp"

#if defined(__CUDACC__)
#define MFSDP_ON_DEVICE_TOO __host__ __device__
#else
#define MFSDP_ON_DEVICE_TOO
#endif

namespace mfsdp {

enum class Optimizer { adamw, lion, sgd, muon };

constexpr auto value_names(Optimizer) { return name_array("adamw", "lion", "sgd", "muon"); }

/// How the values of states are stored between steps. Arithmetic always uses PlanConfig's
/// statistic_dtype.
enum class StateDtype {
  full,       ///< as computed: fp32, or fp64 with fp64 weights
  bf16,       ///< rounded to nearest even
  blockwise8  ///< one byte each, and an fp32 scale per kStateBlock elements: state_codes.hpp
};

constexpr auto value_names(StateDtype) { return name_array("full", "bf16", "blockwise8"); }

/// Elements that share a scale. Blocks begin at a parameter's first element and are never split
/// between ranks: layouts align parameters and shards to them (core/shard/groups.cpp). So neither
/// strategy nor mesh changes which elements share a scale.
inline constexpr std::int64_t kStateBlock = 256;

/// A state: one value for each updated element; 0 before the first step.
struct OptimizerState {
  std::string_view name;         ///< of its buffers, and of the update's operand
  std::string_view saved;        ///< in saves, older ones included
  std::string_view scale;        ///< with blockwise8: the name of its scales' buffers and operand
  std::string_view saved_scale;  ///< and theirs in saves
  bool is_signed = true;         ///< it may be below 0
};

inline constexpr OptimizerState kFirstMoment{.name = "exp_avg",
                                             .saved = "first_moment",
                                             .scale = "exp_avg_scale",
                                             .saved_scale = "first_moment_scale"};
inline constexpr OptimizerState kSecondMoment{.name = "exp_avg_sq",
                                              .saved = "second_moment",
                                              .scale = "exp_avg_sq_scale",
                                              .saved_scale = "second_moment_scale",
                                              .is_signed = false};

inline constexpr OptimizerState kMomentum{.name = "momentum_buffer",
                                          .saved = "momentum",
                                          .scale = "momentum_buffer_scale",
                                          .saved_scale = "momentum_scale"};

/// A buffer of an optimizer's state for a group.
struct KeptState {
  std::string_view name;
  std::string_view saved;
  DType dtype = DType::fp32;
  std::int64_t block = 1;  ///< elements that share one of its values

  /// The number of its values for `elements`, which begin at a block.
  [[nodiscard]] std::int64_t values(std::int64_t elements) const {
    return ceil_div(elements, block);
  }
};

/// The constants of an update for a slice whose elements all decay or all do not.
template <class R>
struct UpdateStep {
  R learning_rate = 0;
  R keep = 1;  ///< factor of a weight by decay: 1 - learning rate * weight decay, or 1
  R beta1 = 0;
  R beta2 = 0;
  R epsilon = 0;
  R momentum = 0;         ///< Muon's
  R corrected_rate = 0;   ///< learning rate / (1 - beta1^t)
  R correction_root = 1;  ///< root of 1 - beta2^t
};

/// Adam with decoupled weight decay (Loshchilov and Hutter, arXiv 1711.05101), with the order of
/// operations of PyTorch's AdamW.
struct AdamwRule {
  static constexpr Optimizer optimizer = Optimizer::adamw;
  static constexpr std::array<OptimizerState, 2> states{kFirstMoment, kSecondMoment};
  static constexpr bool takes_betas = true;
  static constexpr bool takes_epsilon = true;
  static constexpr double beta2 = 0.95;

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

/// Lion: the sign of an interpolation of momentum and gradient (Chen et al., arXiv 2302.06675,
/// algorithm 2), with the paper's betas and decoupled decay. A step moves every weight by the
/// learning rate, so the paper uses a rate 3 to 10 times smaller than AdamW's and a decay larger by
/// that factor.
struct LionRule {
  static constexpr Optimizer optimizer = Optimizer::lion;
  static constexpr std::array<OptimizerState, 1> states{kFirstMoment};
  static constexpr bool takes_betas = true;
  static constexpr bool takes_epsilon = false;
  static constexpr double beta2 = 0.99;

  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R weight, R gradient, R* state, const UpdateStep<R>& s) {
    const R direction = s.beta1 * state[0] + (1 - s.beta1) * gradient;
    state[0] = s.beta2 * state[0] + (1 - s.beta2) * gradient;
    R sign = 0;
    if (direction > 0) sign = 1;
    if (direction < 0) sign = -1;
    return weight * s.keep - s.learning_rate * sign;
  }
};

/// Plain gradient descent, with decoupled decay.
struct SgdRule {
  static constexpr Optimizer optimizer = Optimizer::sgd;
  static constexpr std::array<OptimizerState, 0> states{};
  static constexpr bool takes_betas = false;
  static constexpr bool takes_epsilon = false;
  static constexpr double beta2 = 0.95;  // unused; in saves of older runs

  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R weight, R gradient, R* /*state*/, const UpdateStep<R>& s) {
    return weight * s.keep - s.learning_rate * gradient;
  }
};

/// Muon (Keller Jordan, kellerjordan.github.io/posts/muon): a matrix moves along its orthogonalised
/// momentum. This is the element-wise part before the orthogonalisation, the kernel `momentum`:
/// Nesterov momentum in the form of PyTorch's torch.optim.Muon.
struct MuonMomentumRule {
  static constexpr Optimizer optimizer = Optimizer::muon;
  static constexpr std::array<OptimizerState, 1> states{kMomentum};
  // Of AdamW, which updates all parameters other than matrices of blocks.
  static constexpr bool takes_betas = true;
  static constexpr bool takes_epsilon = true;
  static constexpr double beta2 = 0.95;

  /// The direction, before it is orthogonalised (core/plan/newton_schulz.hpp).
  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R /*direction*/, R gradient, R* state,
                                       const UpdateStep<R>& s) {
    state[0] = s.momentum * state[0] + (1 - s.momentum) * gradient;
    return s.momentum * state[0] + (1 - s.momentum) * gradient;
  }
};

/// The element-wise part after the orthogonalisation, the kernel `update`: the step along the
/// direction, which is scaled already.
struct MuonRule {
  static constexpr Optimizer optimizer = Optimizer::muon;
  static constexpr std::array<OptimizerState, 0> states{};

  template <class R>
  MFSDP_ON_DEVICE_TOO static R updated(R weight, R direction, R* /*state*/,
                                       const UpdateStep<R>& s) {
    return weight * s.keep - s.learning_rate * direction;
  }
};

template <class... Rules>
struct RuleList {};
/// The rules of the kernel `update`, and those that change states, which differ for Muon.
using UpdateRules = RuleList<AdamwRule, LionRule, SgdRule, MuonRule>;
using StateRules = RuleList<AdamwRule, LionRule, SgdRule, MuonMomentumRule>;

/// Whether an optimizer's step needs whole matrices: directions are orthogonalised between the
/// kernels `momentum` and `update`.
[[nodiscard]] constexpr bool orthogonalises(Optimizer optimizer) {
  return optimizer == Optimizer::muon;
}

/// A rule without its arithmetic.
struct OptimizerSpec {
  std::span<const OptimizerState> states;
  bool takes_betas = false;    ///< it uses beta1 and beta2
  bool takes_epsilon = false;  ///< it uses epsilon
  double beta2 = 0;            ///< default
};

/// Calls `use` with the rule of an optimizer and returns what that returns.
template <class Use, class First, class... Others>
decltype(auto) with_rule(RuleList<First, Others...>, Optimizer optimizer, const Use& use) {
  if constexpr (sizeof...(Others) > 0)
    if (First::optimizer != optimizer) return with_rule(RuleList<Others...>{}, optimizer, use);
  return use(First{});
}
decltype(auto) with_rule(Optimizer optimizer, const auto& use) {
  return with_rule(UpdateRules{}, optimizer, use);
}

[[nodiscard]] inline OptimizerSpec spec_of(Optimizer optimizer) {
  return with_rule(StateRules{}, optimizer, []<class Rule>(Rule) {
    return OptimizerSpec{.states = Rule::states,
                         .takes_betas = Rule::takes_betas,
                         .takes_epsilon = Rule::takes_epsilon,
                         .beta2 = Rule::beta2};
  });
}

/// The state buffers of an optimizer for a group, in the order of its states; with blockwise8 each
/// is followed by its scales. `full`: the dtype in which states are computed.
[[nodiscard]] inline std::vector<KeptState> kept_states(Optimizer optimizer, StateDtype kept,
                                                        DType full) {
  std::vector<KeptState> all;
  const bool in_bytes = kept == StateDtype::blockwise8;
  const DType dtype = in_bytes ? DType::uint8 : kept == StateDtype::bf16 ? DType::bf16 : full;
  for (const OptimizerState& state : spec_of(optimizer).states) {
    all.push_back({.name = state.name, .saved = state.saved, .dtype = dtype, .block = 1});
    if (in_bytes)
      all.push_back({.name = state.scale,
                     .saved = state.saved_scale,
                     .dtype = DType::fp32,
                     .block = kStateBlock});
  }
  return all;
}

/// Whether any optimizer has a state of that name, or scales of one.
template <class... Rules>
[[nodiscard]] constexpr bool is_optimizer_state(RuleList<Rules...>, std::string_view name) {
  const auto is_one = [&](const auto& states) {
    return std::ranges::any_of(states, [&](const OptimizerState& state) {
      return state.name == name || state.scale == name;
    });
  };
  return (is_one(Rules::states) || ...);
}
[[nodiscard]] constexpr bool is_optimizer_state(std::string_view name) {
  return is_optimizer_state(StateRules{}, name);
}

/// Elements per value of the state of that name: kStateBlock for scales, 1 for all others.
template <class... Rules>
[[nodiscard]] constexpr std::int64_t block_of_state(RuleList<Rules...>, std::string_view name) {
  const auto has_scale = [&](const auto& states) {
    return std::ranges::find(states, name, &OptimizerState::scale) != std::ranges::end(states);
  };
  return (has_scale(Rules::states) || ...) ? kStateBlock : 1;
}
[[nodiscard]] constexpr std::int64_t block_of_state(std::string_view name) {
  return name.empty() ? 1 : block_of_state(StateRules{}, name);
}

/// The most states that an optimizer has.
template <class... Rules>
constexpr std::size_t most_states(RuleList<Rules...>) {
  return std::max({Rules::states.size()...});
}
inline constexpr std::size_t kMostOptimizerStates = most_states(StateRules{});

}  // namespace mfsdp
