// AdamW and SGD on one rank's slice of a group.
#include <algorithm>
#include <cstring>
#include <vector>

#include "core/shard/groups.hpp"
#include "verify/cpu/kernels/bindings.hpp"
#include "verify/cpu/kernels/operand_reader.hpp"
#include "verify/cpu/kernels/optimizer.hpp"
#include "verify/cpu/kernels/sums.hpp"

namespace mfsdp::kernels {
namespace {

/// The group that an update's gradient belongs to, or null. The plan's op names no group: its unit
/// is that of the gradient's buffer, and a unit has one group with gradients.
const Group* group_of(const Program& program, const Operand& gradient) {
  const auto buffer = std::ranges::find(program.buffers, gradient.buffer, &Buffer::id);
  if (buffer == program.buffers.end() || !buffer->unit) return nullptr;
  const auto group = std::ranges::find_if(program.groups, [&](const Group& candidate) {
    return candidate.requires_grad && candidate.unit == *buffer->unit;
  });
  return group == program.groups.end() ? nullptr : &*group;
}

/// Calls update(first, count, decays) for the runs of a slice that decay or do not. Padding does
/// not; nor does it change, as its gradient and its weights are 0.
template <class Update>
void for_each_run(const Group& group, std::int64_t begin, std::int64_t elements,
                  const Update& update) {
  std::int64_t at = begin;
  const std::int64_t end = begin + elements;
  const auto go_to = [&](std::int64_t next, bool decays) {
    next = std::min(next, end);
    if (next > at) {
      update(at - begin, next - at, decays);
      at = next;
    }
  };
  std::vector<const PlacedParameter*> parameters;
  for (const PlacedParameter& parameter : group.parameters) parameters.push_back(&parameter);
  std::ranges::sort(parameters, {}, &PlacedParameter::offset);
  for (const PlacedParameter* parameter : parameters) {
    go_to(parameter->offset, false);
    go_to(parameter->offset + parameter->elements(), parameter->decay);
  }
  go_to(end, false);
}

struct Update {
  const Group* group = nullptr;
  std::int64_t begin = 0;  ///< of the slice in the group
  std::int64_t elements = 0;
  StepBlock step = {};
  float scale = 1;     ///< 1/T times the clip factor
  bool skips = false;  ///< the norm is infinite or NaN
};

template <class G, class W>
Result<void> update_slice(OperandReader& in, const KernelCall& call,
                          const OptimizerSettings& optimizer, const Update& u, W* weights) {
  const auto* gradients = in.take<const G>("grad", {u.elements});
  const auto decay = static_cast<Real<W>>(optimizer.weight_decay);
  if (call.kernel->kind == KernelKind::sgd) {
    MFSDP_TRY(in.result());
    for_each_run(*u.group, u.begin, u.elements, [&](auto first, auto count, bool decays) {
      sgd<G, W>(u.step.learning_rate, decay, u.scale, decays, count, gradients + first,
                weights + first);
    });
    return {};
  }
  auto* exp_avg = in.take<Real<W>>("exp_avg", {u.elements});
  auto* exp_avg_sq = in.take<Real<W>>("exp_avg_sq", {u.elements});
  MFSDP_TRY(in.result());
  const AdamW<Real<W>> adam{.learning_rate = u.step.learning_rate,
                            .weight_decay = decay,
                            .beta1 = static_cast<Real<W>>(optimizer.beta1),
                            .beta2 = static_cast<Real<W>>(optimizer.beta2),
                            .epsilon = static_cast<Real<W>>(optimizer.epsilon),
                            .bias_correction1 = u.step.bias_correction1,
                            .bias_correction2 = u.step.bias_correction2,
                            .scale = u.scale};
  for_each_run(*u.group, u.begin, u.elements, [&](auto first, auto count, bool decays) {
    adamw(adam, decays, count, gradients + first, exp_avg + first, exp_avg_sq + first,
          weights + first);
  });
  return {};
}

/// The step's block, 1/T and clip factor, and whose slice it is.
Result<Update> take_update(OperandReader& in, const KernelCall& call, const Program& program) {
  Update u{.elements = in.attribute("elements")};
  const auto* block = in.take<const std::uint8_t>("step_block", {sizeof(StepBlock)});
  const auto* loss = in.take<const float>("loss", {4});
  const auto* norm = in.take_if_any<const float>("norm", {4});
  if (in.find("grad") == nullptr) in.complain("grad", "expected this operand");
  MFSDP_TRY(in.result());
  std::memcpy(&u.step, block, sizeof u.step);
  u.scale = read_report<LossReport>(loss).inverse_tokens;
  if (norm != nullptr) {
    const auto report = read_report<NormReport>(norm);
    u.scale *= report.clip_factor;
    u.skips = report.non_finite != 0;
  }
  const auto grad = static_cast<std::size_t>(in.find("grad") - call.operands.data());
  u.group = group_of(program, call.kernel->operands[grad]);
  if (u.group == nullptr) {
    in.complain("grad", "expected a buffer of a unit with gradients");
  } else {
    u.begin = resident_intervals(*u.group, program.config, call.rank).update.begin;
    if (u.begin + u.elements > u.group->elements)
      in.complain("grad", fmt::format("expected a slice of the group's {} elements, got [{}, {})",
                                      u.group->elements, u.begin, u.begin + u.elements));
  }
  MFSDP_TRY(in.result());
  return u;
}

}  // namespace

/// The main weights are updated, then rounded into the compute weights. Without main weights the
/// compute weights are the ones that are updated. Gradients without a finite norm change nothing.
Result<void> run_update(const KernelCall& call, const KernelSettings& settings) {
  OperandReader in(call);
  MFSDP_LET(u, take_update(in, call, *settings.program));
  if (u.skips) return {};
  const bool has_main = in.find("main_weight") != nullptr;
  const std::string_view updated = has_main ? "main_weight" : "weight";
  return with_type_of(call, "grad", [&]<class G>(TypeTag<G>) {
    return with_type_beside<G>(call, updated, [&]<class W>(TypeTag<W>) -> Result<void> {
      auto* weights = in.take<W>(updated, {u.elements});
      if (!has_main) return update_slice<G>(in, call, settings.optimizer, u, weights);
      return with_type_beside<W>(call, "weight", [&]<class C>(TypeTag<C>) -> Result<void> {
        auto* compute = in.take<C>("weight", {u.elements});
        MFSDP_TRY((update_slice<G>(in, call, settings.optimizer, u, weights)));
        accumulate(u.elements, weights, false, compute);
        return {};
      });
    });
  });
}

}  // namespace mfsdp::kernels
