#include "verify/proof/structure.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>
#include <tuple>

#include "verify/proof/overlap.hpp"

namespace mfsdp {
namespace {

class ProgramCheck {
 public:
  ProgramCheck(const Program& program, const ProgramIndex& index, FindingList& findings)
      : program_(program), index_(index), findings_(findings), groups_(program.groups) {}

  void check_lists() {
    unique(program_.streams, "streams");
    unique(program_.communicators, "communicators");
    unique(program_.events, "events");
    unique(program_.units, "units");
    unique(program_.groups, "groups");
    unique(program_.pools, "pools");
    unique(program_.buffers, "buffers");
    if (program_.streams.size() > kMostStreams)
      add("MF004", "streams",
          fmt::format("expected at most {}, got {}", kMostStreams, program_.streams.size()));
    check_mesh();
    for (std::size_t g = 0; g < program_.groups.size(); ++g) check_group(g);
    check_memory();
    check_op_ids();
  }

  AccessTable check_plan(const Plan& plan, const std::string& where) {
    plan_where_ = where;
    AccessTable table;
    table_ = &table;
    find_records(plan);
    Int128 begun = 0;
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& segment = plan.segments[s];
      segment_ = s;
      begun_ = begun + segment.microbatches;
      begun += Int128{segment.microbatches} * segment.repeat;
      if (segment.repeat < 1)
        add("MF004", fmt::format("{}.segments[{}].repeat", where, s), "expected at least 1");
      check_live(segment.live_in, "live_in");
      check_live(segment.live_out, "live_out");
      group_stream_.clear();
      group_communicator_.clear();
      for (op_ = 0; op_ < segment.ops.size(); ++op_) {
        check_op(segment.ops[op_]);
        table.first.push_back(static_cast<std::uint32_t>(table.accesses.size()));
      }
      if (!group_stream_.empty())
        add("MF005", fmt::format("{}.segments[{}]", where, s), "a group does not end in it");
    }
    return table;
  }

 private:
  void add(const char* rule, const std::string& where, const std::string& what,
           std::optional<BufferId> buffer = std::nullopt) {
    if (!findings_.wants(rule)) return;
    findings_.add({.rule = rule, .message = where + ": " + what, .buffer = buffer});
  }
  /// At the op that is being checked.
  void add_here(const char* rule, std::string_view field, const std::string& what,
                std::optional<BufferId> buffer = std::nullopt) {
    if (!findings_.wants(rule)) return;
    add(rule, fmt::format("{}.segments[{}].ops[{}]{}", plan_where_, segment_, op_, field), what,
        buffer);
  }

  template <class T>
  void unique(const std::vector<T>& list, const char* name) {
    std::vector<std::uint32_t> ids;
    ids.reserve(list.size());
    for (const T& item : list) ids.push_back(item.id.value);
    report_doubles(ids, name);
  }

  void report_doubles(std::vector<std::uint32_t>& ids, const char* name) {
    if (!std::ranges::is_sorted(ids)) std::ranges::sort(ids);
    for (auto at = std::ranges::adjacent_find(ids); at != ids.end();
         at = std::adjacent_find(std::next(at), ids.end()))
      add("MF002", name, fmt::format("id {} appears twice", *at));
  }

  /// Bounded, so that what follows may multiply sizes.
  void check_mesh() {
    constexpr std::int64_t kBound = std::int64_t{1} << 40;
    const Mesh& mesh = program_.config.mesh;
    for (const auto* grid : {&mesh.dense, &mesh.experts}) {
      Int128 ranks = 1;
      for (const MeshAxis& on : *grid) {
        if (on.size < 1)
          return add("MF004", "config.mesh", "expected at least one rank on each axis");
        if (std::ranges::count(*grid, on.axis, &MeshAxis::axis) > 1)
          return add("MF004", "config.mesh", fmt::format("{} stands twice", to_string(on.axis)));
        ranks *= on.size;
        if (ranks > kBound)
          return add("MF004", "config.mesh", fmt::format("expected at most {} ranks", kBound));
      }
    }
  }

  void check_group(std::size_t g) {
    const Group& group = program_.groups[g];
    const auto distinct = [&](std::vector<Axis> axes, const char* name) {
      std::ranges::sort(axes);
      if (std::ranges::adjacent_find(axes) != axes.end())
        add("MF004", fmt::format("groups[{}].{}", g, name), "an axis stands twice");
    };
    distinct(group.cut, "cut");
    distinct(group.reduce, "reduce");
  }

  void check_op_ids() {
    std::vector<std::uint32_t> ids;
    for (const Plan& plan : program_.plans)
      for (const Segment& segment : plan.segments)
        for (const Op& op : segment.ops) ids.push_back(op.id.value);
    report_doubles(ids, "ops");
  }

  void check_memory() {
    for (std::size_t i = 0; i < program_.pools.size(); ++i) {
      const Pool& pool = program_.pools[i];
      const std::string where = fmt::format("pools[{}]", i);
      if (pool.height.value < 0) add("MF004", where + ".height", "expected no negative size");
      if (pool.alignment < 1 || (pool.alignment & (pool.alignment - 1)) != 0)
        add("MF004", where + ".alignment", "expected a power of two");
      if (pool.registered && !index_.communicators.find(*pool.registered))
        add("MF001", where + ".registered",
            fmt::format("there is no communicator with id {}", pool.registered->value));
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) check_buffer(i);
    for (std::size_t i = 0; i < program_.events.size(); ++i)
      if (bad_instances(program_.events[i].instances))
        add("MF004", fmt::format("events[{}]", i), "expected 2 to 4096 instances");
  }

  static bool bad_instances(const std::optional<std::int64_t>& instances) {
    return instances && (*instances < 2 || *instances > 4096);
  }

  void check_buffer(std::size_t i) {
    const Buffer& buffer = program_.buffers[i];
    const auto where = [&] { return fmt::format("buffers[{}] ('{}')", i, buffer.name); };
    const auto found = index_.pools.find(buffer.pool);
    if (!found) {
      add("MF001", where(), fmt::format("there is no pool with id {}", buffer.pool.value));
      return;
    }
    const Pool& pool = program_.pools[*found];
    if (buffer.size.value < 0 || buffer.offset.value < 0) {
      add("MF004", where(), "expected no negative size or offset", buffer.id);
      return;
    }
    if (bad_instances(buffer.instances) || (buffer.instances && buffer.persistent)) {
      add("MF004", where(), "expected 2 to 4096 instances, of a transient buffer alone", buffer.id);
      return;
    }
    const Int128 unit = std::max<std::int64_t>(pool.alignment, 1);
    const Int128 pitch = (Int128{buffer.size.value} + unit - 1) / unit * unit;
    const Int128 before_last = pitch * (buffer.instances.value_or(1) - 1);
    if (before_last + buffer.offset.value + buffer.size.value > pool.height.value)
      add("MF003", where(),
          fmt::format("{} bytes from {} leave pool '{}' of {} bytes", buffer.size.value,
                      buffer.offset.value, pool.name, pool.height.value),
          buffer.id);
    if (pool.alignment > 0 && buffer.offset.value % pool.alignment != 0)
      add("MF004", where(),
          fmt::format("expected an offset that is a multiple of {}", pool.alignment), buffer.id);
    if (buffer.holds) check_contents(buffer, where);
  }

  template <class Where>
  void check_contents(const Buffer& buffer, Where where) {
    const Contents& holds = *buffer.holds;
    if ((holds.kind == ContentKind::port) != holds.port.has_value() ||
        (holds.kind == ContentKind::port) != holds.groups.empty())
      add("MF004", where(), "expected a port of kind port, else groups", buffer.id);
    if (holds.port && (!buffer.persistent || !ports_.insert(*holds.port).second))
      add("MF004", where(), "expected one persistent buffer for each port", buffer.id);
    for (const HeldGroup& held : holds.groups) {
      if (buffer.persistent && !kept_.emplace(holds.kind, holds.state, held.group).second)
        add("MF004", where(),
            fmt::format("expected one persistent buffer for what it holds of group {}",
                        held.group.value),
            buffer.id);
      if (!groups_.find(held.group))
        add("MF001", where(), fmt::format("there is no group with id {}", held.group.value));
      if (held.offset < 0)
        add("MF004", where(), "expected no negative offset of a group", buffer.id);
    }
  }

  void find_records(const Plan& plan) {
    records_.clear();
    for (const Segment& segment : plan.segments)
      for (const Op& op : segment.ops)
        if (const auto* record = std::get_if<Record>(&op.body))
          records_.emplace_back(op.id, record->event);
    std::ranges::sort(records_);
  }

  void check_live(const std::vector<BufferId>& live, const char* name) {
    for (const BufferId id : live) {
      const auto found = index_.buffers.find(id);
      const std::string where = fmt::format("{}.segments[{}].{}", plan_where_, segment_, name);
      if (!found) {
        add("MF001", where, fmt::format("there is no buffer with id {}", id.value));
      } else if (program_.buffers[*found].persistent) {
        add("MF004", where, fmt::format("buffer {} is persistent", id.value), id);
      }
    }
  }

  // ---- ops ------------------------------------------------------------------------------------

  void check_op(const Op& op) {
    if (!index_.streams.find(op.stream))
      add_here("MF001", ".stream", fmt::format("there is no stream with id {}", op.stream.value));
    if (op.unit && !index_.units.find(*op.unit))
      add_here("MF001", ".unit", fmt::format("there is no unit with id {}", op.unit->value));
    if (op.group && !groups_.find(*op.group))
      add_here("MF001", ".group", fmt::format("there is no group with id {}", op.group->value));
    if (op.lag < 0 || (op.lag > 0 && op.lag >= begun_))
      add_here("MF004", ".lag", "expected a microbatch of the step that has begun");
    check_launch(op);
    check_launch_communicator(op);
    std::visit([this](const auto& body) { check(body); }, op.body);
  }

  /// The ops from a group's begin to its end are one launch on one stream.
  void check_launch(const Op& op) {
    if (op.kind() == OpKind::group_begin) {
      group_stream_.push_back(op.stream);
    } else if (op.kind() == OpKind::group_end) {
      if (group_stream_.empty())
        add_here("MF005", "", "a group ends that has not begun");
      else
        group_stream_.pop_back();
    } else if (!group_stream_.empty() && op.kind() != OpKind::collective) {
      add_here("MF005", "",
               fmt::format("a {} inside a group of collectives", to_string(op.kind())));
    }
    if (!group_stream_.empty() && group_stream_.front() != op.stream)
      add_here("MF005", "", "is on another stream than the group that it is in");
  }

  /// A group is of one communicator: its begin, its end and all that it launches.
  void check_launch_communicator(const Op& op) {
    std::optional<CommunicatorId> own;
    if (const auto* begin = std::get_if<GroupBegin>(&op.body)) {
      group_communicator_.push_back(begin->communicator);
    } else if (const auto* end = std::get_if<GroupEnd>(&op.body)) {
      own = end->communicator;
    } else if (const auto* collective = std::get_if<Collective>(&op.body)) {
      own = collective->communicator;
    }
    if (!own || group_communicator_.empty()) return;
    const auto is_known = [&](CommunicatorId id) {
      return index_.communicators.find(id).has_value();
    };
    const CommunicatorId of_group = group_communicator_.back();
    if (*own != of_group && is_known(*own) && is_known(of_group))
      add_here("MF005", ".communicator",
               fmt::format("is {}, in a group of communicator {}", own->value, of_group.value));
    if (op.kind() == OpKind::group_end) group_communicator_.pop_back();
  }

  [[nodiscard]] const Buffer* buffer(BufferId id, std::string_view field) {
    if (const auto found = index_.buffers.find(id)) return &program_.buffers[*found];
    add_here("MF001", field, fmt::format("there is no buffer with id {}", id.value));
    return nullptr;
  }
  void resolve(EventId id) {
    if (!index_.events.find(id))
      add_here("MF001", ".event", fmt::format("there is no event with id {}", id.value));
  }
  void resolve(CommunicatorId id) {
    if (!index_.communicators.find(id))
      add_here("MF001", ".communicator",
               fmt::format("there is no communicator with id {}", id.value));
  }

  void check(const Kernel& kernel) {
    for (const Operand& operand : kernel.operands) check_operand(operand);
  }
  void check(const Collective& collective) {
    resolve(collective.communicator);
    if (collective.count < 0) add_here("MF004", ".count", "expected no negative number");
    check_stated(collective.input, collective.kind != CollectiveKind::recv, ".input");
    check_stated(collective.output, collective.kind != CollectiveKind::send, ".output");
    const auto found = index_.communicators.find(collective.communicator);
    if (collective.peer.has_value() != is_point_to_point(collective.kind))
      add_here("MF004", ".peer", "expected of send and recv, and of these alone");
    else if (collective.peer && found &&
             std::ranges::find(program_.communicators[*found].axes, collective.peer->axis) ==
                 program_.communicators[*found].axes.end())
      add_here("MF004", ".peer", "expected a step along an axis of the communicator");
  }
  void check_stated(const Operand& operand, bool wanted, std::string_view field) {
    if (operand.stated() != wanted)
      add_here("MF004", field, wanted ? "is missing" : "expected none");
    else if (wanted)
      check_operand(operand);
  }
  void check(const Copy& copy) {
    check_operand(copy.input);
    check_operand(copy.output);
    if (bytes_of_operand(copy.input) != bytes_of_operand(copy.output))
      add_here("MF004", ".copy", "input and output differ in bytes");
  }
  void check(const Record& record) { resolve(record.event); }
  void check(const Wait& wait) { check_wait(wait); }
  void check(const HostWait& wait) { check_wait(wait); }
  void check(const Acquire& acquire) { check_whole(acquire.buffer); }
  void check(const Release& release) { check_whole(release.buffer); }
  void check(const GroupBegin& group) { resolve(group.communicator); }
  void check(const GroupEnd& group) { resolve(group.communicator); }

  template <class AnyWait>
  void check_wait(const AnyWait& wait) {
    resolve(wait.event);
    if (wait.bindings.empty()) add_here("MF004", ".bindings", "expected at least one record");
    for (const Binding& binding : wait.bindings) {
      if (!std::ranges::binary_search(records_, std::pair(binding.record, wait.event)))
        add_here("MF001", ".bindings",
                 fmt::format("no op {} records event {} in this plan", binding.record.value,
                             wait.event.value));
      constexpr std::int64_t kMostRuns = std::int64_t{1} << 40;
      if (binding.distance < 0 || binding.distance > kMostRuns)
        add_here("MF004", ".bindings", fmt::format("expected a distance of 0 to {}", kMostRuns));
    }
  }

  void check_whole(BufferId id) {
    const Buffer* found = buffer(id, ".buffer");
    if (found == nullptr) return;
    if (found->persistent)
      add_here("MF004", ".buffer", fmt::format("buffer '{}' is persistent", found->name), id);
    keep(found, true, true, 0, found->size.value, nullptr);
  }

  void keep(const Buffer* buffer, bool writes, bool exact, std::int64_t begin, std::int64_t end,
            const Operand* operand) {
    if (begin >= end) return;
    table_->accesses.push_back(
        {.buffer = static_cast<std::uint32_t>(buffer - program_.buffers.data()),
         .writes = writes,
         .exact = exact,
         .begin = begin,
         .end = end,
         .operand = operand});
  }

  void check_operand(const Operand& operand) {
    const Buffer* found = buffer(operand.buffer, "");
    if (found == nullptr) return;
    try {
      add_span(operand, *found);
    } catch (const OverflowError&) {
      add_here("MF004", "",
               fmt::format("operand '{}' has a size or offset beyond 63 bits", operand.role),
               found->id);
    }
  }

  /// Bytes of an operand's elements; nothing where they leave 63 bits, which is reported elsewhere.
  static std::optional<std::int64_t> bytes_of_operand(const Operand& operand) {
    try {
      return operand.touched_bytes();
    } catch (const OverflowError&) {
      return std::nullopt;
    }
  }

  static bool has_axis_twice(const std::vector<RankStride>& strides) {
    return std::ranges::any_of(strides, [&](const RankStride& stride) {
      return std::ranges::count(strides, stride.axis, &RankStride::axis) > 1;
    });
  }

  void add_span(const Operand& operand, const Buffer& buffer) {
    if (!operand.strides.empty() && operand.strides.size() != operand.shape.size()) {
      add_here("MF004", "",
               fmt::format("operand '{}' has {} strides for {} dims", operand.role,
                           operand.strides.size(), operand.shape.size()));
      return;
    }
    bool negative = operand.offset < 0;
    for (const std::int64_t dim : operand.shape) negative = negative || dim < 0;
    for (const std::int64_t stride : operand.strides) negative = negative || stride < 0;
    if (negative) {
      add_here("MF004", "",
               fmt::format("operand '{}' has a negative offset, dim or stride", operand.role),
               buffer.id);
      return;
    }
    if (has_axis_twice(operand.rank_strides))
      add_here("MF004", "", fmt::format("operand '{}' strides twice along an axis", operand.role));
    const std::int64_t span = operand.span_bytes();
    if (span == 0) return;
    std::int64_t begin = operand.offset;
    std::int64_t end = checked_add(operand.offset, span);
    bool exact = is_contiguous(operand);
    for (const RankStride& stride : operand.rank_strides) {
      const std::int64_t ranks = program_.config.mesh.size(stride.axis);
      const std::int64_t reach = checked_mul(stride.bytes, checked_sub(ranks, 1));
      (reach < 0 ? begin : end) = checked_add(reach < 0 ? begin : end, reach);
      exact = exact && reach == 0;
    }
    if (begin < 0 || end > buffer.size.value) {
      add_here("MF003", "",
               fmt::format("operand '{}' touches bytes [{}, {}) of buffer '{}', which has {}",
                           operand.role, begin, end, buffer.name, buffer.size.value),
               buffer.id);
      return;
    }
    keep(&buffer, operand.access != Access::read, exact, begin, end, &operand);
  }

  const Program& program_;
  const ProgramIndex& index_;
  FindingList& findings_;
  IdIndex<GroupId> groups_;
  std::set<Port> ports_;  // that a buffer is
  /// What persistent buffers hold: of runs and saves each has one place.
  std::set<std::tuple<ContentKind, std::string, GroupId>> kept_;
  AccessTable* table_ = nullptr;
  std::vector<std::pair<OpId, EventId>> records_;   // of the plan, ascending
  std::vector<StreamId> group_stream_;              // of the open groups
  std::vector<CommunicatorId> group_communicator_;  // likewise
  std::string plan_where_;
  std::size_t segment_ = 0;
  std::size_t op_ = 0;
  Int128 begun_ = 0;  // microbatches, in the first run of the segment
};

}  // namespace

void check_program(const Program& program, const ProgramIndex& index,
                   std::vector<AccessTable>& tables, FindingList& findings) {
  ProgramCheck check(program, index, findings);
  check.check_lists();
  tables.clear();
  for (std::size_t p = 0; p < program.plans.size(); ++p)
    tables.push_back(check.check_plan(program.plans[p], fmt::format("plans[{}]", p)));
}

}  // namespace mfsdp
