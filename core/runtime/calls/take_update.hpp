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

template <class G, class W, class C, class S = Real<W>>
[[nodiscard]] Result<Update<G, W, C, S>> take_update(const KernelCall& call, Optimizer optimizer) {
  OperandReader in(call);
  const std::int64_t elements = in.attribute("elements");
  const bool has_main = in.find("main_weight") != nullptr;
  const std::span<const OptimizerState> kept = spec_of(optimizer).states;
  const auto* step = in.take<const std::uint8_t>("step_block", {sizeof(StepBlock)});
  Update<G, W, C, S> k{.elements = elements,
                       .gradients = in.take<const G>("grad", {elements}),
                       .weights = in.take<W>(has_main ? "main_weight" : "weight", {elements}),
                       .compute = has_main ? in.take<C>("weight", {elements}) : nullptr,
                       .step = reinterpret_cast<const StepBlock*>(step),
                       .loss = in.take<const float>("loss", {4}),
                       .norm = in.take_if_any<const float>("norm", {4})};
  constexpr bool in_bytes = std::is_same_v<S, std::uint8_t>;
  if (in_bytes && elements % kStateBlock != 0)
    in.complain("grad", "expected whole blocks of elements that share a scale");
  for (std::size_t i = 0; i < kept.size(); ++i) {
    k.states.at(i) = in.take<S>(kept[i].name, {elements});
    if (in_bytes) k.scales.at(i) = in.take<float>(kept[i].scale, {elements / kStateBlock});
  }
  MFSDP_TRY(in.result());
  return k;
}

/// Calls `run` with the types of gradients, of the weights that are updated, and of the compute
/// weights; without main weights the last two are the same.
template <class Types, class Run>
[[nodiscard]] Result<void> with_update_types(Types types, const KernelCall& call, const Run& run) {
  const bool has_main = OperandReader(call).find("main_weight") != nullptr;
  return with_type_of(types, call, "grad", [&]<class G>(TypeTag<G> g) {
    return with_type_beside<G>(types, call, has_main ? "main_weight" : "weight",
                               [&]<class W>(TypeTag<W> w) -> Result<void> {
                                 if (!has_main) return run(g, w, w);
                                 return with_type_beside<W>(
                                     types, call, "weight",
                                     [&]<class C>(TypeTag<C> c) { return run(g, w, c); });
                               });
  });
}

/// Calls `run` with the type that the optimizer's states are kept in: that of the first operand of
/// one, Real<W> where it has none.
template <class W, class Run>
[[nodiscard]] Result<void> with_state_type(const KernelCall& call, Optimizer optimizer,
                                           const Run& run) {
  const std::span<const OptimizerState> states = spec_of(optimizer).states;
  const OperandView* first =
      states.empty() ? nullptr : OperandReader(call).find(states.front().name);
  if constexpr (std::is_same_v<Real<W>, float>) {
    if (first != nullptr && first->dtype == DType::bf16) return run(TypeTag<Bf16>{});
    if (first != nullptr && first->dtype == DType::uint8) return run(TypeTag<std::uint8_t>{});
  }
  return run(TypeTag<Real<W>>{});
}

}  // namespace mfsdp::kernels
