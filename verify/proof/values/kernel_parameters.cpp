#include "verify/proof/values/kernel_parameters.hpp"

#include "core/plan/instances.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp {
namespace {

bool holds(const Buffer& buffer, ContentKind kind) {
  return buffer.holds && buffer.holds->kind == kind;
}

}  // namespace

KernelParameters parameters_of(const Op& op, const Kernel& kernel, const Program& program,
                               const ProgramIndex& index, const Layouts& layouts) {
  const bool casts = casts_to_fp8(kernel.kind);
  KernelParameters found;
  for (const Operand& operand : kernel.operands) {
    const bool is_made = !casts && operand.role == "weight_grad";
    const bool transposes = kernel.kind == KernelKind::transpose;
    if (!is_made && operand.role != (casts || transposes ? "input" : "weight")) continue;
    const Buffer& buffer = program.buffers[index.buffers[operand.buffer]];
    // The weights of FP8 GEMMs are casts: gathered ones, or such as lie among activations.
    // Those with scales of blocks are never gathered.
    if (kernel.kind == KernelKind::gemm_blocks && !is_made) continue;
    const bool reads_casts = (kernel.kind == KernelKind::gemm_fp8 && !is_made) || transposes;
    if (reads_casts && !holds(buffer, ContentKind::cast_parameter)) continue;
    if (casts && !holds(buffer, ContentKind::parameter)) continue;
    // Sums of chunks lie in a workspace.
    if (is_made && !buffer.holds && buffer.category == Category::workspace) continue;
    const auto wanted = is_made       ? ContentKind::gradient
                        : reads_casts ? ContentKind::cast_parameter
                                      : ContentKind::parameter;
    found.homeless = found.homeless || !buffer.holds || buffer.holds->kind != wanted;
    found.astray = found.astray || layouts.holds(operand) == Holds::other;
    if (found.homeless || found.astray) continue;
    const auto located = layouts.locate(operand);
    const GroupLayout& group = layouts.groups[located->group];
    const auto atoms = layouts.atoms_of(located->group, located->region);
    const PlacedParameter* parameter = nullptr;
    if (casts && group.group->fp8) {  // of one parameter, with its padding
      found.shard = group.level_of(located->region);
      if (found.shard) parameter = &group.group->parameters.front();
    } else if (atoms && atoms->last == atoms->first + 1) {
      parameter = group.atoms[atoms->first].parameter;
    }
    if (!located->exact || parameter == nullptr || (op.unit && *op.unit != group.group->unit)) {
      found.astray = true;
      continue;
    }
    if (found.count == 0) found.group = group.group;
    if (found.count == 0) found.parameter = parameter;
    if (found.count == 1) found.second_group = group.group;
    if (found.count < found.roles.size()) found.roles[found.count] = parameter->role;
    ++found.count;
    found.unit = static_cast<std::uint32_t>(program.units[index.units[group.group->unit]].position);
  }
  return found;
}

std::map<BufferId, ParameterRole> cast_weights_of(const Plan& plan, const Program& program,
                                                  const ProgramIndex& index,
                                                  const Layouts& layouts) {
  std::map<BufferId, ParameterRole> weights;
  for (const Op& op : ops_of(plan)) {
    if (const auto* copy = std::get_if<Copy>(&op.body))
      if (const auto of = weights.find(copy->input.buffer); of != weights.end())
        weights[copy->output.buffer] = of->second;
    const auto* kernel = std::get_if<Kernel>(&op.body);
    const bool casts =
        kernel != nullptr && casts_to_fp8(kernel->kind) && kernel->kind != KernelKind::amax;
    if (kernel == nullptr || (!casts && kernel->kind != KernelKind::transpose)) continue;
    const KernelParameters cast = parameters_of(op, *kernel, program, index, layouts);
    if (cast.count != 1 || cast.astray) continue;
    for (const Operand& operand : kernel->operands)
      if (operand.access == Access::write) weights[operand.buffer] = cast.roles[0];
  }
  return weights;
}

bool is_for_gathers(const Kernel& kernel, const Group& group, const Program& program,
                    const ProgramIndex& index, const Layouts& layouts) {
  if (kernel.kind == KernelKind::amax) return true;
  const Attribute* through = kernel.find_attribute("through_bf16");
  const bool is_rounded = group.dtype == program.config.param_dtype
                              ? through == nullptr
                              : through != nullptr && through->value == Rational{.num = 1};
  const Operand* output = operand_of(kernel, "output");
  if (output == nullptr || operand_of(kernel, "output_t") != nullptr || !is_rounded ||
      !layouts.homes[index.buffers[output->buffer]].casts)
    return false;
  const auto from = layouts.locate(*operand_of(kernel, "input"));
  const auto to = layouts.locate(*output);
  return to->exact && to->group == from->group && to->region == from->region;
}

}  // namespace mfsdp
