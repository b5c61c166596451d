#include "gpu_backend/train/gradient_order.hpp"

#include <limits>
#include <map>
#include <utility>

#include "core/plan/instances.hpp"

namespace mfsdp {
namespace {

/// A group, and an index into its flat layout.
using GradientPlace = std::pair<GroupId, std::int64_t>;

/// Other kernels write no gradient yet, or copy one that another kernel wrote.
bool computes_gradient(KernelKind kind) {
  return kind != KernelKind::accumulate && kind != KernelKind::zero_padding &&
         kind != KernelKind::cast && kind != KernelKind::sum_ranks;
}

}  // namespace

std::vector<GradientWriter> gradient_writers(const Program& program) {
  std::map<BufferId, const Buffer*> gradients;
  for (const Buffer& buffer : program.buffers)
    if (buffer.holds && buffer.holds->kind == ContentKind::gradient)
      gradients.emplace(buffer.id, &buffer);

  std::map<GradientPlace, GradientWriter> writers;
  std::int64_t position = 0;
  const Plan& plan = *program.find_plan(PlanRole::train);
  const auto visit = [&](const Op& op) {
    ++position;
    const auto* kernel = std::get_if<Kernel>(&op.body);
    if (kernel == nullptr || !computes_gradient(kernel->kind)) return;
    for (const Operand& operand : kernel->operands) {
      const auto gradient = gradients.find(operand.buffer);
      const bool writes = operand.access == Access::write || operand.access == Access::read_write;
      if (writes && gradient != gradients.end())
        writers[{gradient->second->holds->groups.front().group,
                 operand.offset / size_of(operand.dtype)}] = {.position = position, .op = op.name};
    }
  };
  for (std::size_t s = 0; s < plan.segments.size(); ++s) for_each_op_of_run(plan, s, visit);

  std::vector<GradientWriter> all;
  for (const Group& group : program.groups)
    for (const PlacedParameter& parameter : group.parameters) {
      const auto writer = writers.find({group.id, parameter.offset});
      if (group.requires_grad && writer != writers.end())
        all.push_back(writer->second);
      else
        all.push_back({.position = std::numeric_limits<std::int64_t>::max(), .op = ""});
    }
  return all;
}

}  // namespace mfsdp
