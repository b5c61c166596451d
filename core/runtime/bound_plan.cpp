#include "core/runtime/bound_plan.hpp"

#include <fmt/format.h>

#include <numeric>

#include "core/plan/rank_numbers.hpp"

namespace mfsdp {
namespace {

/// Limits the memory of bound ops.
constexpr std::int64_t kMostTurns = 4096;

/// A position, or an error that names the kind of object.
template <class Key>
Result<std::size_t> look_up(const IdIndex<Key>& ids, Key id, std::string_view what) {
  if (const auto found = ids.find(id)) return *found;
  return fail("", fmt::format("there is no {} with id {}", what, id.value));
}

/// Strides that are stated may be those of contiguous elements.
bool is_dense(const Operand& operand) {
  std::int64_t stride = 1;
  for (std::size_t d = operand.strides.size(); d-- > 0; stride *= operand.shape[d])
    if (operand.shape[d] != 1 && operand.strides[d] != stride) return false;
  return true;
}

/// The operands hold what NCCL would move for `count`.
Result<void> check_counts(const Collective& collective, std::int64_t members) {
  const auto check = [&](const Operand& operand, std::int64_t expected) -> Result<void> {
    if (operand.dtype == collective.dtype && operand.elements() == expected && is_dense(operand))
      return {};
    return fail("", fmt::format("{} holds {} {}, where {} of {} members needs {} contiguous {}",
                                operand.role, operand.elements(), to_string(operand.dtype),
                                to_string(collective.kind), members, expected,
                                to_string(collective.dtype)));
  };
  if (collective.kind == CollectiveKind::send) return check(collective.input, collective.count);
  if (collective.kind == CollectiveKind::recv) return check(collective.output, collective.count);
  const CollectiveSizes sizes = collective.sizes(members);
  MFSDP_TRY(check(collective.input, sizes.input));
  return check(collective.output, sizes.output);
}

}  // namespace

PlanBinder::PlanBinder(const Program& program, PoolBases bases, std::int64_t rank)
    : program_(program),
      bases_(std::move(bases)),
      rank_(rank),
      streams_(program.streams),
      events_(program.events),
      communicators_(program.communicators),
      pools_(program.pools),
      buffers_(program.buffers) {
  std::size_t instances = 0;
  for (const Event& event : program.events) {
    first_instances_.push_back(instances);
    instances += static_cast<std::size_t>(event.instances.value_or(1));
  }
}

std::vector<std::size_t> event_list(const Program& program) {
  std::vector<std::size_t> list;
  for (std::size_t i = 0; i < program.events.size(); ++i)
    list.resize(list.size() + static_cast<std::size_t>(program.events[i].instances.value_or(1)), i);
  return list;
}

std::span<std::byte> PlanBinder::bytes_at(BufferId id, std::int64_t turn) const {
  const auto found = buffers_.find(id);
  if (!found) return {};
  const Buffer& buffer = program_.buffers[*found];
  const auto pool = pools_.find(buffer.pool);
  if (!pool) return {};
  const std::int64_t instance = turn % buffer.instances.value_or(1);
  const Bytes offset =
      buffer.offset +
      Bytes(checked_mul(instance, instance_pitch(buffer, program_.pools[*pool]).value));
  return {bases_[*pool] + offset.value, static_cast<std::size_t>(buffer.size.value)};
}

Result<std::int64_t> PlanBinder::turns_of(const Op& op) const {
  std::int64_t turns = 1;
  const auto add = [&](const std::optional<std::int64_t>& instances) {
    turns = std::lcm(turns, instances.value_or(1));
  };
  const auto add_buffer = [&](BufferId id) {
    if (const auto found = buffers_.find(id); found && turns <= kMostTurns)
      add(program_.buffers[*found].instances);
  };
  const auto add_body = [&](const auto& body) {
    using Body = std::decay_t<decltype(body)>;
    if constexpr (std::is_same_v<Body, Kernel>) {
      for (const Operand& operand : body.operands) add_buffer(operand.buffer);
    } else if constexpr (std::is_same_v<Body, Collective> || std::is_same_v<Body, Copy>) {
      for (const Operand* operand : {&body.input, &body.output})
        if (operand->stated()) add_buffer(operand->buffer);
    } else if constexpr (std::is_same_v<Body, Acquire> || std::is_same_v<Body, Release>) {
      add_buffer(body.buffer);
    } else if constexpr (requires { body.event; }) {
      if (const auto found = events_.find(body.event)) add(program_.events[*found].instances);
    }
  };
  std::visit(add_body, op.body);
  if (turns <= kMostTurns) return turns;
  return fail("", fmt::format("the instances of its buffers begin together again after more than "
                              "{} microbatches",
                              kMostTurns));
}

Result<std::int64_t> PlanBinder::peer_of(const PeerStep& step) const {
  const Mesh& mesh = program_.config.mesh;
  const std::int64_t index = mesh.index(rank_, step.axis);
  const std::int64_t ranks = mesh.size(step.axis);
  if (step.step >= -index && step.step < ranks - index)
    return rank_ + step.step * mesh.stride(step.axis);
  return fail("", fmt::format("its peer is {} steps from index {} on {}, which has {} ranks",
                              step.step, index, to_string(step.axis), ranks));
}

Result<OperandView> PlanBinder::view(const Operand& operand, std::int64_t turn) {
  MFSDP_TRY(look_up(buffers_, operand.buffer, operand.role + ": buffer"));
  std::int64_t offset = operand.offset;
  for (const RankStride& stride : operand.rank_strides)
    offset += stride.bytes * program_.config.mesh.index(rank_, stride.axis);
  OperandView view{.role = operand.role,
                   .access = operand.access,
                   .data = bytes_at(operand.buffer, turn).data() + offset,
                   .dtype = operand.dtype,
                   .shape = operand.shape,
                   .strides = operand.strides};
  if (operand.strides.empty()) {
    std::vector<std::int64_t>& strides = strides_.emplace_back(operand.shape.size());
    std::int64_t stride = 1;
    for (std::size_t dim = operand.shape.size(); dim-- > 0; stride *= operand.shape[dim])
      strides[dim] = stride;
    view.strides = strides;
  }
  return view;
}

Result<BoundOp> PlanBinder::bind(const Op& op, std::int64_t turn) {
  BoundOp bound{.op = &op};
  MFSDP_SET(bound.stream, look_up(streams_, op.stream, "stream"));
  const auto add = [&](const Operand& operand) -> Result<void> {
    MFSDP_LET(resolved, view(operand, turn));
    bound.operands.push_back(resolved);
    return {};
  };
  const auto bind_communicator = [&](CommunicatorId id) -> Result<void> {
    MFSDP_SET(bound.communicator, look_up(communicators_, id, "communicator"));
    return {};
  };
  const auto bind_body = [&](const auto& body) -> Result<void> {
    using Body = std::decay_t<decltype(body)>;
    if constexpr (std::is_same_v<Body, Kernel>) {
      bound.kernel = differs_by_rank(body)
                         ? &kernels_.emplace_back(kernel_on(body, program_.config.mesh, rank_))
                         : &body;
      for (const Operand& operand : body.operands) MFSDP_TRY(add(operand));
    } else if constexpr (std::is_same_v<Body, Collective>) {
      MFSDP_TRY(bind_communicator(body.communicator));
      MFSDP_TRY(check_counts(body, program_.communicators[bound.communicator].size));
      if (body.peer) MFSDP_SET(bound.peer, peer_of(*body.peer));
      if (body.kind != CollectiveKind::recv) MFSDP_TRY(add(body.input));
      if (body.kind != CollectiveKind::send) MFSDP_TRY(add(body.output));
    } else if constexpr (std::is_same_v<Body, Copy>) {
      MFSDP_TRY(add(body.input));
      MFSDP_TRY(add(body.output));
    } else if constexpr (std::is_same_v<Body, Acquire> || std::is_same_v<Body, Release>) {
      MFSDP_TRY(look_up(buffers_, body.buffer, "buffer"));
      bound.buffer = bytes_at(body.buffer, turn);
    } else if constexpr (std::is_same_v<Body, GroupBegin> || std::is_same_v<Body, GroupEnd>) {
      MFSDP_TRY(bind_communicator(body.communicator));
    } else {
      MFSDP_LET(event, look_up(events_, body.event, "event"));
      const std::int64_t instance = turn % program_.events[event].instances.value_or(1);
      bound.event = first_instances_[event] + static_cast<std::size_t>(instance);
    }
    return {};
  };
  MFSDP_TRY(std::visit(bind_body, op.body));
  return bound;
}

Result<void> PlanBinder::bind(const Op& op, BoundList& into) {
  MFSDP_LET(turns, turns_of(op));
  into.list.push_back({.first = into.ops.size(), .turns = turns, .lag = op.lag});
  for (std::int64_t turn = 0; turn < turns; ++turn) {
    MFSDP_LET(bound, bind(op, turn));
    into.ops.push_back(std::move(bound));
  }
  return {};
}

Result<BoundPlan> PlanBinder::bind(const Plan& plan) {
  BoundPlan bound{.plan = &plan, .lists = {}, .segments = {}};
  for (std::size_t l = 0; l < count_op_lists(plan); ++l) {
    const std::vector<Op>& ops = op_list(plan, l);
    BoundList& into = bound.lists.emplace_back();
    into.runs = 0;
    into.list.reserve(ops.size());
    into.ops.reserve(ops.size());
    for (const Op& op : ops)
      if (const auto outcome = bind(op, into); !outcome)
        return fail(fmt::format("plan \"{}\", op {} ({})", plan.name, op.id.value, op.name),
                    outcome.error().message());
  }
  for (std::size_t s = 0; s < plan.segments.size(); ++s) {
    const Segment& segment = plan.segments[s];
    BoundSegment& into = bound.segments.emplace_back();
    into.repeat = segment.repeat;
    into.microbatches = segment.microbatches;
    into.calls = calls_of(plan, s);
    for (const ListCall& call : into.calls) bound.lists[call.list].runs += segment.repeat;
  }
  return bound;
}

}  // namespace mfsdp
