#include "core/plan/structure_faults.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <tuple>
#include <utility>

#include "core/plan/index.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// What is summed of them stays far from 63 bits.
constexpr std::int64_t kMostPoolBytes = std::int64_t{1} << 60;
/// Likewise of what is multiplied with the ranks of an axis.
constexpr std::int64_t kMostMeshRanks = std::int64_t{1} << 40;
/// Of a buffer or an event: microbatches that may be under way.
constexpr std::int64_t kMostInstances = 4096;
/// Of a pool: more than any page of memory that it could lie in.
constexpr std::int64_t kMostAlignment = std::int64_t{1} << 30;
/// Runs of a segment between a record and a wait.
constexpr std::int64_t kMostDistance = std::int64_t{1} << 40;

class FaultFinder {
 public:
  FaultFinder(const Program& program, std::size_t most) : program_(program), most_(most) {}

  std::vector<StructureFault> run() {
    index_lists();
    check_mesh();
    for (std::size_t g = 0; g < program_.groups.size(); ++g) check_group(g);
    check_pools();
    for (std::size_t b = 0; b < program_.buffers.size(); ++b) check_buffer(b);
    for (std::size_t e = 0; e < program_.events.size(); ++e)
      if (bad_instances(program_.events[e].instances)) add_instances(fmt::format("events[{}]", e));
    index_ops();
    for (plan_ = 0; plan_ < program_.plans.size(); ++plan_) check_plan(program_.plans[plan_]);
    return std::move(faults_);
  }

 private:
  // ---- faults and their places ----------------------------------------------------------------

  /// Whether another fault of that kind is kept: ask before composing it.
  [[nodiscard]] bool wants(StructureFaultKind kind) const {
    return counts_.at(static_cast<std::size_t>(kind)) < most_;
  }
  void add(StructureFaultKind kind, std::string where, std::string what,
           std::optional<BufferId> buffer = std::nullopt) {
    if (!wants(kind)) return;
    ++counts_.at(static_cast<std::size_t>(kind));
    faults_.push_back(
        {.kind = kind, .where = std::move(where), .what = std::move(what), .buffer = buffer});
  }
  [[nodiscard]] std::string segment_place() const {
    return fmt::format("plans[{}].segments[{}]", plan_, segment_);
  }
  /// At the op that is being checked: `field` goes on from it.
  void add_here(StructureFaultKind kind, std::string_view field, std::string what,
                std::optional<BufferId> buffer = std::nullopt) {
    if (wants(kind))
      add(kind, fmt::format("{}.ops[{}]{}", segment_place(), op_, field), std::move(what), buffer);
  }
  /// Of the op's body, which is an object of one key.
  void add_in_body(StructureFaultKind kind, std::string_view field, std::string what,
                   std::optional<BufferId> buffer = std::nullopt) {
    if (wants(kind))
      add_here(kind, fmt::format(".body.{}{}", to_string(now_->kind()), field), std::move(what),
               buffer);
  }

  static std::string no_such(std::string_view what, std::uint32_t id) {
    return fmt::format("there is no {} with id {}", what, id);
  }
  template <class Key>
  bool resolves_here(const IdIndex<Key>& ids, Key id, std::string_view field,
                     std::string_view what) {
    if (ids.find(id)) return true;
    add_here(StructureFaultKind::unknown_id, field, no_such(what, id.value));
    return false;
  }
  template <class Key>
  bool resolves_in_body(const IdIndex<Key>& ids, Key id, std::string_view field,
                        std::string_view what) {
    if (ids.find(id)) return true;
    add_in_body(StructureFaultKind::unknown_id, field, no_such(what, id.value));
    return false;
  }

  // ---- lists ----------------------------------------------------------------------------------

  template <class Key, class T>
  void index(IdIndex<Key>& into, const std::vector<T>& list, std::string_view name) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (!into.insert(list[i].id, i) && wants(StructureFaultKind::double_id))
        add(StructureFaultKind::double_id, fmt::format("{}[{}].id", name, i),
            fmt::format("id {} appears twice", list[i].id.value));
  }

  void index_lists() {
    if (program_.streams.size() > kMostPlanStreams)
      add(StructureFaultKind::malformed, "streams",
          fmt::format("expected at most {}, got {}", kMostPlanStreams, program_.streams.size()));
    index(streams_, program_.streams, "streams");
    index(communicators_, program_.communicators, "communicators");
    index(events_, program_.events, "events");
    index(units_, program_.units, "units");
    index(pools_, program_.pools, "pools");
    index(buffers_, program_.buffers, "buffers");
    index(groups_, program_.groups, "groups");
  }

  void index_ops() {
    std::size_t number = 0;
    for (plan_ = 0; plan_ < program_.plans.size(); ++plan_)
      for (segment_ = 0; segment_ < program_.plans[plan_].segments.size(); ++segment_) {
        const auto& ops = program_.plans[plan_].segments[segment_].ops;
        for (op_ = 0; op_ < ops.size(); ++op_)
          if (!ops_.insert(ops[op_].id, number++))
            add_here(StructureFaultKind::double_id, ".id",
                     fmt::format("id {} appears twice", ops[op_].id.value));
      }
  }

  /// Bounded, so that what follows may multiply sizes.
  void check_mesh() {
    const Mesh& mesh = program_.config.mesh;
    for (const auto* grid : {&mesh.dense, &mesh.experts}) {
      Int128 ranks = 1;
      for (const MeshAxis& on : *grid) {
        ranks = std::min(ranks * on.size, Int128{kMostMeshRanks} + 1);
        if (on.size < 1)
          return add(StructureFaultKind::malformed, "config.mesh",
                     fmt::format("expected at least one rank on {}", to_string(on.axis)));
        if (std::ranges::count(*grid, on.axis, &MeshAxis::axis) > 1)
          return add(StructureFaultKind::malformed, "config.mesh",
                     fmt::format("{} stands here twice", to_string(on.axis)));
      }
      if (ranks > kMostMeshRanks)
        return add(StructureFaultKind::malformed, "config.mesh",
                   fmt::format("expected at most {} ranks", kMostMeshRanks));
    }
  }

  void check_group(std::size_t g) {
    const Group& group = program_.groups[g];
    if (!units_.find(group.unit))
      add(StructureFaultKind::unknown_id, fmt::format("groups[{}].unit", g),
          no_such("unit", group.unit.value));
    for (const auto& [axes, name] :
         {std::pair{&group.cut, "cut"}, std::pair{&group.reduce, "reduce"}})
      for (std::size_t a = 0; a < axes->size(); ++a)
        if (std::ranges::count(*axes, (*axes)[a]) > 1)
          add(StructureFaultKind::malformed, fmt::format("groups[{}].{}[{}]", g, name, a),
              fmt::format("{} stands here twice", to_string((*axes)[a])));
  }

  // ---- memory ---------------------------------------------------------------------------------

  void check_pools() {
    Int128 height = 0;
    for (std::size_t i = 0; i < program_.pools.size(); ++i) {
      const Pool& pool = program_.pools[i];
      if (pool.height.value < 0 || height + pool.height.value > kMostPoolBytes)
        add(StructureFaultKind::malformed, fmt::format("pools[{}].height", i),
            fmt::format("expected 0 to 2^60 bytes in all pools, got {} beside {}",
                        pool.height.value, static_cast<std::int64_t>(height)));
      else
        height += pool.height.value;
      if (pool.alignment < 1 || pool.alignment > kMostAlignment ||
          (pool.alignment & (pool.alignment - 1)) != 0)
        add(StructureFaultKind::malformed, fmt::format("pools[{}].alignment", i),
            "expected a power of two up to 2^30");
      if (pool.registered && !communicators_.find(*pool.registered))
        add(StructureFaultKind::unknown_id, fmt::format("pools[{}].registered", i),
            no_such("communicator", pool.registered->value));
    }
  }

  static bool bad_instances(const std::optional<std::int64_t>& instances) {
    return instances && (*instances < 2 || *instances > kMostInstances);
  }
  void add_instances(const std::string& where, std::optional<BufferId> buffer = std::nullopt) {
    add(StructureFaultKind::malformed, where + ".instances",
        fmt::format("expected 2 to {} (one is left out), and none of a persistent buffer",
                    kMostInstances),
        buffer);
  }

  void check_buffer(std::size_t i) {
    const Buffer& buffer = program_.buffers[i];
    const auto where = [&] { return fmt::format("buffers[{}]", i); };
    const auto found = pools_.find(buffer.pool);
    if (!found)
      return add(StructureFaultKind::unknown_id, where() + ".pool",
                 no_such("pool", buffer.pool.value));
    const Pool& pool = program_.pools[*found];
    if (buffer.size.value < 0 || buffer.offset.value < 0)
      return add(StructureFaultKind::malformed, where(), "expected no negative size or offset",
                 buffer.id);
    if (bad_instances(buffer.instances) || (buffer.instances && buffer.persistent))
      return add_instances(where(), buffer.id);
    if (pool.alignment > 0 && buffer.offset.value % pool.alignment != 0)
      add(StructureFaultKind::malformed, where() + ".offset",
          fmt::format("expected a multiple of {}", pool.alignment), buffer.id);
    const Int128 unit = std::max<std::int64_t>(pool.alignment, 1);
    const Int128 pitch = (Int128{buffer.size.value} + unit - 1) / unit * unit;
    const Int128 end =
        pitch * (buffer.instances.value_or(1) - 1) + buffer.offset.value + buffer.size.value;
    if (end > pool.height.value)
      add(StructureFaultKind::out_of_bounds, where(),
          fmt::format("ends at {} in pool '{}' of {} bytes",
                      static_cast<std::int64_t>(std::min<Int128>(end, INT64_MAX)), pool.name,
                      pool.height.value),
          buffer.id);
    if (buffer.holds) check_holds(buffer, where() + ".holds");
  }

  /// What persistent buffers hold has one place each: runs and saves find it there.
  void check_holds(const Buffer& buffer, const std::string& where) {
    const Contents& holds = *buffer.holds;
    const bool is_port = holds.kind == ContentKind::port;
    if (holds.port.has_value() != is_port)
      add(StructureFaultKind::malformed, where + ".port",
          is_port ? "missing" : "expected only of kind port", buffer.id);
    if (holds.groups.empty() != is_port)
      add(StructureFaultKind::malformed, where + ".groups",
          is_port ? "expected none of kind port" : "expected a group", buffer.id);
    if (holds.port && (!buffer.persistent || !ports_.insert(*holds.port).second))
      add(StructureFaultKind::malformed, where + ".port",
          fmt::format("expected one persistent buffer for {}", to_string(*holds.port)), buffer.id);
    for (std::size_t i = 0; i < holds.groups.size(); ++i) {
      const HeldGroup& held = holds.groups[i];
      const auto place = [&] { return fmt::format("{}.groups[{}]", where, i); };
      if (!groups_.find(held.group))
        add(StructureFaultKind::unknown_id, place() + ".group", no_such("group", held.group.value));
      if (held.offset < 0)
        add(StructureFaultKind::malformed, place() + ".offset", "expected no negative offset",
            buffer.id);
      if (buffer.persistent && !kept_.emplace(holds.kind, holds.state, held.group).second)
        add(StructureFaultKind::malformed, place(),
            fmt::format("expected one persistent buffer for what it holds of group {}",
                        held.group.value),
            buffer.id);
    }
  }

  // ---- plans ----------------------------------------------------------------------------------

  void check_plan(const Plan& plan) {
    find_records(plan);
    Int128 begun = 0;
    for (segment_ = 0; segment_ < plan.segments.size(); ++segment_) {
      const Segment& segment = plan.segments[segment_];
      begun_ = begun + segment.microbatches;
      begun += Int128{segment.microbatches} * segment.repeat;
      if (segment.repeat < 1)
        add(StructureFaultKind::malformed, segment_place() + ".repeat", "expected at least 1");
      check_live(segment.live_in, "live_in");
      check_live(segment.live_out, "live_out");
      launch_ = nullptr;
      for (op_ = 0; op_ < segment.ops.size(); ++op_) check_op(segment.ops[op_]);
      if (launch_ != nullptr)
        add(StructureFaultKind::group, segment_place(),
            fmt::format("op {} opens a group that nothing ends", launch_->id.value));
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

  void check_live(const std::vector<BufferId>& live, std::string_view name) {
    for (std::size_t i = 0; i < live.size(); ++i) {
      const auto found = buffers_.find(live[i]);
      if (found && !program_.buffers[*found].persistent) continue;
      const std::string where = fmt::format("{}.{}[{}]", segment_place(), name, i);
      if (!found)
        add(StructureFaultKind::unknown_id, where, no_such("buffer", live[i].value));
      else
        add(StructureFaultKind::malformed, where,
            fmt::format("buffer {} is persistent", live[i].value), live[i]);
    }
  }

  // ---- ops ------------------------------------------------------------------------------------

  void check_op(const Op& op) {
    now_ = &op;
    resolves_here(streams_, op.stream, ".stream", "stream");
    if (op.unit) resolves_here(units_, *op.unit, ".unit", "unit");
    if (op.group) resolves_here(groups_, *op.group, ".group", "group");
    if (op.lag < 0 || (op.lag > 0 && op.lag >= begun_))
      add_here(StructureFaultKind::malformed, ".lag",
               fmt::format("expected less than the {} microbatches that have begun, got {}",
                           static_cast<std::int64_t>(begun_), op.lag));
    std::visit([this](const auto& body) { check(body); }, op.body);
    check_launch(op);
  }

  /// From its begin to its end a group is collectives of one communicator, on one stream: one
  /// launch. There are no groups in groups.
  void check_launch(const Op& op) {
    const OpKind kind = op.kind();
    if (kind == OpKind::group_end && launch_ == nullptr)
      return add_here(StructureFaultKind::group, "", "group_end without group_begin");
    if (kind == OpKind::group_begin && launch_ == nullptr) {
      launch_ = &op;
      return;
    }
    if (launch_ == nullptr) return;
    if (kind != OpKind::group_end && kind != OpKind::collective)
      add_here(StructureFaultKind::group, "",
               fmt::format("a {} inside a group of collectives", to_string(kind)));
    if (op.stream != launch_->stream)
      add_here(
          StructureFaultKind::group, ".stream",
          fmt::format("is {}, in a group on stream {}", op.stream.value, launch_->stream.value));
    const CommunicatorId of_group = std::get<GroupBegin>(launch_->body).communicator;
    const auto* collective = std::get_if<Collective>(&op.body);
    const auto* end = std::get_if<GroupEnd>(&op.body);
    const CommunicatorId own = collective != nullptr ? collective->communicator
                               : end != nullptr      ? end->communicator
                                                     : of_group;
    if (own != of_group && communicators_.find(own) && communicators_.find(of_group))
      add_in_body(StructureFaultKind::group, ".communicator",
                  fmt::format("is {}, in a group of communicator {}", own.value, of_group.value));
    if (kind == OpKind::group_end) launch_ = nullptr;
  }

  void check(const Kernel& kernel) {
    for (std::size_t i = 0; i < kernel.operands.size(); ++i)
      check_operand(kernel.operands[i], [i] { return fmt::format(".operands[{}]", i); });
  }
  void check(const Collective& collective) {
    const bool known =
        resolves_in_body(communicators_, collective.communicator, ".communicator", "communicator");
    if (collective.count < 0)
      add_in_body(StructureFaultKind::malformed, ".count", "expected no negative number");
    check_side(collective.input, collective.kind, CollectiveKind::recv, ".input");
    check_side(collective.output, collective.kind, CollectiveKind::send, ".output");
    const std::optional<PeerStep>& peer = collective.peer;
    if (peer.has_value() != is_point_to_point(collective.kind))
      return add_in_body(StructureFaultKind::malformed, ".peer",
                         peer ? "expected only of send and recv" : "missing");
    if (!peer || !known) return;
    const auto& axes = program_.communicators[communicators_[collective.communicator]].axes;
    if (std::ranges::find(axes, peer->axis) == axes.end())
      add_in_body(StructureFaultKind::malformed, ".peer.axis",
                  fmt::format("{} is no axis of the communicator", to_string(peer->axis)));
  }
  /// One kind of collective lacks that operand; all others have it.
  void check_side(const Operand& operand, CollectiveKind kind, CollectiveKind lacks,
                  std::string_view field) {
    if (operand.stated() == (kind == lacks))
      return add_in_body(
          StructureFaultKind::malformed, field,
          operand.stated() ? fmt::format("a {} has none", to_string(lacks)) : "missing");
    if (operand.stated()) check_operand(operand, [field] { return std::string(field); });
  }
  void check(const Copy& copy) {
    const bool reads = check_operand(copy.input, [] { return std::string(".input"); });
    const bool writes = check_operand(copy.output, [] { return std::string(".output"); });
    if (reads && writes && copy.input.touched_bytes() != copy.output.touched_bytes())
      add_in_body(StructureFaultKind::malformed, "", "input and output differ in bytes");
  }
  void check(const Record& record) { resolves_in_body(events_, record.event, ".event", "event"); }
  void check(const Wait& wait) { check_wait(wait); }
  void check(const HostWait& wait) { check_wait(wait); }
  void check(const Acquire& acquire) { check_transient(acquire.buffer); }
  void check(const Release& release) { check_transient(release.buffer); }
  void check(const GroupBegin& group) { check_communicator(group.communicator); }
  void check(const GroupEnd& group) { check_communicator(group.communicator); }

  void check_communicator(CommunicatorId id) {
    resolves_in_body(communicators_, id, ".communicator", "communicator");
  }

  void check_transient(BufferId id) {
    if (resolves_in_body(buffers_, id, ".buffer", "buffer") &&
        program_.buffers[buffers_[id]].persistent)
      add_in_body(StructureFaultKind::malformed, ".buffer",
                  fmt::format("buffer {} is persistent", id.value), id);
  }

  template <class AnyWait>
  void check_wait(const AnyWait& wait) {
    resolves_in_body(events_, wait.event, ".event", "event");
    if (wait.bindings.empty())
      add_in_body(StructureFaultKind::malformed, ".bindings", "expected at least one record");
    for (std::size_t i = 0; i < wait.bindings.size(); ++i) {
      const Binding& binding = wait.bindings[i];
      const auto place = [&](const char* field) {
        return fmt::format(".bindings[{}].{}", i, field);
      };
      if (!std::ranges::binary_search(records_, std::pair(binding.record, wait.event)))
        add_in_body(StructureFaultKind::unknown_id, place("record"),
                    ops_.find(binding.record)
                        ? fmt::format("op {} does not record event {} in this plan",
                                      binding.record.value, wait.event.value)
                        : no_such("op", binding.record.value));
      if (binding.distance < 0 || binding.distance > kMostDistance)
        add_in_body(StructureFaultKind::malformed, place("distance"),
                    fmt::format("expected 0 to {}", kMostDistance));
    }
  }

  // ---- operands -------------------------------------------------------------------------------

  /// `place` goes on from the op's body. False where anything is wrong with the operand.
  template <class Place>
  bool check_operand(const Operand& operand, Place place) {
    const auto wrong = [&](StructureFaultKind kind, const char* field, std::string what) {
      if (wants(kind)) add_in_body(kind, place() + field, std::move(what), operand.buffer);
      return false;
    };
    const auto found = buffers_.find(operand.buffer);
    if (!found)
      return wrong(StructureFaultKind::unknown_id, ".buffer",
                   no_such("buffer", operand.buffer.value));
    if (!operand.strides.empty() && operand.strides.size() != operand.shape.size())
      return wrong(StructureFaultKind::malformed, ".strides",
                   "expected as many entries as in shape");
    const auto negative = [](std::int64_t number) { return number < 0; };
    if (operand.offset < 0 || std::ranges::any_of(operand.shape, negative) ||
        std::ranges::any_of(operand.strides, negative))
      return wrong(StructureFaultKind::malformed, "", "expected no negative offset, dim or stride");
    for (const RankStride& stride : operand.rank_strides)
      if (std::ranges::count(operand.rank_strides, stride.axis, &RankStride::axis) > 1)
        return wrong(StructureFaultKind::malformed, ".rank_strides",
                     fmt::format("{} stands here twice", to_string(stride.axis)));
    try {
      return check_span(operand, program_.buffers[*found], wrong);
    } catch (const OverflowError&) {
      return wrong(StructureFaultKind::malformed, "", "a size or offset is beyond 63 bits");
    }
  }

  /// On every rank of the mesh.
  template <class Wrong>
  bool check_span(const Operand& operand, const Buffer& buffer, Wrong wrong) {
    std::int64_t begin = operand.offset;
    std::int64_t end = checked_add(operand.offset, operand.span_bytes());
    for (const RankStride& stride : operand.rank_strides) {
      const std::int64_t ranks = program_.config.mesh.size(stride.axis);
      const std::int64_t reach = checked_mul(stride.bytes, checked_sub(ranks, 1));
      (reach < 0 ? begin : end) = checked_add(reach < 0 ? begin : end, reach);
    }
    if (begin < 0)
      return wrong(StructureFaultKind::out_of_bounds, "",
                   fmt::format("begins at byte {} of buffer '{}'", begin, buffer.name));
    if (end > buffer.size.value)
      return wrong(StructureFaultKind::out_of_bounds, "",
                   fmt::format("ends at byte {} of buffer '{}', which has {}", end, buffer.name,
                               buffer.size.value));
    (void)operand.touched_bytes();  // strides of 0 reach nowhere, however many elements there are
    return true;
  }

  const Program& program_;
  std::size_t most_;
  std::vector<StructureFault> faults_;
  std::array<std::size_t, 5> counts_{};  // by kind of fault
  IdIndex<StreamId> streams_;
  IdIndex<CommunicatorId> communicators_;
  IdIndex<EventId> events_;
  IdIndex<UnitId> units_;
  IdIndex<PoolId> pools_;
  IdIndex<BufferId> buffers_;
  IdIndex<GroupId> groups_;
  IdIndex<OpId> ops_;
  std::set<Port> ports_;                                          // that a buffer is
  std::set<std::tuple<ContentKind, std::string, GroupId>> kept_;  // that a persistent buffer has
  std::vector<std::pair<OpId, EventId>> records_;                 // of the plan, ascending
  std::size_t plan_ = 0;
  std::size_t segment_ = 0;
  std::size_t op_ = 0;
  const Op* now_ = nullptr;     // the op that is being checked
  const Op* launch_ = nullptr;  // the group_begin that is open
  Int128 begun_ = 0;            // microbatches, in the first run of the segment
};

}  // namespace

std::vector<StructureFault> structure_faults(const Program& program, std::size_t most) {
  return FaultFinder(program, most).run();
}

}  // namespace mfsdp
