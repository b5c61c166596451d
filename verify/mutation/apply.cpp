#include <algorithm>
#include <utility>

#include "core/plan/instances.hpp"
#include "verify/mutation/mutant.hpp"
#include "verify/mutation/operands.hpp"
#include "verify/mutation/rebind.hpp"

namespace mfsdp {
namespace {

using enum MutantKind;

/// Kinds of collectives that all ranks take part in; they stand first.
constexpr auto kAmongAll = static_cast<std::int64_t>(CollectiveKind::send);

/// Changes a copy of the program; each change returns whether it was possible.
class Change {
 public:
  Change(Program& program, const Mutant& mutant) : program_(program), mutant_(mutant) {}

  [[nodiscard]] bool run() {
    switch (mutant_.kind) {
      case shift_buffer:
      case shift_group:
      case change_contents:
      case change_buffer_dtype: return change_buffer();
      case change_instances: return change_turns();
      case change_placement:
      case change_group_dtype:
      case shift_parameter: return change_group();
      default: break;
    }
    if (mutant_.plan >= program_.plans.size()) return false;
    Plan& plan = program_.plans[mutant_.plan];
    if (mutant_.list >= count_op_lists(plan)) return false;
    if (mutant_.list < plan.segments.size()) {
      Segment& segment = plan.segments[mutant_.list];
      if (mutant_.kind == change_repeat) return add(segment.repeat);
      if (mutant_.kind == change_microbatches) return add(segment.microbatches);
      if (mutant_.kind == change_call_lag)
        return mutant_.part < segment.calls.size() && add(segment.calls[mutant_.part].lag);
    }
    ops_ = &op_list(plan, mutant_.list);
    if (mutant_.index >= ops_->size()) return false;
    op_ = &(*ops_)[mutant_.index];
    return change_order(plan) || change_op();
  }

 private:
  bool add(std::int64_t& number) {
    number = checked_add(number, mutant_.by);
    return true;
  }
  template <class Enum>
  bool set(Enum& value) {
    if (value == static_cast<Enum>(mutant_.by)) return false;
    value = static_cast<Enum>(mutant_.by);
    return true;
  }

  bool change_turns() {
    const auto change = [&](auto& list) {
      if (mutant_.index >= list.size() || !list[mutant_.index].instances) return false;
      std::optional<std::int64_t>& instances = list[mutant_.index].instances;
      add(*instances);
      if (*instances == 1) instances.reset();
      return true;
    };
    return mutant_.part == 0 ? change(program_.buffers) : change(program_.events);
  }

  bool change_buffer() {
    if (mutant_.index >= program_.buffers.size()) return false;
    Buffer& buffer = program_.buffers[mutant_.index];
    if (mutant_.kind == shift_buffer) return add(buffer.offset.value);
    if (mutant_.kind == change_buffer_dtype) return set(buffer.dtype);
    if (!buffer.holds) return false;
    if (mutant_.kind == change_contents) return change(*buffer.holds);
    return mutant_.part < buffer.holds->groups.size() &&
           add(buffer.holds->groups[mutant_.part].offset);
  }

  bool change(Contents& holds) {
    switch (static_cast<ContentsPart>(mutant_.part)) {
      case ContentsPart::group:
        return !holds.groups.empty() && to_next_group(holds.groups.front().group);
      case ContentsPart::placement:
        return !holds.groups.empty() && cut_otherwise(holds.placement, holds.groups.front().group);
      case ContentsPart::kind: return to_next(holds.kind);
      case ContentsPart::port: return holds.port && to_next(*holds.port);
    }
    return false;
  }
  template <class Enum>
  static bool to_next(Enum& value) {
    const auto next = static_cast<std::size_t>(value) + 1;
    value = static_cast<Enum>(next % Names<Enum>::values.size());
    return true;
  }
  bool to_next_group(GroupId& id) {
    const std::vector<Group>& all = program_.groups;
    const auto now = std::ranges::find(all, id, &Group::id);
    if (now == all.end() || all.size() < 2) return false;
    id = (std::next(now) == all.end() ? all.begin() : std::next(now))->id;
    return true;
  }
  /// Whole where it was cut, and cut once where it was whole.
  bool cut_otherwise(Placement& placement, GroupId id) {
    const auto group = std::ranges::find(program_.groups, id, &Group::id);
    if (group == program_.groups.end() || group->cut.empty()) return false;
    if (placement.empty())
      placement.push_back({.axis = group->cut.front(), .kind = PlacementKind::flat, .dim = {}});
    else
      placement.clear();
    return true;
  }

  bool change_group() {
    if (mutant_.index >= program_.groups.size()) return false;
    Group& group = program_.groups[mutant_.index];
    if (mutant_.kind == change_placement) return change_placement_of(group);
    if (mutant_.kind == change_group_dtype) return set(group.dtype);
    return mutant_.part < group.parameters.size() && add(group.parameters[mutant_.part].offset);
  }

  bool change_placement_of(Group& group) {
    switch (static_cast<PlacementPart>(mutant_.part)) {
      case PlacementPart::weight: return cut_otherwise(group.weight, group.id);
      case PlacementPart::gradient: return cut_otherwise(group.gradient, group.id);
      case PlacementPart::state: return cut_otherwise(group.state, group.id);
      case PlacementPart::reduce:
        if (group.reduce.empty()) return false;
        group.reduce.pop_back();
        return true;
    }
    return false;
  }

  // ---- the order of ops -------------------------------------------------------------------------

  bool change_order(Plan& plan) {
    if (!reorder()) return false;
    rebind(plan, program_.events);
    return true;
  }

  bool reorder() {
    switch (mutant_.kind) {
      case drop_wait: return drop({OpKind::wait, OpKind::host_wait});
      case drop_record: return drop({OpKind::record});
      case drop_collective: return drop({OpKind::collective});
      case drop_copy: return drop({OpKind::copy});
      case drop_kernel: return drop({OpKind::kernel});
      case drop_acquire: return drop({OpKind::acquire});
      case drop_release: return drop({OpKind::release});
      case double_collective: return repeat(OpKind::collective);
      case double_kernel: return repeat(OpKind::kernel);
      case swap_neighbours: return swap_with(mutant_.index + 1, false);
      case swap_on_stream: return swap_with(next_on_stream(), true);
      case reorder_collectives: return swap_collectives();
      case release_early: return release_before_last_use();
      case acquire_late: return acquire_after_first_use();
      default: return false;
    }
  }

  bool drop(std::initializer_list<OpKind> kinds) {
    if (std::ranges::find(kinds, op_->kind()) == kinds.end()) return false;
    ops_->erase(ops_->begin() + mutant_.index);
    return true;
  }

  bool repeat(OpKind kind) {
    if (op_->kind() != kind) return false;
    Op again = *op_;
    std::uint32_t last = 0;
    for (const Plan& plan : program_.plans)
      for (const Op& op : ops_of(plan)) last = std::max(last, op.id.value);
    again.id = OpId(std::size_t{last} + 1);
    ops_->insert(ops_->begin() + mutant_.index + 1, std::move(again));
    return true;
  }

  [[nodiscard]] std::size_t next_on_stream() const {
    std::size_t next = mutant_.index + std::size_t{1};
    while (next < ops_->size() && (*ops_)[next].stream != op_->stream) ++next;
    return next;
  }

  bool swap_with(std::size_t other, bool same_stream) {
    if (other >= ops_->size()) return false;
    Op& next = (*ops_)[other];
    if ((next.stream == op_->stream) != same_stream || next.body == op_->body) return false;
    std::swap(*op_, next);
    return true;
  }

  bool swap_collectives() {
    const auto* first = std::get_if<Collective>(&op_->body);
    if (first == nullptr) return false;
    const auto find = [&](bool any) {
      std::size_t next = mutant_.index + std::size_t{1};
      for (; next < ops_->size(); ++next)
        if (const auto* other = std::get_if<Collective>(&(*ops_)[next].body))
          if (any || other->communicator == first->communicator) break;
      return next;
    };
    const std::size_t nearest = find(true);
    const std::size_t next = mutant_.part == 0 ? nearest : find(false);
    if (next >= ops_->size() || (mutant_.part == 1 && next == nearest)) return false;
    std::swap(*op_, (*ops_)[next]);
    return true;
  }

  [[nodiscard]] static bool touches(const Op& op, BufferId buffer) {
    bool found = false;
    for_each_operand(op,
                     [&](const Operand& operand) { found = found || operand.buffer == buffer; });
    return found;
  }

  bool release_before_last_use() {
    const auto* release = std::get_if<Release>(&op_->body);
    if (release == nullptr) return false;
    const auto here = ops_->begin() + mutant_.index;
    const auto use =
        std::find_if(std::make_reverse_iterator(here), ops_->rend(),
                     [buffer = release->buffer](const Op& op) { return touches(op, buffer); });
    if (use == ops_->rend()) return false;
    std::rotate(std::prev(use.base()), here, std::next(here));
    return true;
  }

  bool acquire_after_first_use() {
    const auto* acquire = std::get_if<Acquire>(&op_->body);
    if (acquire == nullptr) return false;
    const auto here = ops_->begin() + mutant_.index;
    const auto use = std::find_if(here, ops_->end(), [buffer = acquire->buffer](const Op& op) {
      return touches(op, buffer);
    });
    if (use == ops_->end()) return false;
    std::rotate(here, std::next(here), std::next(use));
    return true;
  }

  // ---- one op -----------------------------------------------------------------------------------

  bool change_op() {
    if (mutant_.kind == change_stream) return move_to_next_stream();
    if (mutant_.kind == change_op_group) return op_->group && to_next_group(*op_->group);
    if (mutant_.kind == change_scale) return drop_scaling();
    if (mutant_.kind == change_lag) return add(op_->lag);
    if (mutant_.kind == change_distance) return change_distance_of_wait();
    if (auto* collective = std::get_if<Collective>(&op_->body))
      if (change(*collective)) return true;
    if (auto* kernel = std::get_if<Kernel>(&op_->body))
      if (mutant_.kind == change_attribute)
        return mutant_.part < kernel->attributes.size() &&
               add(kernel->attributes[mutant_.part].value.num);
    if (auto* copy = std::get_if<Copy>(&op_->body); copy != nullptr && mutant_.kind == change_shape)
      return change_shape_of(copy->input) && change_shape_of(copy->output);
    Operand* operand = operand_at(*op_, mutant_.part);
    return operand != nullptr && change(*operand);
  }

  bool change_distance_of_wait() {
    const auto change = [&](auto* wait) {
      return wait != nullptr && mutant_.part < wait->bindings.size() &&
             add(wait->bindings[mutant_.part].distance);
    };
    return change(std::get_if<Wait>(&op_->body)) || change(std::get_if<HostWait>(&op_->body));
  }

  bool change_shape_of(Operand& operand) {
    return mutant_.dim < operand.shape.size() && add(operand.shape[mutant_.dim]);
  }

  bool change(Operand& operand) {
    switch (mutant_.kind) {
      case shift_operand: return add(operand.offset);
      case change_shape: return change_shape_of(operand);
      case change_dtype: return set(operand.dtype);
      case shift_rank:
        return mutant_.dim < operand.rank_strides.size() &&
               add(operand.rank_strides[mutant_.dim].bytes);
      default: return false;
    }
  }

  bool change(Collective& collective) {
    switch (mutant_.kind) {
      case change_count: return change_counts(collective);
      case change_reduction:
        collective.reduction =
            collective.reduction == Reduction::none ? Reduction::sum : Reduction::none;
        return true;
      case change_collective:
        collective.kind = static_cast<CollectiveKind>(
            (static_cast<std::int64_t>(collective.kind) + mutant_.by) % kAmongAll);
        return true;
      case change_communicator: return change_members(collective);
      case change_peer: return collective.peer && add(collective.peer->step);
      case change_dtype:
        if (mutant_.part == kWholeCollective) {
          set(collective.input.dtype);
          set(collective.output.dtype);
        }
        return mutant_.part >= kCollectiveAlone && set(collective.dtype);
      default: return false;
    }
  }

  bool change_counts(Collective& collective) {
    add(collective.count);
    if (mutant_.part == 0) return true;
    const auto communicator =
        std::ranges::find(program_.communicators, collective.communicator, &Communicator::id);
    if (communicator == program_.communicators.end()) return false;
    const CollectiveSizes sizes = collective.sizes(communicator->size);
    collective.input.shape = {sizes.input};
    collective.output.shape = {sizes.output};
    return true;
  }

  bool change_members(Collective& collective) {
    const std::vector<Communicator>& all = program_.communicators;
    const auto now = std::ranges::find(all, collective.communicator, &Communicator::id);
    if (now == all.end()) return false;
    auto next = now;
    do {
      if (++next == all.end()) next = all.begin();
    } while (next->size != now->size);
    if (next == now) return false;
    collective.communicator = next->id;
    return true;
  }

  bool move_to_next_stream() {
    const std::vector<Stream>& all = program_.streams;
    const auto now = std::ranges::find(all, op_->stream, &Stream::id);
    if (now == all.end() || all.size() < 2) return false;
    op_->stream = (std::next(now) == all.end() ? all.begin() : std::next(now))->id;
    return true;
  }

  /// An update or a norm without 1/T or clip factor.
  bool drop_scaling() {
    auto* kernel = std::get_if<Kernel>(&op_->body);
    if (kernel == nullptr || mutant_.part >= kernel->operands.size()) return false;
    const std::string& role = kernel->operands[mutant_.part].role;
    if (role != "loss" && role != "norm") return false;
    kernel->operands.erase(kernel->operands.begin() + mutant_.part);
    return true;
  }

  Program& program_;
  const Mutant& mutant_;
  std::vector<Op>* ops_ = nullptr;
  Op* op_ = nullptr;
};

}  // namespace

std::optional<Program> apply(const Program& program, const Mutant& mutant) {
  Program changed = program;
  if (!Change(changed, mutant).run()) return std::nullopt;
  return changed;
}

}  // namespace mfsdp
