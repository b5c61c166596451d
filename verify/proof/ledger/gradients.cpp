#include "verify/proof/ledger/gradients.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "verify/proof/ledger/gradient_memory.hpp"
#include "verify/proof/ledger/gradient_verdict.hpp"
#include "verify/proof/ledger/roles.hpp"

namespace mfsdp {
namespace {

constexpr const char* kWhereParts = "where the parts of all ranks lie";
constexpr const char* kLate = "which an earlier repetition made";
constexpr const char* kPartsBySelf = "of which each rank's part is by itself";

/// A gradient in a buffer that belongs to no group, such as a sum that is cast later.
struct Loose {
  Held held;
  std::int64_t offset = 0;
  std::int64_t count = -1;
};

class GradientLedger {
 public:
  GradientLedger(const UnrolledPlan& unrolled, const Layouts& layouts, const FollowedOps& followed,
                 FindingList& findings)
      : unrolled_(unrolled),
        layouts_(layouts),
        config_(unrolled.program->config),
        memory_(layouts),
        verdict_(unrolled, layouts, findings),
        loose_(unrolled.program->buffers.size()),
        followed_(followed) {}

  void run() {
    for (std::uint32_t i = 0; i < unrolled_.instances.size(); ++i) {
      const Instance& instance = unrolled_.instances[i];
      const std::uint8_t bits = followed_.bits[instance.op_index];
      if ((bits & (kFollowGradients | kUsesParameters)) == 0 || instance.host_work) continue;
      now_ = i;
      operands_ = followed_.of(instance.op_index);
      for (const OverLoose& over : followed_.over_loose_of(instance.op_index)) spoil(over);
      if ((bits & kUsesParameters) != 0) count_uses();
      if ((bits & kFollowGradients) == 0) continue;
      if ((bits & kMakesGradient) != 0) {
        make_gradient((bits & kAdds) != 0);
        continue;
      }
      const OpFacts& facts = unrolled_.ops[instance.op_index];
      if (facts.kind == OpKind::acquire) {
        forget(facts.subject);
        continue;
      }
      const OpBody& body = instance.op->body;
      if (const auto* kernel = std::get_if<Kernel>(&body)) run_kernel(*kernel);
      if (const auto* collective = std::get_if<Collective>(&body)) run_collective(*collective);
      if (const auto* copy = std::get_if<Copy>(&body))
        move(copy->input, copy->output, false, false);
    }
  }

 private:
  /// The entry of an operand of the instance that runs, or null where that is no gradient.
  [[nodiscard]] const FollowedOperand* gradient(const Operand& operand) const {
    for (const FollowedOperand& followed : operands_)
      if (followed.operand == &operand && followed.gradient) return &followed;
    return nullptr;
  }

  [[nodiscard]] std::uint32_t buffer_of(const Operand& operand) const {
    return static_cast<std::uint32_t>(unrolled_.index->buffers[operand.buffer]);
  }

  void forget(std::uint32_t buffer) {
    if (layouts_.homes[buffer].holds == Holds::gradient) memory_.forget(buffer);
  }

  /// The operand's gradient is nowhere that the ledger could follow it.
  void go_astray(const char* rule, const FollowedOperand& operand, const std::string& what) {
    const std::uint32_t group = operand.located.group;
    if (verdict_.given_up(group)) return;
    verdict_.report(
        rule, group, now_,
        fmt::format("has '{}' at {} of the gradient of '{}', {}", operand.operand->role,
                    to_text(operand.located.region), layouts_.groups[group].name, what));
    verdict_.give_up(group);
  }

  void run_kernel(const Kernel& kernel) {
    switch (kernel.kind) {
      case KernelKind::zero_padding:
        for (const FollowedOperand& operand : operands_) zero(operand);
        return;
      case KernelKind::accumulate:
      case KernelKind::cast:
      case KernelKind::sum_ranks: {
        const Operand* output = operand_of(kernel, "output");
        if (output == nullptr) output = operand_of(kernel, "weight_grad");
        const Operand* input = operand_of(kernel, "input");
        if (input != nullptr && output != nullptr)
          move(*input, *output, kernel.attribute("beta") != 0,
               kernel.kind == KernelKind::sum_ranks);
        return;
      }
      case KernelKind::norm_partial:
      case KernelKind::momentum:
      case KernelKind::update:
        for (const FollowedOperand& operand : operands_)
          if (operand.gradient) judge(operand, is_update(kernel) || is_momentum(kernel));
        return;
      default: overwrite();
    }
  }

  void count_uses() {
    for (const FollowedOperand& operand : operands_) {
      if (!operand.reads || operand.gradient) continue;
      if (!operand.atoms) continue;  // weights.hpp reports it
      for (std::uint32_t a = operand.atoms->first; a < operand.atoms->last; ++a)
        verdict_.use(operand.located.group, a, unrolled_.work_pass(now_));
    }
  }

  void make_gradient(bool adds) {
    const auto followed = std::ranges::find(operands_, true, &FollowedOperand::weight_grad);
    if (followed == operands_.end() || !followed->gradient) return make_loose(adds);
    Held& held = made_;
    held.terms.assign(1, {.instance = now_});
    const auto& at = followed->spot;
    if (!at || at->level != 0 || at->atoms.last != at->atoms.first + 1 ||
        layouts_.groups[at->group].atoms[at->atoms.first].parameter == nullptr)
      return go_astray("MF306", *followed, "where no parameter of that size lies");
    put(*at, held, adds, *followed->operand);
  }

  /// Into a buffer that belongs to no group.
  void make_loose(bool adds) {
    const auto& kernel = std::get<Kernel>(unrolled_.instances[now_].op->body);
    const Operand* output = operand_of(kernel, "weight_grad");
    if (output == nullptr) return;
    set_loose(*output, {.terms = {{.instance = now_}}}, adds);
  }

  void set_loose(const Operand& output, const Held& held, bool adds) {
    Loose& loose = loose_[buffer_of(output)];
    const bool same = loose.offset == output.offset && loose.count == output.elements();
    if (!adds || !same) loose.held = {.terms = {}, .garbage = adds};
    loose.held += held;
    loose.offset = output.offset;
    loose.count = output.elements();
  }

  /// What lies there now is no gradient.
  void spoil(const OverLoose& over) {
    Loose& loose = loose_[over.buffer];
    const std::int64_t size = size_of(unrolled_.program->buffers[over.buffer].dtype);
    const std::int64_t end = loose.offset + std::max<std::int64_t>(loose.count, 0) * size;
    if (over.begin < end && loose.offset < over.end) loose.held = {.terms = {}, .garbage = true};
  }

  /// Writes or adds one value to all atoms of a spot, at its level and all finer ones.
  void put(const Spot& at, const Held& held, bool adds, const Operand& output) {
    for (int level = at.level; level < memory_.levels(); ++level) {
      if (level != at.level && !memory_.differs(at.buffer, level)) continue;
      for (std::uint32_t a = at.atoms.first; a < at.atoms.last; ++a)
        put(memory_.edit(at.buffer, level, a), held, adds, at.group, output);
    }
  }
  /// Microbatches are summed in the dtype of main gradients or a wider one, and what was a sum of
  /// them in a narrower one is not added to.
  void put(Held& edited, const Held& held, bool adds, std::uint32_t group, const Operand& output) {
    const bool was_rounded = adds && (edited.rounded || held.rounded);
    if (adds)
      edited += held;
    else
      edited = held;
    const bool narrow = size_of(output.dtype) < size_of(config_.grad_dtype);
    if ((!narrow && !was_rounded) || !is_of_several(edited)) return;
    edited.rounded = true;
    if (adds)
      report_width(group, narrow ? output.dtype : config_.reduce_dtype, config_.grad_dtype,
                   "adds microbatches");
  }
  [[nodiscard]] bool is_of_several(const Held& held) const {
    const auto pass = [&](const Term& term) { return unrolled_.work_pass(term.instance); };
    return !held.terms.empty() && std::ranges::any_of(held.terms, [&](const Term& term) {
      return pass(term) != pass(held.terms.front());
    });
  }

  /// A repetition that stands for more of them moves what it has made itself: what comes from one
  /// before it could come later and later.
  [[nodiscard]] bool is_late(const Held& held) const {
    const std::uint32_t pass = unrolled_.instances[now_].pass;
    return unrolled_.passes[pass].for_more && std::ranges::any_of(held.terms, [&](const Term& t) {
             return unrolled_.instances[t.instance].pass != pass;
           });
  }
  [[nodiscard]] bool is_late(const Spot& from) const {
    if (!unrolled_.passes[unrolled_.instances[now_].pass].for_more) return false;
    for (int level = from.level; level < memory_.levels(); ++level)
      for (std::uint32_t a = from.atoms.first; a < from.atoms.last; ++a)
        if (is_late(memory_.at(from.buffer, level, a))) return true;
    return false;
  }

  void zero(const FollowedOperand& operand) {
    if (!operand.gradient) return;
    if (!operand.spot) return go_astray("MF306", operand, "which is not whole padding");
    put(*operand.spot, {}, false, *operand.operand);
  }

  /// Any other kernel that writes a gradient leaves what this ledger knows nothing of.
  void overwrite() {
    for (const FollowedOperand& operand : operands_)
      if (!operand.reads && operand.gradient)
        go_astray("MF306", operand, "and does not make gradients");
  }

  /// The axis of whose ranks each has a part in the operand's buffer.
  [[nodiscard]] std::optional<Axis> parts_in(const FollowedOperand& operand) const {
    return layouts_.homes[operand.located.buffer].parts;
  }

  /// output = (or +=) input, the same elements of the same group. `sums`: the input's parts of all
  /// ranks.
  void move(const Operand& input, const Operand& output, bool adds, bool sums) {
    const FollowedOperand* target = gradient(output);
    if (target == nullptr) return;
    if (parts_in(*target)) return go_astray("MF306", *target, kWhereParts);
    const auto& to = target->spot;
    if (!to) return go_astray("MF306", *target, "which is no slice and no parameter of it");
    const FollowedOperand* source = gradient(input);
    if (source != nullptr && parts_in(*source).has_value() != sums)
      return go_astray("MF306", *source,
                       sums ? "of which no rank's part is by itself" : kPartsBySelf);
    if (source == nullptr) {
      const Loose& loose = loose_[buffer_of(input)];
      Held held = loose.held;
      held.garbage = held.garbage || loose.count != input.elements() ||
                     loose.offset != input.offset || input.elements() != output.elements();
      if (is_late(held)) return go_astray("MF305", *target, kLate);
      put(*to, held, adds, output);
    } else {
      const auto& from = source->spot;
      if (!from) return go_astray("MF306", *source, "which is no slice and no parameter of it");
      if (from->group != to->group || from->level != to->level ||
          from->atoms.first != to->atoms.first || from->atoms.last != to->atoms.last)
        return go_astray(
            "MF306", *target,
            fmt::format("which other elements go to: {} of '{}'", to_text(source->located.region),
                        layouts_.groups[from->group].name));
      if (is_late(*from)) return go_astray("MF305", *source, kLate);
      move_spot(*from, *to, adds, parts_in(*source), output);
    }
  }

  /// Finest level first: a coarser one's value stands for the finer ones until they are kept.
  /// `sums`: the axis over which parts are summed on the way.
  void move_spot(const Spot& from, const Spot& to, bool adds, std::optional<Axis> sums,
                 const Operand& output) {
    const bool whole = to.atoms.first == 0 && to.atoms.last == memory_.all(to.buffer).last;
    for (int level = memory_.levels() - 1; level >= to.level; --level) {
      const bool own = level == to.level || memory_.differs(from.buffer, level) ||
                       memory_.differs(to.buffer, level);
      if (!own) continue;
      for (std::uint32_t a = to.atoms.first; a < to.atoms.last; ++a) {
        const Held* moved = &memory_.at(from.buffer, level, a);
        if (sums) {
          reduced_ = *moved;
          add_axis(reduced_, *sums);
          moved = &reduced_;
        }
        put(memory_.edit(to.buffer, level, a), *moved, adds, to.group, output);
      }
    }
    if (whole && !adds && !differs_below(from)) memory_.drop_finer(to.buffer, to.level);
  }

  [[nodiscard]] bool differs_below(const Spot& at) const {
    for (int level = at.level + 1; level < memory_.levels(); ++level)
      if (memory_.differs(at.buffer, level)) return true;
    return false;
  }

  void report_width(std::uint32_t group, DType narrow, DType wide, const char* what) {
    verdict_.report("MF310", group, now_,
                    fmt::format("{} of the gradient of '{}' in {}, narrower than {}", what,
                                layouts_.groups[group].name, to_string(narrow), to_string(wide)));
  }

  void judge(const FollowedOperand& operand, bool update) {
    const auto& at = operand.spot;
    if (!at && update) return verdict_.give_up(operand.located.group);  // updates.hpp reports it
    if (!at) return go_astray("MF306", operand, "which is no slice of it");
    if (!update && !operand.own_unit) return go_astray("MF306", operand, "which is another unit's");
    verdict_.judge(now_, memory_, *at);
  }

  void run_collective(const Collective& collective) {
    const FollowedOperand* output = gradient(collective.output);
    if (output == nullptr) return;
    const bool deals = collective.kind == CollectiveKind::all_to_all;
    if (deals && !parts_in(*output))
      return go_astray("MF306", *output, "which an all_to_all deals out");
    if (!deals && parts_in(*output)) return go_astray("MF306", *output, kWhereParts);
    const FollowedOperand* input = gradient(collective.input);
    if (input == nullptr) return go_astray("MF306", *output, "and brings what is no gradient");
    if (parts_in(*input)) return go_astray("MF306", *input, kPartsBySelf);
    const auto& from = input->spot;
    const auto& to = output->spot;
    if (!from) return go_astray("MF306", *input, "which is no slice of it");
    if (!reaches_own_slice(collective, input->located, output->located)) {
      const bool aliases = input->located.buffer == output->located.buffer;
      return go_astray(aliases ? "MF505" : "MF306", *output,
                       "which is not the part that this rank gets");
    }
    if (!to) return go_astray("MF306", *output, "which is no slice of it");
    if (is_late(*from)) return go_astray("MF305", *input, kLate);
    const std::vector<Axis> axes = with_several_ranks(
        unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]]
            .axes,
        config_.mesh);
    if (collective.kind != CollectiveKind::all_gather)
      for (const Axis axis : axes) check_wire(collective, *from, axis);
    reduce(collective, *from, *to, axes);
  }

  /// The output is where a rank's part of the input lies: the same elements for an all-reduce, of
  /// which all ranks must have the same ones; the part at the rank's index for a reduce-scatter or
  /// an all-to-all, whose output has it once for each rank; and the other way round for an
  /// all-gather.
  [[nodiscard]] bool reaches_own_slice(const Collective& collective, const Located& input,
                                       const Located& output) const {
    if (!output.exact || input.group != output.group) return false;
    const auto& communicator =
        unrolled_.program->communicators[unrolled_.index->communicators[collective.communicator]];
    const auto cut = [&](Axis axis) { return input.region.strides[axis] != 0; };
    if (collective.kind == CollectiveKind::all_reduce)
      return input.region == output.region && std::ranges::none_of(communicator.axes, cut);
    const bool gathers = collective.kind == CollectiveKind::all_gather;
    return part_of((gathers ? output : input).region, communicator.axes, config_.mesh) ==
           (gathers ? input : output).region;
  }

  void check_wire(const Collective& collective, const Spot& from, Axis axis) {
    // Within a group of shards the wire is configured; what crosses groups is a main gradient.
    const bool shards = axis == Axis::dp_shard || axis == Axis::expt_dp;
    const DType wide = shards ? config_.reduce_dtype : config_.grad_dtype;
    if (size_of(collective.dtype) < size_of(wide))
      report_width(from.group, collective.dtype, wide, "sums ranks");
  }

  void reduce(const Collective& collective, const Spot& from, const Spot& to,
              const std::vector<Axis>& axes) {
    const bool sums = collective.kind != CollectiveKind::all_gather &&
                      collective.kind != CollectiveKind::all_to_all;
    for (std::uint32_t a = from.atoms.first; a < from.atoms.last; ++a) {
      Held& held = reduced_;
      held = finest(from, a);
      held.uneven = held.uneven || is_uneven(from, a);
      for (const Axis axis : axes)
        if (sums) add_axis(held, axis);
      for (int level = to.level; level < memory_.levels(); ++level)
        if (level == to.level || memory_.differs(to.buffer, level))
          memory_.edit(to.buffer, level, a) = held;
    }
  }

  /// Terms of this rank are now those of every rank of the axis.
  void add_axis(Held& held, Axis axis) const {
    if (config_.mesh.size(axis) == 1) return;
    for (Term& term : held.terms) term.sums.add(axis);
  }

  [[nodiscard]] const Held& finest(const Spot& from, std::uint32_t atom) const {
    int level = memory_.levels() - 1;
    while (level > from.level && !memory_.differs(from.buffer, level)) --level;
    return memory_.at(from.buffer, level, atom);
  }
  /// Ranks add what lies in their own slice to what others have outside of theirs.
  [[nodiscard]] bool is_uneven(const Spot& from, std::uint32_t atom) const {
    for (int level = from.level + 1; level < memory_.levels(); ++level)
      if (memory_.differs(from.buffer, level) &&
          memory_.at(from.buffer, level, atom) != memory_.at(from.buffer, from.level, atom))
        return true;
    return false;
  }

  const UnrolledPlan& unrolled_;
  const Layouts& layouts_;
  const PlanConfig& config_;
  GradientMemory memory_;
  GradientVerdict verdict_;
  Held made_;                 ///< scratch, for its memory
  Held reduced_;              ///< likewise
  std::vector<Loose> loose_;  ///< by buffer
  const FollowedOps& followed_;
  std::uint32_t now_ = 0;                      ///< the instance that runs
  std::span<const FollowedOperand> operands_;  ///< of it
};

}  // namespace

void check_gradients(const UnrolledPlan& unrolled, const Layouts& layouts,
                     const FollowedOps& followed, FindingList& findings) {
  GradientLedger(unrolled, layouts, followed, findings).run();
}

}  // namespace mfsdp
