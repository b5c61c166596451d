#include <fmt/format.h>

#include <algorithm>

#include "core/base/text.hpp"
#include "core/plan/instances.hpp"
#include "verify/mutation/mutant.hpp"
#include "verify/mutation/operands.hpp"

namespace mfsdp {
namespace {

using enum MutantKind;

template <class T>
std::string name_at(const std::vector<T>& list, std::uint32_t index, const auto& name) {
  return index < list.size() ? name(list[index]) : fmt::format("{}", index);
}

/// A text for the part of the op that a mutant changes, if it has one.
std::string part_of(const Op& op, const Mutant& mutant) {
  const auto* kernel = std::get_if<Kernel>(&op.body);
  if (mutant.kind == change_attribute && kernel != nullptr)
    return ", attribute " +
           name_at(kernel->attributes, mutant.part, [](const auto& a) { return a.name; });
  switch (mutant.kind) {
    case change_shape:
    case shift_rank:
    case shift_operand:
    case change_scale:
    case change_dtype: break;
    case change_count: return mutant.part == 0 ? ", alone" : ", with its operands";
    case reorder_collectives:
      return mutant.part == 0 ? ", with the next" : ", with the next of its communicator";
    default: return "";
  }
  const Operand* operand = operand_at(op, mutant.part);
  if (operand == nullptr)
    return mutant.part == kCollectiveAlone ? ", alone" : ", with its operands";
  const bool has_dim = mutant.kind == change_shape || mutant.kind == shift_rank;
  return fmt::format(", operand {} {}{}", mutant.part, operand->role,
                     has_dim ? fmt::format("[{}]", mutant.dim) : "");
}

std::string amount_of(const Mutant& mutant) {
  switch (mutant.kind) {
    case change_dtype:
    case change_buffer_dtype:
    case change_group_dtype: return fmt::format(" {}", to_string(static_cast<DType>(mutant.by)));
    default: return mutant.by == 0 ? "" : fmt::format(" {:+}", mutant.by);
  }
}

std::string place_of(const Program& program, const Mutant& mutant) {
  switch (mutant.kind) {
    case shift_buffer:
    case shift_group:
    case change_contents:
    case change_buffer_dtype:
      return "buffer " +
             name_at(program.buffers, mutant.index, [](const auto& b) { return b.name; }) +
             (mutant.kind == shift_group || mutant.kind == change_contents
                  ? fmt::format(", part {}", mutant.part)
                  : "");
    case change_placement: return fmt::format("group {}, part {}", mutant.index, mutant.part);
    case change_group_dtype: return fmt::format("group {}", mutant.index);
    case change_instances:
      return mutant.part == 0 ? "buffer " + name_at(program.buffers, mutant.index,
                                                    [](const auto& b) { return b.name; })
                              : "event " + name_at(program.events, mutant.index,
                                                   [](const auto& e) { return e.name; });
    case shift_parameter: return fmt::format("group {}, parameter {}", mutant.index, mutant.part);
    default: break;
  }
  if (mutant.plan >= program.plans.size()) return "no such plan";
  const Plan& plan = program.plans[mutant.plan];
  if (mutant.list >= count_op_lists(plan)) return "no such segment";
  const std::string where = plan.name + "/" + list_name(plan, mutant.list);
  if (mutant.kind == change_repeat || mutant.kind == change_microbatches) return where;
  if (mutant.kind == change_call_lag) return fmt::format("{}, call {}", where, mutant.part);
  const std::vector<Op>& ops = op_list(plan, mutant.list);
  if (mutant.index >= ops.size()) return "no such op";
  const Op& op = ops[mutant.index];
  const auto stream = std::ranges::find(program.streams, op.stream, &Stream::id);
  return fmt::format("{} op {} {} {} ({}){}", where, op.id.value, to_string(op.kind()), op.name,
                     stream == program.streams.end() ? "no stream" : to_string(stream->role),
                     part_of(op, mutant));
}

}  // namespace

std::string describe(const Program& program, const Mutant& mutant) {
  return printable(fmt::format("{}{}: {}", to_string(mutant.kind), amount_of(mutant),
                               place_of(program, mutant)));
}

}  // namespace mfsdp
