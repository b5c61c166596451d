#include "core/plan/check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include "core/plan/check_model.hpp"
#include "core/plan/field_names.hpp"
#include "core/plan/index.hpp"
#include "core/plan/job.hpp"
#include "core/plan/rotation.hpp"

namespace mfsdp {
namespace {

/// A plan has a handful of each. Lifetimes and simulation keep a table of ops by streams and one of
/// events by segments: the limits keep these in proportion to the file.
constexpr std::size_t kMostStreams = 64;
constexpr std::size_t kMostSegments = 64;
/// What is summed of them stays far from 63 bits.
constexpr std::int64_t kMostPoolBytes = std::int64_t{1} << 60;
/// Of a buffer or an event: microbatches that may be under way.
constexpr std::int64_t kMostInstances = 4096;

/// Whether a grid other than pp, which is of both, has one of the axes.
bool has_any(const std::vector<MeshAxis>& grid, const std::vector<Axis>& axes) {
  return std::ranges::any_of(grid, [&](const MeshAxis& on) {
    return on.axis != Axis::pp && std::ranges::find(axes, on.axis) != axes.end();
  });
}

class StructureCheck {
 public:
  /// `is_part`: other classes have the rest of the mesh.
  explicit StructureCheck(const Program& program, bool is_part = false)
      : program_(program), is_part_(is_part) {}

  Result<void> run() {
    if (const auto valid = validate(program_.config); !valid)
      return tl::unexpected<Error>(named_by_field(valid.error()));
    MFSDP_TRY(index_lists());
    MFSDP_TRY(check_mesh());
    MFSDP_TRY(check_memory());
    MFSDP_TRY(check_groups());
    MFSDP_TRY(index_ops());
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      if (program_.find_plan(program_.plans[p].name) != &program_.plans[p])
        return fail(fmt::format("plans[{}].name", p),
                    fmt::format("'{}' appears twice", program_.plans[p].name));
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      MFSDP_TRY(check_plan(program_.plans[p], fmt::format("plans[{}]", p)));
    return check_model(program_);
  }

 private:
  template <class Key, class T>
  static Result<void> index(IdIndex<Key>& into, const std::vector<T>& list, std::string_view name) {
    for (std::size_t i = 0; i < list.size(); ++i)
      if (!into.insert(list[i].id, i))
        return fail(fmt::format("{}[{}].id", name, i),
                    fmt::format("id {} appears twice", list[i].id.value));
    return {};
  }

  Result<void> index_lists() {
    if (program_.streams.size() > kMostStreams)
      return fail("streams", fmt::format("expected at most {}, got {}", kMostStreams,
                                         program_.streams.size()));
    MFSDP_TRY(index(streams_, program_.streams, "streams"));
    MFSDP_TRY(index(communicators_, program_.communicators, "communicators"));
    MFSDP_TRY(index(events_, program_.events, "events"));
    MFSDP_TRY(index(units_, program_.units, "units"));
    MFSDP_TRY(index(pools_, program_.pools, "pools"));
    MFSDP_TRY(index(buffers_, program_.buffers, "buffers"));
    return index(groups_, program_.groups, "groups");
  }

  template <class Key>
  static Result<void> resolve(const IdIndex<Key>& ids, Key id, const std::string& where,
                              std::string_view what) {
    if (ids.find(id)) return {};
    return fail(where, fmt::format("there is no {} with id {}", what, id.value));
  }

  [[nodiscard]] std::int64_t size(Axis axis) const { return program_.config.mesh.size(axis); }

  /// Ranks and communicators are those of the configured mesh.
  Result<void> check_mesh() {
    const Mesh& mesh = program_.config.mesh;
    std::int64_t ranks = 0;
    for (std::size_t i = 0; i < program_.classes.size(); ++i) {
      ranks = checked_add(ranks, program_.classes[i].ranks);
      MFSDP_TRY(check_class(program_.classes[i], fmt::format("classes[{}]", i)));
    }
    if (!is_part_ && ranks != mesh.world_size())
      return fail("classes",
                  fmt::format("hold {} ranks where config.mesh has {}", ranks, mesh.world_size()));
    for (std::size_t i = 0; i < program_.communicators.size(); ++i) {
      std::int64_t size = 1;
      const std::vector<Axis>& axes = program_.communicators[i].axes;
      for (std::size_t a = 0; a < axes.size(); ++a) {
        if (std::ranges::count(axes, axes[a]) > 1)
          return fail(fmt::format("communicators[{}].axes[{}]", i, a),
                      fmt::format("{} stands here twice", to_string(axes[a])));
        size = checked_mul(size, mesh.size(axes[a]));
      }
      if (has_any(mesh.dense, axes) && has_any(mesh.experts, axes))
        return fail(fmt::format("communicators[{}].axes", i),
                    "expected axes of config.mesh.dense or of config.mesh.experts, not of both");
      if (program_.communicators[i].size != size)
        return fail(fmt::format("communicators[{}].size", i),
                    fmt::format("expected {} as config.mesh has on its axes, got {}", size,
                                program_.communicators[i].size));
    }
    return {};
  }

  /// A class that says where its ranks lie has those that lie there.
  Result<void> check_class(const RankClass& ranks_class, const std::string& where) {
    const Mesh& mesh = program_.config.mesh;
    std::int64_t ranks = mesh.world_size();
    for (std::size_t i = 0; i < ranks_class.at.size(); ++i) {
      const auto& [axis, index] = ranks_class.at[i];
      const std::string place = fmt::format("{}.at[{}]", where, i);
      if (std::ranges::count(ranks_class.at, axis, &MeshPlace::axis) > 1)
        return fail(place + ".axis", fmt::format("{} stands here twice", to_string(axis)));
      if (index >= mesh.size(axis))
        return fail(place + ".index", fmt::format("expected less than the {} ranks on {}, got {}",
                                                  mesh.size(axis), to_string(axis), index));
      ranks /= mesh.size(axis);
    }
    if ((is_part_ || !ranks_class.at.empty()) && ranks_class.ranks != ranks)
      return fail(where + ".ranks",
                  fmt::format("expected the {} that lie there, got {}", ranks, ranks_class.ranks));
    return {};
  }

  static Result<void> check_instances(const std::optional<std::int64_t>& instances,
                                      const std::string& where) {
    if (instances && (*instances < 2 || *instances > kMostInstances))
      return fail(where + ".instances", fmt::format("expected 2 to {}, got {} (one is left out)",
                                                    kMostInstances, *instances));
    return {};
  }

  Result<void> check_memory() {
    for (std::size_t i = 0; i < program_.events.size(); ++i)
      MFSDP_TRY(check_instances(program_.events[i].instances, fmt::format("events[{}]", i)));
    std::int64_t height = 0;
    for (std::size_t i = 0; i < program_.pools.size(); ++i) {
      const Pool& pool = program_.pools[i];
      if (pool.height.value > kMostPoolBytes - height)
        return fail(fmt::format("pools[{}].height", i),
                    fmt::format("expected at most 2^60 bytes in all pools, got {} beside {}",
                                pool.height.value, height));
      height += pool.height.value;
      if (pool.alignment <= 0 || (pool.alignment & (pool.alignment - 1)) != 0)
        return fail(fmt::format("pools[{}].alignment", i), "expected a power of two");
      if (pool.registered)
        MFSDP_TRY(resolve(communicators_, *pool.registered, fmt::format("pools[{}].registered", i),
                          "communicator"));
    }
    for (std::size_t i = 0; i < program_.buffers.size(); ++i) {
      const Buffer& buffer = program_.buffers[i];
      const std::string where = fmt::format("buffers[{}]", i);
      MFSDP_TRY(resolve(pools_, buffer.pool, where + ".pool", "pool"));
      const Pool& pool = program_.pools[pools_[buffer.pool]];
      if (buffer.offset.value % pool.alignment != 0)
        return fail(where + ".offset", fmt::format("expected a multiple of {}", pool.alignment));
      MFSDP_TRY(check_instances(buffer.instances, where));
      if (buffer.instances && buffer.persistent)
        return fail(where + ".instances", "expected none of a persistent buffer");
      if (end_in_pool(buffer, pool) > pool.height)
        return fail(where,
                    fmt::format("ends at {} in pool '{}' of {} bytes",
                                end_in_pool(buffer, pool).value, pool.name, pool.height.value));
      if (buffer.holds) MFSDP_TRY(check_contents(buffer, where + ".holds"));
    }
    return {};
  }

  /// Whether the configured optimizer keeps a state of that name, or the one that takes what it
  /// does not.
  [[nodiscard]] bool is_kept(std::string_view state) const {
    const PlanConfig& config = program_.config;
    const auto keeps = [&](Optimizer optimizer) {
      const std::vector<KeptState> kept = config.kept_states(optimizer);
      return std::ranges::find(kept, state, &KeptState::name) != kept.end();
    };
    return keeps(config.optimizer) || (orthogonalises(config.optimizer) && keeps(Optimizer::adamw));
  }

  /// What a buffer holds fits into it.
  Result<void> check_contents(const Buffer& buffer, const std::string& where) {
    const Contents& holds = *buffer.holds;
    const bool is_port = holds.kind == ContentKind::port;
    if (holds.port.has_value() != is_port)
      return fail(where + ".port", is_port ? "missing" : "expected only of kind port");
    if (holds.groups.empty() != is_port)
      return fail(where + ".groups", is_port ? "expected none of kind port" : "expected a group");
    if (holds.state.empty() != (holds.kind != ContentKind::optimizer_state))
      return fail(where + ".state",
                  holds.state.empty() ? "missing" : "expected only of kind optimizer_state");
    if (holds.dealt && holds.kind != ContentKind::direction && holds.kind != ContentKind::gradient)
      return fail(where + ".dealt", "expected only of kind direction or gradient");
    if (holds.kind == ContentKind::optimizer_state && !is_kept(holds.state))
      return fail(where + ".state", fmt::format("{} keeps no state '{}'",
                                                to_string(program_.config.optimizer), holds.state));
    MFSDP_TRY(check_placement(holds.placement, where + ".placement"));
    for (std::size_t i = 0; i < holds.groups.size(); ++i) {
      const HeldGroup& held = holds.groups[i];
      const std::string place = fmt::format("{}.groups[{}]", where, i);
      MFSDP_TRY(resolve(groups_, held.group, place + ".group", "group"));
      const Group& group = program_.groups[groups_[held.group]];
      std::int64_t elements = group.elements;
      for (const Axis axis : flat_axes(holds.placement)) elements /= size(axis);
      elements = ceil_div(elements, block_of_state(holds.state));
      const std::int64_t end = checked_add(held.offset, bytes_of(elements, buffer.dtype).value);
      if (end > buffer.size.value)
        return fail(place, fmt::format("ends at byte {} of buffer '{}', which has {}", end,
                                       buffer.name, buffer.size.value));
    }
    return {};
  }

  static Result<void> check_placement(const Placement& placement, const std::string& where) {
    for (std::size_t i = 0; i < placement.size(); ++i) {
      const AxisPlacement& on = placement[i];
      const std::string place = fmt::format("{}[{}]", where, i);
      if (std::ranges::count(placement, on.axis, &AxisPlacement::axis) > 1)
        return fail(place + ".axis", fmt::format("{} stands here twice", to_string(on.axis)));
      if (on.dim.has_value() != (on.kind == PlacementKind::shard))
        return fail(place + ".dim", on.dim ? "expected only of kind shard" : "missing");
    }
    return {};
  }

  Result<void> check_groups() {
    for (std::size_t i = 0; i < program_.groups.size(); ++i) {
      const Group& group = program_.groups[i];
      const std::string where = fmt::format("groups[{}]", i);
      MFSDP_TRY(resolve(units_, group.unit, where + ".unit", "unit"));
      if (group.optimizer.has_value() != group.requires_grad)
        return fail(where + ".optimizer",
                    group.requires_grad ? "missing" : "expected none where requires_grad is false");
      const Optimizer configured = program_.config.optimizer;
      const bool beside = orthogonalises(configured) && group.optimizer == Optimizer::adamw;
      if (group.optimizer && *group.optimizer != configured && !beside)
        return fail(where + ".optimizer",
                    fmt::format("expected {}, as config.optimizer has, got {}",
                                to_string(configured), to_string(*group.optimizer)));
      std::int64_t parts = 1;
      for (const Axis axis : group.cut) parts = checked_mul(parts, size(axis));
      if (group.elements % parts != 0)
        return fail(where + ".elements",
                    fmt::format("expected a multiple of the {} parts that `cut` makes", parts));
      for (const auto& [placement, name] :
           {std::pair{&group.weight, ".weight"}, std::pair{&group.gradient, ".gradient"},
            std::pair{&group.state, ".state"}})
        MFSDP_TRY(check_placement(*placement, where + name));
      MFSDP_TRY(check_placement(group.shard, where + ".shard"));
      for (const AxisPlacement& on : group.shard)
        if (on.axis != Axis::ep || on.kind != PlacementKind::shard || *on.dim != 0 ||
            std::ranges::any_of(group.parameters,
                                [](const PlacedParameter& p) { return p.shape.empty(); }))
          return fail(where + ".shard",
                      "expected parameters that are cut along their first dim, over ep");
      for (std::size_t p = 0; p < group.parameters.size(); ++p) {
        const PlacedParameter& parameter = group.parameters[p];
        if (checked_add(parameter.offset, parameter.elements()) > group.elements)
          return fail(fmt::format("{}.parameters[{}]", where, p), "ends outside its group");
        if (program_.config.state_dtype == StateDtype::blockwise8 && group.optimizer &&
            parameter.offset % kStateBlock != 0)
          return fail(fmt::format("{}.parameters[{}].offset", where, p),
                      fmt::format("expected a multiple of the {} elements that share a scale with "
                                  "config.state_dtype blockwise8, got {}",
                                  kStateBlock, parameter.offset));
      }
      if (group.used_elements() > group.elements)
        return fail(where + ".parameters", "hold more elements than their group");
    }
    return {};
  }

  Result<void> index_ops() {
    for (std::size_t p = 0; p < program_.plans.size(); ++p)
      for (std::size_t s = 0; s < program_.plans[p].segments.size(); ++s) {
        const auto& ops = program_.plans[p].segments[s].ops;
        for (std::size_t i = 0; i < ops.size(); ++i) {
          if (!ops_.insert(ops[i].id, op_list_.size()))
            return fail(fmt::format("plans[{}].segments[{}].ops[{}].id", p, s, i),
                        fmt::format("id {} appears twice", ops[i].id.value));
          op_list_.push_back(&ops[i]);
        }
      }
    return {};
  }

  Result<void> check_plan(const Plan& plan, const std::string& where) {
    if (plan.segments.empty()) return fail(where + ".segments", "expected at least one segment");
    if (plan.segments.size() > kMostSegments)
      return fail(where + ".segments",
                  fmt::format("expected at most {}, got {}", kMostSegments, plan.segments.size()));
    std::int64_t begun = 0;  // microbatches, in the first run of the segment
    for (std::size_t s = 0; s < plan.segments.size(); ++s) {
      const Segment& segment = plan.segments[s];
      begun = checked_add(begun, segment.microbatches);
      const std::string place = fmt::format("{}.segments[{}]", where, s);
      const Segment& next = plan.segments[(s + 1) % plan.segments.size()];
      if (segment.live_out != next.live_in)
        return fail(place + ".live_out",
                    fmt::format("differs from live_in of segment '{}'", next.name));
      for (std::size_t i = 0; i < segment.live_in.size(); ++i)
        MFSDP_TRY(check_transient(segment.live_in[i], fmt::format("{}.live_in[{}]", place, i)));
      if (segment.repeat < 1) return fail(place + ".repeat", "expected at least 1");
      if (segment.repeat > 1 && segment.live_in != segment.live_out)
        return fail(place, "a repeated segment needs live_in equal to live_out");
      MFSDP_TRY(check_segment(segment, begun, place));
      begun = checked_add(begun, checked_mul(segment.microbatches, segment.repeat - 1));
    }
    return {};
  }

  Result<void> check_segment(const Segment& segment, std::int64_t begun, const std::string& where) {
    std::vector<const Op*> open_groups;
    for (std::size_t i = 0; i < segment.ops.size(); ++i) {
      const Op& op = segment.ops[i];
      const std::string place = fmt::format("{}.ops[{}]", where, i);
      MFSDP_TRY(resolve(streams_, op.stream, place + ".stream", "stream"));
      if (op.unit) MFSDP_TRY(resolve(units_, *op.unit, place + ".unit", "unit"));
      if (op.group) MFSDP_TRY(resolve(groups_, *op.group, place + ".group", "group"));
      MFSDP_TRY(
          std::visit([&](const auto& body) { return check_body(body, place + ".body"); }, op.body));
      if (op.lag > 0 && op.lag >= begun)
        return fail(place + ".lag", fmt::format("expected less than the {} microbatches that have "
                                                "begun, got {}",
                                                begun, op.lag));
      if (op.kind() == OpKind::group_begin) open_groups.push_back(&op);
      if (op.kind() == OpKind::group_end) {
        if (open_groups.empty()) return fail(place, "group_end without group_begin");
        if (open_groups.back()->stream != op.stream)
          return fail(place, "group_end on another stream than its group_begin");
        open_groups.pop_back();
      }
    }
    if (!open_groups.empty())
      return fail(where, fmt::format("op {} opens a group that nothing ends",
                                     open_groups.back()->id.value));
    return {};
  }

  Result<void> check_operand(const Operand& operand, const std::string& where) {
    MFSDP_TRY(resolve(buffers_, operand.buffer, where + ".buffer", "buffer"));
    if (!operand.strides.empty() && operand.strides.size() != operand.shape.size())
      return fail(where + ".strides", "expected as many entries as in shape");
    const Buffer& buffer = program_.buffers[buffers_[operand.buffer]];
    std::int64_t end = checked_add(operand.offset, operand.span_bytes());
    for (const RankStride& stride : operand.rank_strides)
      end = checked_add(end, checked_mul(stride.bytes, size(stride.axis) - 1));
    if (end > buffer.size.value)
      return fail(where, fmt::format("ends at byte {} of buffer '{}', which has {}", end,
                                     buffer.name, buffer.size.value));
    return {};
  }

  template <class AnyWait>
  Result<void> check_wait(const AnyWait& wait, const std::string& where) {
    MFSDP_TRY(resolve(events_, wait.event, where + ".event", "event"));
    if (wait.bindings.empty()) return fail(where + ".bindings", "expected at least one record");
    for (std::size_t i = 0; i < wait.bindings.size(); ++i) {
      const Binding& binding = wait.bindings[i];
      const std::string place = fmt::format("{}.bindings[{}]", where, i);
      MFSDP_TRY(resolve(ops_, binding.record, place + ".record", "op"));
      const auto* record = std::get_if<Record>(&op_list_[ops_[binding.record]]->body);
      if (record == nullptr || record->event != wait.event)
        return fail(place + ".record", fmt::format("op {} does not record event {}",
                                                   binding.record.value, wait.event.value));
    }
    return {};
  }

  Result<void> check_body(const Kernel& kernel, const std::string& where) {
    for (std::size_t i = 0; i < kernel.operands.size(); ++i)
      MFSDP_TRY(check_operand(kernel.operands[i], fmt::format("{}.kernel.operands[{}]", where, i)));
    return {};
  }
  Result<void> check_body(const Collective& collective, const std::string& where) {
    MFSDP_TRY(resolve(communicators_, collective.communicator, where + ".collective.communicator",
                      "communicator"));
    const auto check_one = [&](const Operand& operand, CollectiveKind lacks,
                               const std::string& place) -> Result<void> {
      if (operand.stated() == (collective.kind == lacks))
        return fail(place,
                    operand.stated() ? fmt::format("a {} has none", to_string(lacks)) : "missing");
      return operand.stated() ? check_operand(operand, place) : Result<void>{};
    };
    MFSDP_TRY(check_one(collective.input, CollectiveKind::recv, where + ".collective.input"));
    MFSDP_TRY(check_one(collective.output, CollectiveKind::send, where + ".collective.output"));
    if (collective.peer.has_value() != is_point_to_point(collective.kind))
      return fail(where + ".collective.peer",
                  collective.peer ? "expected only of send and recv" : "missing");
    return {};
  }
  Result<void> check_body(const Copy& copy, const std::string& where) {
    MFSDP_TRY(check_operand(copy.input, where + ".copy.input"));
    MFSDP_TRY(check_operand(copy.output, where + ".copy.output"));
    if (copy.input.touched_bytes() != copy.output.touched_bytes())
      return fail(where + ".copy", "input and output differ in bytes");
    return {};
  }
  Result<void> check_body(const Record& record, const std::string& where) {
    return resolve(events_, record.event, where + ".record.event", "event");
  }
  Result<void> check_body(const Wait& wait, const std::string& where) {
    return check_wait(wait, where + ".wait");
  }
  Result<void> check_body(const HostWait& wait, const std::string& where) {
    return check_wait(wait, where + ".host_wait");
  }
  Result<void> check_transient(BufferId id, const std::string& where) {
    MFSDP_TRY(resolve(buffers_, id, where, "buffer"));
    if (program_.buffers[buffers_[id]].persistent)
      return fail(where, fmt::format("buffer {} is persistent", id.value));
    return {};
  }
  Result<void> check_body(const Acquire& acquire, const std::string& where) {
    return check_transient(acquire.buffer, where + ".acquire.buffer");
  }
  Result<void> check_body(const Release& release, const std::string& where) {
    return check_transient(release.buffer, where + ".release.buffer");
  }
  Result<void> check_body(const GroupBegin& group, const std::string& where) {
    return resolve(communicators_, group.communicator, where + ".group_begin.communicator",
                   "communicator");
  }
  Result<void> check_body(const GroupEnd& group, const std::string& where) {
    return resolve(communicators_, group.communicator, where + ".group_end.communicator",
                   "communicator");
  }

  const Program& program_;
  bool is_part_;
  IdIndex<StreamId> streams_;
  IdIndex<CommunicatorId> communicators_;
  IdIndex<EventId> events_;
  IdIndex<UnitId> units_;
  IdIndex<PoolId> pools_;
  IdIndex<GroupId> groups_;
  IdIndex<BufferId> buffers_;
  IdIndex<OpId> ops_;
  std::vector<const Op*> op_list_;
};

/// A part has one class; all parts share the configuration.
std::string place_in_job(std::size_t c, const std::string& where) {
  constexpr std::string_view kOnlyClass = "classes[0]";
  if (where.starts_with("config")) return where;
  if (where.starts_with(kOnlyClass))
    return fmt::format("classes[{}]{}", c, where.substr(kOnlyClass.size()));
  return fmt::format("classes[{}]: {}", c, where);
}

Result<void> check_parts(const Job& job) {
  std::int64_t ranks = 0;
  for (std::size_t c = 0; c < job.programs.size(); ++c) {
    const Program& program = job.programs[c];
    if (auto checked = StructureCheck(program, true).run(); !checked)
      return fail(place_in_job(c, checked.error().where), checked.error().what);
    ranks = checked_add(ranks, program.classes[0].ranks);
    for (std::size_t other = 0; other < c; ++other) {
      const auto apart = [&](const MeshPlace& place) {
        return std::ranges::any_of(job.programs[other].classes[0].at, [&](const MeshPlace& theirs) {
          return theirs.axis == place.axis && theirs.index != place.index;
        });
      };
      if (std::ranges::none_of(program.classes[0].at, apart))
        return fail(fmt::format("classes[{}].at", c),
                    fmt::format("shares ranks with class {}", other));
    }
    for (const Plan& plan : job.programs[0].plans)
      if (program.find_plan(plan.name) == nullptr ||
          program.plans.size() != job.programs[0].plans.size())
        return fail(fmt::format("classes[{}].plans", c),
                    "expected plans named as those of class 0");
  }
  const std::int64_t world = job.programs[0].config.mesh.world_size();
  if (ranks != world)
    return fail("classes", fmt::format("hold {} ranks where config.mesh has {}", ranks, world));
  return {};
}

template <class Check>
Result<void> without_overflow(const Check& check) {
  try {
    return check();
  } catch (const OverflowError& error) {
    return fail("plan", fmt::format("a size is too large: {}", error.what()));
  }
}

}  // namespace

Result<void> check_structure(const Program& program) {
  return without_overflow([&] { return StructureCheck(program).run(); });
}

Result<void> check_structure(const Job& job) {
  if (job.programs.size() == 1) return check_structure(job.programs[0]);
  return without_overflow([&] { return check_parts(job); });
}

}  // namespace mfsdp
