#include "verify/proof/ledger/gradients.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/ledger/gradient_ledger.hpp"
#include "verify/proof/ledger/kernel_roles.hpp"

namespace mfsdp::ledger {
namespace {

constexpr const char* kUnsummed =
    "a buffer that holds each rank's contribution separately; expected a summed gradient";
constexpr const char* kLate = "which an earlier repetition of the segment computed";
constexpr const char* kNotSummed = "which is not summed over ranks yet";

void forget(Ledger& s, std::uint32_t buffer) {
  if (s.layouts.homes[buffer].holds == Holds::gradient) s.memory.forget(buffer);
}

void count_uses(Ledger& s) {
  for (const FollowedOperand& operand : s.operands) {
    if (!operand.reads || operand.gradient) continue;
    if (!operand.atoms) continue;  // weights.cpp reports it
    for (std::uint32_t a = operand.atoms->first; a < operand.atoms->last; ++a)
      s.verdict.use(operand.located.group, a, s.unrolled.work_run(s.now));
  }
}

void set_ungrouped(Ledger& s, const Operand& output, const Held& held, bool adds) {
  UngroupedGradient& ungrouped = s.ungrouped[buffer_of(s, output)];
  const bool same = ungrouped.offset == output.offset && ungrouped.count == output.elements();
  if (!adds || !same) ungrouped.held = {.terms = {}, .garbage = adds};
  ungrouped.held += held;
  ungrouped.offset = output.offset;
  ungrouped.count = output.elements();
}

/// Into a buffer that belongs to no group.
void make_ungrouped(Ledger& s, bool adds) {
  const auto& kernel = std::get<Kernel>(s.unrolled.instances[s.now].op->body);
  const Operand* output = operand_of(kernel, "weight_grad");
  if (output == nullptr) return;
  set_ungrouped(s, *output, {.terms = {{.instance = s.now}}}, adds);
}

void make_gradient(Ledger& s, bool adds) {
  const auto followed = std::ranges::find(s.operands, true, &FollowedOperand::weight_grad);
  if (followed == s.operands.end() || !followed->gradient) return make_ungrouped(s, adds);
  Held& held = s.made;
  held.terms.assign(1, {.instance = s.now});
  const auto& at = followed->spot;
  if (!at || at->level != 0 || at->atoms.last != at->atoms.first + 1 ||
      s.layouts.groups[at->group].atoms[at->atoms.first].parameter == nullptr)
    return go_astray(s, "MF306", *followed, "which is not one whole parameter");
  put(s, *at, held, adds, *followed->operand);
}

/// The bytes no longer hold a gradient.
void spoil(Ledger& s, const UngroupedOverwrite& over) {
  UngroupedGradient& ungrouped = s.ungrouped[over.buffer];
  const std::int64_t size = size_of(s.unrolled.program->buffers[over.buffer].dtype);
  const std::int64_t end = ungrouped.offset + std::max<std::int64_t>(ungrouped.count, 0) * size;
  if (over.begin < end && ungrouped.offset < over.end)
    ungrouped.held = {.terms = {}, .garbage = true};
}

void zero(Ledger& s, const FollowedOperand& operand) {
  if (!operand.gradient) return;
  if (!operand.spot) return go_astray(s, "MF306", operand, "which is not exactly padding");
  put(s, *operand.spot, {}, false, *operand.operand);
}

/// Any other kernel that writes a gradient leaves what this ledger knows nothing of.
void overwrite(Ledger& s) {
  for (const FollowedOperand& operand : s.operands)
    if (!operand.reads && operand.gradient)
      go_astray(s, "MF306", operand,
                "and overwrites it, but is not a kernel that computes gradients");
}

bool differs_below(const Ledger& s, const Spot& at) {
  for (int level = at.level + 1; level < s.memory.levels(); ++level)
    if (s.memory.differs(at.buffer, level)) return true;
  return false;
}

/// Finest level first: a coarser one's value stands for the finer ones until they are kept.
/// `sums`: the axis over which parts are summed on the way.
void move_spot(Ledger& s, const Spot& from, const Spot& to, bool adds, std::optional<Axis> sums,
               const Operand& output) {
  const bool whole = to.atoms.first == 0 && to.atoms.last == s.memory.all(to.buffer).last;
  for (int level = s.memory.levels() - 1; level >= to.level; --level) {
    const bool own = level == to.level || s.memory.differs(from.buffer, level) ||
                     s.memory.differs(to.buffer, level);
    if (!own) continue;
    for (std::uint32_t a = to.atoms.first; a < to.atoms.last; ++a) {
      const Held* moved = &s.memory.at(from.buffer, level, a);
      if (sums) {
        s.reduced = *moved;
        add_axis(s, s.reduced, *sums);
        moved = &s.reduced;
      }
      put(s, s.memory.edit(to.buffer, level, a), *moved, adds, to.group, output);
    }
  }
  if (whole && !adds && !differs_below(s, from)) s.memory.drop_finer(to.buffer, to.level);
}

/// output = (or +=) input, the same elements of the same group. `sums`: the input's parts of all
/// ranks.
void move(Ledger& s, const Operand& input, const Operand& output, bool adds, bool sums) {
  const FollowedOperand* target = gradient(s, output);
  if (target == nullptr) return;
  if (unsummed_in(s, *target)) return go_astray(s, "MF306", *target, kUnsummed);
  const auto& to = target->spot;
  if (!to) return go_astray(s, "MF306", *target, "which is neither a shard nor a whole parameter");
  const FollowedOperand* source = gradient(s, input);
  if (source != nullptr && unsummed_in(s, *source).has_value() != sums)
    return go_astray(s, "MF306", *source,
                     sums ? "which does not hold each rank's contribution separately" : kNotSummed);
  if (source == nullptr) {
    const UngroupedGradient& ungrouped = s.ungrouped[buffer_of(s, input)];
    Held held = ungrouped.held;
    held.garbage = held.garbage || ungrouped.count != input.elements() ||
                   ungrouped.offset != input.offset || input.elements() != output.elements();
    if (is_late(s, held)) return go_astray(s, "MF305", *target, kLate);
    put(s, *to, held, adds, output);
  } else {
    const auto& from = source->spot;
    if (!from)
      return go_astray(s, "MF306", *source, "which is neither a shard nor a whole parameter");
    if (from->group != to->group || from->level != to->level ||
        from->atoms.first != to->atoms.first || from->atoms.last != to->atoms.last)
      return go_astray(
          s, "MF306", *target,
          fmt::format("but its input is other elements: {} of '{}'",
                      to_text(source->located.region), s.layouts.groups[from->group].name));
    if (is_late(s, *from)) return go_astray(s, "MF305", *source, kLate);
    move_spot(s, *from, *to, adds, unsummed_in(s, *source), output);
  }
}

void judge(Ledger& s, const FollowedOperand& operand, bool update) {
  const auto& at = operand.spot;
  if (!at && update) return s.verdict.give_up(operand.located.group);  // updates.cpp reports it
  if (!at) return go_astray(s, "MF306", operand, "which is not a shard of it");
  if (!update && !operand.own_unit)
    return go_astray(s, "MF306", operand, "which belongs to another unit than the op");
  s.verdict.judge(s.now, s.memory, *at);
}

void run_kernel(Ledger& s, const Kernel& kernel) {
  switch (kernel.kind) {
    case KernelKind::zero_padding:
      for (const FollowedOperand& operand : s.operands) zero(s, operand);
      return;
    case KernelKind::accumulate:
    case KernelKind::cast:
    case KernelKind::sum_ranks: {
      const Operand* output = operand_of(kernel, "output");
      if (output == nullptr) output = operand_of(kernel, "weight_grad");
      const Operand* input = operand_of(kernel, "input");
      if (input != nullptr && output != nullptr)
        move(s, *input, *output, kernel.attribute("beta") != 0,
             kernel.kind == KernelKind::sum_ranks);
      return;
    }
    case KernelKind::norm_partial:
    case KernelKind::momentum:
    case KernelKind::update:
      for (const FollowedOperand& operand : s.operands)
        if (operand.gradient) judge(s, operand, is_update(kernel) || is_momentum(kernel));
      return;
    default: overwrite(s);
  }
}

/// The output is where a rank's part of the input lies: the same elements for an all-reduce, of
/// which all ranks must have the same ones; the part at the rank's index for a reduce-scatter or
/// an all-to-all, whose output has it once for each rank; and the other way round for an
/// all-gather.
bool reaches_own_slice(const Ledger& s, const Collective& collective, const Located& input,
                       const Located& output) {
  if (!output.exact || input.group != output.group) return false;
  const auto& communicator =
      s.unrolled.program->communicators[s.unrolled.index->communicators[collective.communicator]];
  const auto cut = [&](Axis axis) { return input.region.strides[axis] != 0; };
  if (collective.kind == CollectiveKind::all_reduce)
    return input.region == output.region && std::ranges::none_of(communicator.axes, cut);
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  return part_of((gathers ? output : input).region, communicator.axes, s.config.mesh) ==
         (gathers ? input : output).region;
}

void check_reduction_dtype(Ledger& s, const Collective& collective, const Spot& from, Axis axis) {
  // Within a group of shards the wire is configured; what crosses groups is a main gradient.
  const bool shards =
      axis == Axis::dp_shard || axis == Axis::cp || axis == Axis::tp || axis == Axis::expt_dp;
  const DType wide = shards ? s.config.reduce_dtype : s.config.grad_dtype;
  if (size_of(collective.dtype) < size_of(wide))
    report_width(s, from.group, collective.dtype, wide, "sums contributions of ranks");
  else if (collective.dtype != wide)
    s.verdict.report("MF310", from.group, s.now,
                     fmt::format("sums contributions of ranks of the gradient of '{}' in {}; the "
                                 "configuration has {}",
                                 s.layouts.groups[from.group].name, to_string(collective.dtype),
                                 to_string(wide)));
}

const Held& finest(const Ledger& s, const Spot& from, std::uint32_t atom) {
  int level = s.memory.levels() - 1;
  while (level > from.level && !s.memory.differs(from.buffer, level)) --level;
  return s.memory.at(from.buffer, level, atom);
}

/// Ranks add what lies in their own slice to what others have outside of theirs.
bool is_uneven(const Ledger& s, const Spot& from, std::uint32_t atom) {
  for (int level = from.level + 1; level < s.memory.levels(); ++level)
    if (s.memory.differs(from.buffer, level) &&
        s.memory.at(from.buffer, level, atom) != s.memory.at(from.buffer, from.level, atom))
      return true;
  return false;
}

void reduce(Ledger& s, const Collective& collective, const Spot& from, const Spot& to,
            const std::vector<Axis>& axes) {
  const bool sums = collective.kind != CollectiveKind::all_gather &&
                    collective.kind != CollectiveKind::all_to_all;
  for (std::uint32_t a = from.atoms.first; a < from.atoms.last; ++a) {
    Held& held = s.reduced;
    held = finest(s, from, a);
    held.uneven = held.uneven || is_uneven(s, from, a);
    for (const Axis axis : axes)
      if (sums) add_axis(s, held, axis);
    for (int level = to.level; level < s.memory.levels(); ++level)
      if (level == to.level || s.memory.differs(to.buffer, level))
        s.memory.edit(to.buffer, level, a) = held;
  }
}

void run_collective(Ledger& s, const Collective& collective) {
  const FollowedOperand* output = gradient(s, collective.output);
  if (output == nullptr) return;
  if (collective.kind == CollectiveKind::shift)
    return go_astray(s, "MF306", *output, "but a shift leaves there what another rank has");
  const bool exchanges = collective.kind == CollectiveKind::all_to_all;
  if (exchanges && !unsummed_in(s, *output))
    return go_astray(
        s, "MF306", *output,
        "but an all_to_all must write to a buffer that holds each rank's contribution separately");
  if (!exchanges && unsummed_in(s, *output)) return go_astray(s, "MF306", *output, kUnsummed);
  const FollowedOperand* input = gradient(s, collective.input);
  if (input == nullptr) return go_astray(s, "MF306", *output, "but its input is not a gradient");
  if (unsummed_in(s, *input)) return go_astray(s, "MF306", *input, kNotSummed);
  const auto& from = input->spot;
  const auto& to = output->spot;
  if (!from) return go_astray(s, "MF306", *input, "which is not a shard of it");
  if (!reaches_own_slice(s, collective, input->located, output->located)) {
    const bool aliases = input->located.buffer == output->located.buffer;
    return go_astray(s, aliases ? "MF505" : "MF306", *output,
                     "which is not the shard that this rank receives");
  }
  if (!to) return go_astray(s, "MF306", *output, "which is not a shard of it");
  if (is_late(s, *from)) return go_astray(s, "MF305", *input, kLate);
  const std::vector<Axis> axes = with_several_ranks(
      s.unrolled.program->communicators[s.unrolled.index->communicators[collective.communicator]]
          .axes,
      s.config.mesh);
  if (collective.kind != CollectiveKind::all_gather)
    for (const Axis axis : axes) check_reduction_dtype(s, collective, *from, axis);
  reduce(s, collective, *from, *to, axes);
}

void run(Ledger& s) {
  for (std::uint32_t i = 0; i < s.unrolled.instances.size(); ++i) {
    const Instance& instance = s.unrolled.instances[i];
    const std::uint8_t bits = s.followed.bits[instance.op_index];
    if ((bits & (kFollowGradients | kUsesParameters)) == 0 || instance.host_work) continue;
    s.now = i;
    s.operands = s.followed.of(instance.op_index);
    for (const UngroupedOverwrite& over : s.followed.ungrouped_overwrites_of(instance.op_index))
      spoil(s, over);
    if ((bits & kUsesParameters) != 0) count_uses(s);
    if ((bits & kFollowGradients) == 0) continue;
    if ((bits & kMakesGradient) != 0) {
      make_gradient(s, (bits & kAdds) != 0);
      continue;
    }
    const OpFacts& facts = s.unrolled.ops[instance.op_index];
    if (facts.kind == OpKind::acquire) {
      forget(s, facts.subject);
      continue;
    }
    const OpBody& body = instance.op->body;
    if (const auto* kernel = std::get_if<Kernel>(&body)) run_kernel(s, *kernel);
    if (const auto* collective = std::get_if<Collective>(&body)) run_collective(s, *collective);
    if (const auto* copy = std::get_if<Copy>(&body))
      move(s, copy->input, copy->output, false, false);
  }
}

}  // namespace
}  // namespace mfsdp::ledger

namespace mfsdp {

void check_gradients(const UnrolledPlan& unrolled, const Layouts& layouts,
                     const FollowedOps& followed, FindingList& findings) {
  ledger::Ledger state(unrolled, layouts, followed, findings);
  ledger::run(state);
}

}  // namespace mfsdp
