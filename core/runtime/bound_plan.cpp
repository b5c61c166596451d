#include "core/runtime/bound_plan.hpp"

#include <fmt/format.h>

namespace mfsdp {
namespace {

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
  if (is_point_to_point(collective.kind))
    return fail("", fmt::format("{} cannot be run yet", to_string(collective.kind)));
  const CollectiveSizes sizes = collective.sizes(members);
  const auto check = [&](const Operand& operand, std::int64_t expected) -> Result<void> {
    if (operand.dtype == collective.dtype && operand.elements() == expected && is_dense(operand))
      return {};
    return fail("", fmt::format("{} holds {} {}, where {} of {} members needs {} contiguous {}",
                                operand.role, operand.elements(), to_string(operand.dtype),
                                to_string(collective.kind), members, expected,
                                to_string(collective.dtype)));
  };
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
      buffers_(program.buffers) {}

std::span<std::byte> PlanBinder::buffer_bytes(BufferId id) const {
  const auto found = buffers_.find(id);
  if (!found) return {};
  const Buffer& buffer = program_.buffers[*found];
  const auto pool = pools_.find(buffer.pool);
  if (!pool) return {};
  return {bases_[*pool] + buffer.offset.value, static_cast<std::size_t>(buffer.size.value)};
}

Result<OperandView> PlanBinder::view(const Operand& operand) {
  MFSDP_TRY(look_up(buffers_, operand.buffer, operand.role + ": buffer"));
  std::int64_t offset = operand.offset;
  for (const RankStride& stride : operand.rank_strides)
    offset += stride.bytes * program_.config.mesh.index(rank_, stride.axis);
  OperandView view{.role = operand.role,
                   .access = operand.access,
                   .data = buffer_bytes(operand.buffer).data() + offset,
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

Result<BoundOp> PlanBinder::bind(const Op& op) {
  BoundOp bound{.op = &op};
  MFSDP_SET(bound.stream, look_up(streams_, op.stream, "stream"));
  const auto add = [&](const Operand& operand) -> Result<void> {
    MFSDP_LET(resolved, view(operand));
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
      for (const Operand& operand : body.operands) MFSDP_TRY(add(operand));
    } else if constexpr (std::is_same_v<Body, Collective>) {
      MFSDP_TRY(bind_communicator(body.communicator));
      MFSDP_TRY(check_counts(body, program_.communicators[bound.communicator].size));
      MFSDP_TRY(add(body.input));
      MFSDP_TRY(add(body.output));
    } else if constexpr (std::is_same_v<Body, Copy>) {
      MFSDP_TRY(add(body.input));
      MFSDP_TRY(add(body.output));
    } else if constexpr (std::is_same_v<Body, Acquire> || std::is_same_v<Body, Release>) {
      MFSDP_TRY(look_up(buffers_, body.buffer, "buffer"));
      bound.buffer = buffer_bytes(body.buffer);
    } else if constexpr (std::is_same_v<Body, GroupBegin> || std::is_same_v<Body, GroupEnd>) {
      MFSDP_TRY(bind_communicator(body.communicator));
    } else {
      MFSDP_SET(bound.event, look_up(events_, body.event, "event"));
    }
    return {};
  };
  MFSDP_TRY(std::visit(bind_body, op.body));
  return bound;
}

Result<BoundPlan> PlanBinder::bind(const Plan& plan) {
  BoundPlan bound{.plan = &plan, .segments = {}};
  for (const Segment& segment : plan.segments) {
    BoundSegment& into = bound.segments.emplace_back();
    into.repeat = segment.repeat;
    into.ops.reserve(segment.ops.size());
    for (const Op& op : segment.ops) {
      auto one = bind(op);
      if (!one)
        return fail(fmt::format("plan \"{}\", op {} ({})", plan.name, op.id.value, op.name),
                    one.error().message());
      into.ops.push_back(std::move(*one));
    }
  }
  return bound;
}

}  // namespace mfsdp
