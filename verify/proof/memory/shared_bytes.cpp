#include "verify/proof/memory/shared_bytes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <span>
#include <utility>
#include <variant>

#include "core/plan/instances.hpp"
#include "verify/proof/order/overlap.hpp"

namespace mfsdp {
namespace {

using Pair = std::pair<const ByteAccess*, const ByteAccess*>;

/// Two operands of an op that share bytes of which it writes some; null where there are none.
Pair sharing(std::span<const ByteAccess> accesses, const Mesh& mesh) {
  for (const ByteAccess& a : accesses)
    for (const ByteAccess& b : accesses) {
      if (&b >= &a) break;
      if (a.buffer != b.buffer || (!a.writes && !b.writes)) continue;
      if (a.operand == nullptr || b.operand == nullptr || a.operand->role == b.operand->role)
        continue;  // what is given twice is another fault, or nothing but cleared
      if (a.begin < b.end && b.begin < a.end && overlap(rows_of(a), rows_of(b), mesh))
        return {&b, &a};
    }
  return {};
}

/// Whether each rank's part of the whole is where the collective has it.
bool is_own_part(const Rows& part, const Rows& whole, const Communicator& communicator,
                 const Mesh& mesh) {
  PerAxis<Int128> steps{};
  Int128 step = part.run;  // neighbours differ on the last axis
  for (const Axis axis : std::views::reverse(communicator.axes)) {
    steps[axis] = step;
    step *= mesh.size(axis);
  }
  const auto fits = [&](const MeshAxis& on) {
    return on.size == 1 || part.steps[on.axis] - whole.steps[on.axis] == steps[on.axis];
  };
  return part.begin == whole.begin && std::ranges::all_of(mesh.dense, fits) &&
         std::ranges::all_of(mesh.experts, fits);
}

bool may_share(const Collective& collective, const Pair& pair, const Communicator& communicator,
               const Mesh& mesh) {
  const bool first_is_input = pair.first->operand == &collective.input;
  const Rows input = rows_of(*(first_is_input ? pair.first : pair.second));
  const Rows output = rows_of(*(first_is_input ? pair.second : pair.first));
  switch (collective.kind) {
    case CollectiveKind::all_gather: return is_own_part(input, output, communicator, mesh);
    case CollectiveKind::reduce_scatter: return is_own_part(output, input, communicator, mesh);
    case CollectiveKind::all_reduce:
      return input.begin == output.begin && input.run == output.run && input.steps == output.steps;
    default: return false;
  }
}

const char* rule_of(const Collective* collective) {
  if (collective == nullptr) return "MF007";
  return collective->reduction == Reduction::none ? "MF204" : "MF505";
}

}  // namespace

void check_shared_bytes(const Program& program, const ProgramIndex& index,
                        const std::vector<AccessTable>& tables, FindingList& findings) {
  const Mesh& mesh = program.config.mesh;
  for (std::size_t p = 0; p < program.plans.size(); ++p) {
    std::size_t number = 0;
    for (const Op& op : ops_of(program.plans[p])) {
      const Pair pair = sharing(tables[p].of(number++), mesh);
      if (pair.first == nullptr) continue;
      const auto* collective = std::get_if<Collective>(&op.body);
      if (collective != nullptr &&
          may_share(*collective, pair,
                    program.communicators[index.communicators[collective->communicator]], mesh))
        continue;
      const char* rule = rule_of(collective);
      if (!findings.wants(rule)) continue;
      const Buffer& buffer = program.buffers[pair.first->buffer];
      findings.add(
          {.rule = rule,
           .message = fmt::format(
               "op {} ({}) of plan '{}' writes bytes of buffer '{}' that its operands '{}' and "
               "'{}' share{}",
               op.id.value, op.name, program.plans[p].name, buffer.name, pair.first->operand->role,
               pair.second->operand->role,
               collective == nullptr
                   ? ""
                   : "; expected the rank's own shard in place, or no shared bytes"),
           .buffer = buffer.id});
    }
  }
}

}  // namespace mfsdp
