// Random edits of plans, of which most make something else of them.
#pragma once

#include <rapidcheck.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/plan/plan.hpp"
#include "verify/mutation/operands.hpp"

namespace mfsdp::test {

template <class T>
T& any_of(std::vector<T>& list) {
  return list[*rc::gen::inRange<std::size_t>(0, list.size())];
}

inline std::vector<Operand*> operands_of(Op& op) {
  std::vector<Operand*> list;
  for_each_operand(op, [&](Operand& operand) { list.push_back(&operand); });
  return list;
}

inline void edit_operand(const Program& program, Op& op) {
  std::vector<Operand*> operands = operands_of(op);
  if (operands.empty()) return;
  Operand& operand = *any_of(operands);
  switch (*rc::gen::inRange(0, 3)) {
    case 0: operand.offset += 128 * *rc::gen::inRange(1, 3); break;
    case 1: operand.rank_strides.clear(); break;
    default:  // another buffer like it
      for (std::size_t i = 0, b = *rc::gen::inRange<std::size_t>(0, program.buffers.size());
           i < program.buffers.size(); ++i, b = (b + 1) % program.buffers.size())
        if (program.buffers[b].category == program.buffers[operand.buffer.value].category &&
            program.buffers[b].size == program.buffers[operand.buffer.value].size) {
          operand.buffer = program.buffers[b].id;
          return;
        }
  }
}

inline void edit_body(const Program& program, Op& op) {
  if (auto* kernel = std::get_if<Kernel>(&op.body); kernel && *rc::gen::inRange(0, 3) == 0) {
    for (Attribute& attribute : kernel->attributes)
      if (attribute.name == "beta" || attribute.name == "kind") attribute.value.num ^= 1;
  } else if (auto* collective = std::get_if<Collective>(&op.body);
             collective && *rc::gen::inRange(0, 2) == 0) {
    const Communicator& other =
        program.communicators[*rc::gen::inRange<std::size_t>(0, program.communicators.size())];
    collective->communicator = other.id;
    if (*rc::gen::arbitrary<bool>()) collective->count /= 2;
  } else {
    edit_operand(program, op);
  }
}

/// All that a plan does in one of its buffers it does in another, which is as large.
inline void redirect(const Program& program, Plan& plan) {
  std::vector<BufferId> touched;
  for (Segment& segment : plan.segments)
    for (Op& op : segment.ops)
      for (const Operand* operand : operands_of(op))
        if (operand->stated()) touched.push_back(operand->buffer);
  if (touched.empty()) return;
  const Buffer& from = program.buffers[any_of(touched).value];
  std::vector<BufferId> larger;
  for (const Buffer& buffer : program.buffers)
    if (buffer.size >= from.size && buffer.dtype == from.dtype && buffer.id != from.id)
      larger.push_back(buffer.id);
  if (!larger.empty()) move_operands(plan, from.id, any_of(larger));
}

/// Before an op something else is copied to where one of its operands lies, on its stream.
inline void write_over(const Program& program, Segment& segment, std::ptrdiff_t at) {
  const Op& op = segment.ops[static_cast<std::size_t>(at)];
  Op reader = op;
  std::vector<Operand*> operands = operands_of(reader);
  if (operands.empty()) return;
  Operand to = *any_of(operands);
  if (!to.stated()) return;
  to.role = "output";
  to.access = Access::write;
  to.shape = {to.elements()};
  to.strides.clear();
  std::vector<BufferId> sources;
  for (const Buffer& buffer : program.buffers)
    if (buffer.dtype == to.dtype && buffer.size.value >= to.touched_bytes())
      sources.push_back(buffer.id);
  if (sources.empty()) return;
  Operand from = to;
  from.role = "input";
  from.access = Access::read;
  from.buffer = any_of(sources);
  from.offset = 0;
  Op copy = op;
  copy.id = OpId(1'000'001);
  copy.group.reset();
  copy.body = Copy{.kind = CopyKind::d2d, .input = from, .output = to};
  segment.ops.insert(segment.ops.begin() + at, copy);
}

/// Copies a buffer to another one, which an op may read or write in its place.
inline void double_buffer(Program& program, Op& op) {
  std::vector<Operand*> operands = operands_of(op);
  if (operands.empty()) return;
  Operand& operand = *any_of(operands);
  if (!operand.stated()) return;
  Buffer again = program.buffers[operand.buffer.value];
  Pool& pool = program.pools[again.pool.value];
  again.id = BufferId(static_cast<std::uint32_t>(program.buffers.size()));
  again.name += ".second";
  const std::int64_t unit = std::max<std::int64_t>(pool.alignment, 1);
  again.offset.value = (pool.height.value + unit - 1) / unit * unit;
  pool.height.value = again.offset.value + again.size.value;
  if (*rc::gen::arbitrary<bool>()) again.holds.reset();
  program.buffers.push_back(again);
  if (*rc::gen::arbitrary<bool>()) operand.buffer = again.id;
}

inline bool rotates(const Op& op) {
  const auto* kernel = std::get_if<Kernel>(&op.body);
  return kernel != nullptr && to_string(kernel->kind).find("rope") != std::string_view::npos;
}

/// twice: an op is repeated; rotation: it has changed places with a neighbour
enum class Edit { other, twice, rotation };

inline Edit edit(Program& program) {
  Plan& plan = any_of(program.plans);
  Segment& segment = any_of(plan.segments);
  const auto at = *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(segment.ops));
  const auto op = segment.ops.begin() + at;
  switch (*rc::gen::inRange(0, 6)) {
    case 0: segment.ops.erase(op); break;
    case 1: {
      Op again = *op;
      again.id = OpId(1'000'000);
      segment.ops.insert(op, again);
      return Edit::twice;
    }
    case 2:
      if (op + 1 == segment.ops.end()) break;
      std::swap(*op, *(op + 1));
      return rotates(*op) || rotates(*(op + 1)) ? Edit::rotation : Edit::other;
    case 3: redirect(program, plan); break;
    default: edit_body(program, *op);
  }
  return Edit::other;
}

// ---- what a plan states about itself ----------------------------------------------------------

/// Near a number, or near what numbers can be.
inline std::int64_t any_number(std::int64_t near) {
  return *rc::gen::element<std::int64_t>(0, 1, near / 2, near, near * 2, std::int64_t{1} << 50,
                                         std::int64_t{1} << 62, INT64_MAX);
}

template <class Body>
std::vector<Op*> ops_of(Program& program) {
  std::vector<Op*> ops;
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      for (Op& op : segment.ops)
        if (std::holds_alternative<Body>(op.body)) ops.push_back(&op);
  return ops;
}

/// All buffers of a pool come after those of another one.
inline void merge_pools(Program& program) {
  const Pool from = any_of(program.pools);
  Pool& into = any_of(program.pools);
  if (from.id == into.id || from.space != into.space) return;
  const std::int64_t base = round_up(into.height.value, from.alignment);
  for (Buffer& buffer : program.buffers)
    if (buffer.pool == from.id) {
      buffer.pool = into.id;
      buffer.offset.value += base;
    }
  into.height.value = base + from.height.value;
  std::erase_if(program.pools, [&](const Pool& pool) { return pool.id == from.id; });
}

/// A collective becomes a group of its own, or a group in a group.
inline void add_groups(Program& program) {
  Segment& segment = any_of(any_of(program.plans).segments);
  std::vector<std::ptrdiff_t> places;
  for (std::ptrdiff_t i = 0; i < std::ssize(segment.ops); ++i)
    if (segment.ops[static_cast<std::size_t>(i)].kind() == OpKind::collective) places.push_back(i);
  if (places.empty()) return;
  const std::ptrdiff_t at = any_of(places);
  const Op op = segment.ops[static_cast<std::size_t>(at)];
  const CommunicatorId communicator = std::get<Collective>(op.body).communicator;
  const int depth = *rc::gen::inRange(1, 3);
  for (int i = 0; i < depth; ++i) {
    Op begin = op;
    begin.id = OpId(static_cast<std::size_t>(2'000'000 + 2 * i));
    begin.body = GroupBegin{.communicator = communicator};
    Op end = op;
    end.id = OpId(static_cast<std::size_t>(2'000'001 + 2 * i));
    end.body = GroupEnd{.communicator = communicator};
    segment.ops.insert(segment.ops.begin() + at + 1 + 2 * i, end);
    segment.ops.insert(segment.ops.begin() + at, begin);
  }
}

/// A kernel costs other FLOPs, or moves other bytes.
inline void change_costs(Program& program) {
  const std::vector<Op*> kernels = ops_of<Kernel>(program);
  if (kernels.empty()) return;
  auto& kernel = std::get<Kernel>(kernels[*rc::gen::inRange<std::size_t>(0, kernels.size())]->body);
  for (Attribute& attribute : kernel.attributes)
    if (attribute.name == "bytes") {
      attribute.value.num = any_number(attribute.value.num);
      return;
    }
  kernel.flops = any_number(kernel.flops);
}

/// Changes the norm's limit in the configuration and in the kernel that uses it.
inline void change_clip(Program& program) {
  if (program.config.clip.num == 0) return;
  program.config.clip = {.num = std::max<std::int64_t>(any_number(3), 1),
                         .den = std::max<std::int64_t>(any_number(4), 1)};
  for (Op* op : ops_of<Kernel>(program))
    for (Attribute& attribute : std::get<Kernel>(op->body).attributes)
      if (attribute.name == "limit") attribute.value = program.config.clip;
}

inline void exchange_axes(Program& program) {
  auto& axes = program.config.mesh.dense;
  if (axes.empty()) return;
  if (*rc::gen::arbitrary<bool>()) {
    std::swap(any_of(axes).axis, any_of(axes).axis);
  } else {
    any_of(axes).axis = *rc::gen::element(Axis::pp, Axis::cp, Axis::tp);
  }
}

/// Labels and structure: mostly what changes nothing that is computed, where it is accepted.
inline void edit_labels(Program& program) {
  switch (*rc::gen::inRange(0, 10)) {
    case 0: merge_pools(program); break;
    case 1: add_groups(program); break;
    case 2: change_costs(program); break;
    case 3: change_clip(program); break;
    case 4: {
      Group& group = any_of(program.groups);
      group.chunk = any_number(group.chunk);
      break;
    }
    case 5: {
      const auto strategy = static_cast<Strategy>(*rc::gen::inRange(0, 4));
      (*rc::gen::arbitrary<bool>() ? program.config.strategy : program.config.outer_strategy) =
          strategy;
      break;
    }
    case 6: exchange_axes(program); break;
    case 7: {
      RankClass again = program.classes.front();
      if (*rc::gen::arbitrary<bool>()) program.classes.push_back(again);
      program.classes.front().ranks = any_number(again.ranks);
      break;
    }
    case 8: {
      Segment empty;
      empty.name = "empty";
      // Longer ones than this are no quick test, where they are accepted.
      empty.repeat = *rc::gen::element<std::int64_t>(1, 1000, std::int64_t{1} << 40, INT64_MAX);
      any_of(program.plans).segments.push_back(empty);
      break;
    }
    default: {
      Pool& pool = any_of(program.pools);
      pool.alignment = *rc::gen::element<std::int64_t>(1, 128, 4096, std::int64_t{1} << 30,
                                                       std::int64_t{1} << 62);
    }
  }
}

/// Sums that are to become a gradient are followed in place alone.
inline bool moves_gradients(const Kernel& kernel) {
  return kernel.kind == KernelKind::cast || kernel.kind == KernelKind::accumulate;
}

/// An operand that a kernel only reads, in memory without groups that is no port, is copied to a
/// new buffer just before, and read there. False if there is none.
inline bool copy_first(Program& program) {
  struct Found {
    Segment* segment;
    std::size_t op;
    std::size_t operand;
  };
  std::vector<Found> found;
  for (Plan& plan : program.plans)
    for (Segment& segment : plan.segments)
      for (std::size_t o = 0; o < segment.ops.size(); ++o) {
        const auto* kernel = std::get_if<Kernel>(&segment.ops[o].body);
        if (kernel == nullptr || moves_gradients(*kernel)) continue;
        const std::vector<Operand*> operands = operands_of(segment.ops[o]);
        for (std::size_t i = 0; i < operands.size(); ++i)
          if (operands[i]->access == Access::read && operands[i]->strides.empty() &&
              operands[i]->rank_strides.empty() && operands[i]->span_bytes() > 0 &&
              !program.buffers[operands[i]->buffer.value].holds)
            found.push_back({&segment, o, i});
      }
  if (found.empty()) return false;
  const auto [segment, at, number] = any_of(found);
  Op& op = segment->ops[at];
  Operand& operand = *operands_of(op)[number];
  Buffer made = program.buffers[operand.buffer.value];
  Pool& pool = program.pools[made.pool.value];
  made.id = BufferId(static_cast<std::uint32_t>(program.buffers.size()));
  made.name += ".copy";
  made.persistent = true;
  made.slot_class.reset();
  const std::int64_t unit = std::max<std::int64_t>(pool.alignment, 1);
  made.offset.value = (pool.height.value + unit - 1) / unit * unit;
  pool.height.value = made.offset.value + made.size.value;
  program.buffers.push_back(made);
  Copy copy{.kind = CopyKind::d2d, .input = operand, .output = operand};
  copy.input.role = "input";
  copy.output.role = "output";
  copy.output.access = Access::write;
  copy.output.buffer = made.id;
  operand.buffer = made.id;
  Op before = op;
  before.id = OpId(1'000'002);
  before.name += ".copy";
  before.group.reset();
  before.body = copy;
  segment->ops.insert(segment->ops.begin() + static_cast<std::ptrdiff_t>(at), before);
  return true;
}

/// Two groups' parts of the norm change places on every rank. False where there are not two.
inline bool swap_norm_parts(Program& program) {
  std::vector<Operand*> parts;
  for (Segment& segment : program.plans.front().segments)
    for (Op& op : segment.ops)
      if (auto* kernel = std::get_if<Kernel>(&op.body))
        if (kernel->kind == KernelKind::norm_partial)
          for (Operand& operand : kernel->operands)
            if (operand.role == "output") parts.push_back(&operand);
  if (parts.size() < 2) return false;
  std::swap(any_of(parts)->offset, any_of(parts)->offset);
  return true;
}

/// A communicator is also over an axis that the mesh lacks: of one rank, which changes nothing.
inline bool name_lacking_axis(Program& program) {
  if (program.communicators.empty()) return false;
  std::vector<Axis>& axes = any_of(program.communicators).axes;
  const auto axis =
      static_cast<Axis>(*rc::gen::inRange<std::size_t>(0, Names<Axis>::values.size()));
  if (program.config.mesh.size(axis) > 1 || std::ranges::find(axes, axis) != axes.end())
    return false;
  axes.insert(axes.begin() + *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(axes) + 1), axis);
  return true;
}

/// An equivalent change: the plan is as right as before. False if nothing was changed.
inline bool edit_rightly(Program& program) {
  switch (*rc::gen::inRange(0, 3)) {
    case 0: return copy_first(program);
    case 1: return swap_norm_parts(program);
    default: return name_lacking_axis(program);
  }
}

/// An op or a buffer more.
inline void add_something(Program& program) {
  Segment& segment = any_of(any_of(program.plans).segments);
  const auto at = *rc::gen::inRange<std::ptrdiff_t>(0, std::ssize(segment.ops));
  if (*rc::gen::arbitrary<bool>())
    write_over(program, segment, at);
  else
    double_buffer(program, segment.ops[static_cast<std::size_t>(at)]);
}

}  // namespace mfsdp::test
