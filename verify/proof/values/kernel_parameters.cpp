#include "verify/proof/values/kernel_parameters.hpp"

#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp {
namespace {

bool holds_weights(const Buffer& buffer) {
  return buffer.holds && buffer.holds->kind == ContentKind::parameter;
}

}  // namespace

KernelParameters parameters_of(const Op& op, const Kernel& kernel, const Program& program,
                               const ProgramIndex& index, const Layouts& layouts) {
  const bool casts = casts_to_fp8(kernel.kind);
  KernelParameters found;
  for (const Operand& operand : kernel.operands) {
    const bool is_made = !casts && operand.role == "weight_grad";
    if (!is_made && operand.role != (casts ? "input" : "weight")) continue;
    // The weights of FP8 GEMMs are casts, which lie among activations.
    if (is_cast_gemm(kernel.kind) && !is_made) continue;
    const Buffer& buffer = program.buffers[index.buffers[operand.buffer]];
    if (casts && !holds_weights(buffer)) continue;
    // Sums of chunks lie in a workspace.
    if (is_made && !buffer.holds && buffer.category == Category::workspace) continue;
    const auto wanted = is_made ? ContentKind::gradient : ContentKind::parameter;
    found.homeless = found.homeless || !buffer.holds || buffer.holds->kind != wanted;
    found.astray = found.astray || layouts.holds(operand) == Holds::other;
    if (found.homeless || found.astray) continue;
    const auto located = layouts.locate(operand);
    const GroupLayout& group = layouts.groups[located->group];
    const auto atoms = layouts.atoms_of(located->group, located->region);
    if (!located->exact || !atoms || atoms->last != atoms->first + 1 ||
        group.atoms[atoms->first].parameter == nullptr ||
        (op.unit && *op.unit != group.group->unit)) {
      found.astray = true;
      continue;
    }
    if (found.count == 0) found.group = group.group;
    if (found.count == 0) found.parameter = group.atoms[atoms->first].parameter;
    if (found.count < found.roles.size())
      found.roles[found.count] = group.atoms[atoms->first].parameter->role;
    ++found.count;
    found.unit = static_cast<std::uint32_t>(program.units[index.units[group.group->unit]].position);
  }
  return found;
}

}  // namespace mfsdp
