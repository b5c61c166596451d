// Parts of a pipeline's plan by their names, for tests that change it.
#pragma once

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/plan/instances.hpp"
#include "core/plan/job.hpp"

namespace mfsdp::test {

inline Plan& train_plan(Job& job, std::size_t stage) { return job.programs[stage].plans[0]; }

inline Segment& segment(Job& job, std::size_t stage, const std::string& name) {
  for (Segment& found : train_plan(job, stage).segments)
    if (found.name == name) return found;
  throw std::logic_error("no segment " + name);
}

/// The ops of a pass, or of a segment's own.
inline std::vector<Op>& ops(Job& job, std::size_t stage, const std::string& name) {
  Plan& plan = train_plan(job, stage);
  for (std::size_t list = count_op_lists(plan); list-- > 0;)
    if (list_name(plan, list) == name) return op_list(plan, list);
  throw std::logic_error("no ops of " + name);
}

/// The op with that name, and a kind where several have it.
inline std::vector<Op>::iterator find_op(std::vector<Op>& in, const std::string& name,
                                         std::optional<OpKind> kind = {}) {
  const auto found = std::ranges::find_if(
      in, [&](const Op& op) { return op.name == name && (!kind || op.kind() == *kind); });
  if (found == in.end()) throw std::logic_error("no op " + name);
  return found;
}

inline Collective& transfer(Job& job, std::size_t stage, const std::string& in,
                            const std::string& name) {
  return std::get<Collective>(find_op(ops(job, stage, in), name)->body);
}

inline Kernel& kernel(Job& job, std::size_t stage, const std::string& in, const std::string& name) {
  return std::get<Kernel>(find_op(ops(job, stage, in), name, OpKind::kernel)->body);
}

/// The operand of that role.
inline Operand& operand(Kernel& of, const std::string& role) {
  const auto found = std::ranges::find(of.operands, role, &Operand::role);
  if (found == of.operands.end()) throw std::logic_error("no operand " + role);
  return *found;
}

inline void drop(Job& job, std::size_t stage, const std::string& in, const std::string& name,
                 std::optional<OpKind> kind = {}) {
  std::vector<Op>& from = ops(job, stage, in);
  from.erase(find_op(from, name, kind));
}

/// Has two ops of a list change places.
inline void exchange(Job& job, std::size_t stage, const std::string& in, const std::string& name,
                     const std::string& other) {
  std::vector<Op>& list = ops(job, stage, in);
  std::iter_swap(find_op(list, name), find_op(list, other));
}

inline Buffer& buffer(Job& job, std::size_t stage, const std::string& name) {
  const auto found = std::ranges::find(job.programs[stage].buffers, name, &Buffer::name);
  if (found == job.programs[stage].buffers.end()) throw std::logic_error("no buffer " + name);
  return *found;
}

/// The call of a pass in a segment.
inline PassCall& call(Job& job, std::size_t stage, const std::string& in, const std::string& pass) {
  const auto found = std::ranges::find(train_plan(job, stage).passes, pass, &Pass::name);
  for (PassCall& of : segment(job, stage, in).calls)
    if (found != train_plan(job, stage).passes.end() && of.pass == found->id) return of;
  throw std::logic_error("no call of " + pass);
}

}  // namespace mfsdp::test
