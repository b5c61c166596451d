#include "verify/conformance/step_instances.hpp"

#include <algorithm>

#include "verify/findings/place_names.hpp"

namespace mfsdp {

StepInstances::StepInstances(const Program& program, const Plan& plan)
    : program_(program), plan_(plan) {
  const IdIndex<StreamId> streams(program.streams);
  for (const Segment& segment : plan.segments) {
    parts_.push_back({.segment = &segment, .first_op = ops_.size(), .first_instance = size_});
    for (const Op& op : segment.ops) {
      op_index_.insert(op.id, ops_.size());
      PlanOp& entry = ops_.emplace_back();
      entry.op = &op;
      entry.part = parts_.size() - 1;
      if (op.kind() != OpKind::host_wait) entry.stream = streams[op.stream];
    }
    size_ += segment.ops.size() * static_cast<std::size_t>(segment.repeat);
  }
}

std::int64_t StepInstances::repeat(std::size_t op) const {
  return parts_[ops_[op].part].segment->repeat;
}

std::size_t StepInstances::number(std::size_t op, std::int64_t n) const {
  const Part& part = parts_[ops_[op].part];
  return part.first_instance + static_cast<std::size_t>(n) * part.segment->ops.size() +
         (op - part.first_op);
}

StepInstances::Instance StepInstances::at(std::size_t number) const {
  // Empty segments begin where the next one does: the last that begins here has the instance.
  const auto behind = std::ranges::upper_bound(parts_, number, {}, &Part::first_instance);
  const Part& part = *(behind - 1);
  const std::size_t within = number - part.first_instance;
  const PlanOp& entry = ops_[part.first_op + within % part.segment->ops.size()];
  return {.op = entry.op,
          .stream = entry.stream,
          .segment = entry.part,
          .repetition = static_cast<std::int64_t>(within / part.segment->ops.size())};
}

Place StepInstances::place(std::size_t number, std::int64_t step) const {
  const Instance instance = at(number);
  return {.plan = plan_.name,
          .segment = plan_.segments[instance.segment].name,
          .step = step - 1,
          .repetition = instance.repetition,
          .op = instance.op->id,
          .name = op_label(*instance.op),
          .stream = stream_name(program_, instance.stream)};
}

}  // namespace mfsdp
