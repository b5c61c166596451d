// From a call to the structs of update.hpp. Errors name the operand and what was expected; what
// lies on the device, as the learning rate, is not looked at.
#pragma once

#include <vector>

#include "core/plan/plan.hpp"
#include "core/runtime/calls/operand_reader.hpp"
#include "core/runtime/calls/update.hpp"

namespace mfsdp::kernels {

/// The group whose slice the call updates. Errors: the op names none, or one without an optimizer.
[[nodiscard]] Result<const Group*> take_updated_group(const KernelCall& call,
                                                      const Program& program);

/// The runs of the call's slice, in order and without gaps. Padding does not decay; nor does it
/// change, as its gradient and its weights are 0. They are the same in every step.
[[nodiscard]] Result<std::vector<DecayRun>> take_decay_runs(const KernelCall& call,
                                                            const Group& group, const Mesh& mesh);

/// The names of the operands of an optimizer's update, or of its kernel `momentum`.
struct UpdateRoles {
  std::string_view gradient = "grad";
  std::string_view weight = "weight";  ///< what is updated, or made
  bool has_main = false;               ///< what is updated is rounded into "weight"
  std::span<const OptimizerState> states = {};
};
[[nodiscard]] inline UpdateRoles update_roles(const KernelCall& call, Optimizer optimizer) {
  if (call.kernel->kind == KernelKind::momentum)
    return {.weight = "direction", .states = spec_of(optimizer).states};
  const bool has_main = OperandReader(call).find("main_weight") != nullptr;
  UpdateRoles roles{.weight = has_main ? "main_weight" : "weight", .has_main = has_main};
  if (orthogonalises(optimizer))
    roles.gradient = "direction";
  else
    roles.states = spec_of(optimizer).states;
  return roles;
}

template <class G, class W, class C, class S = Real<W>>
[[nodiscard]] Result<Update<G, W, C, S>> take_update(const KernelCall& call, Optimizer optimizer) {
  OperandReader in(call);
  const std::int64_t elements = in.attribute("elements");
  const UpdateRoles roles = update_roles(call, optimizer);
  const std::span<const OptimizerState> kept = roles.states;
  const auto* step = in.take<const std::uint8_t>("step_block", {sizeof(StepBlock)});
  const bool scales = roles.gradient == "grad";
  Update<G, W, C, S> k{.elements = elements,
                       .gradients = in.take<const G>(roles.gradient, {elements}),
                       .weights = in.take<W>(roles.weight, {elements}),
                       .compute = roles.has_main ? in.take<C>("weight", {elements}) : nullptr,
                       .step = reinterpret_cast<const StepBlock*>(step),
                       .loss = scales ? in.take<const float>("loss", {4}) : nullptr,
                       .norm = in.take_if_any<const float>("norm", {4})};
  constexpr bool in_bytes = std::is_same_v<S, std::uint8_t>;
  if (in_bytes && elements % kStateBlock != 0)
    in.report_mismatch(roles.gradient, "expected whole blocks of elements that share a scale");
  for (std::size_t i = 0; i < kept.size(); ++i) {
    k.states.at(i) = in.take<S>(kept[i].name, {elements});
    if (in_bytes) k.scales.at(i) = in.take<float>(kept[i].scale, {elements / kStateBlock});
  }
  MFSDP_TRY(in.result());
  return k;
}

/// Calls `run` with the types of gradients, of the weights that are updated, and of the compute
/// weights; without main weights the last two are the same.
[[nodiscard]] Result<void> with_update_types(auto types, const KernelCall& call,
                                             Optimizer optimizer, const auto& run) {
  const UpdateRoles roles = update_roles(call, optimizer);
  return with_type_of(types, call, roles.gradient, [&]<class G>(TypeTag<G> g) {
    return with_type_beside<G>(
        types, call, roles.weight, [&]<class W>(TypeTag<W> w) -> Result<void> {
          if (!roles.has_main) return run(g, w, w);
          return with_type_beside<W>(types, call, "weight",
                                     [&]<class C>(TypeTag<C> c) { return run(g, w, c); });
        });
  });
}

/// Calls `run` with the type that the optimizer's states are kept in: that of the first operand of
/// one, Real<W> where it has none.
template <class W, class Run>
[[nodiscard]] Result<void> with_state_type(const KernelCall& call, Optimizer optimizer,
                                           const Run& run) {
  const std::span<const OptimizerState> states = update_roles(call, optimizer).states;
  const OperandView* first =
      states.empty() ? nullptr : OperandReader(call).find(states.front().name);
  if constexpr (std::is_same_v<Real<W>, float>) {
    if (first != nullptr && first->dtype == DType::bf16) return run(TypeTag<Bf16>{});
    if (first != nullptr && first->dtype == DType::uint8) return run(TypeTag<std::uint8_t>{});
  }
  return run(TypeTag<Real<W>>{});
}

}  // namespace mfsdp::kernels
