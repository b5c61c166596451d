#include <algorithm>
#include <cstdint>
#include <set>
#include <string_view>
#include <variant>

#include "core/plan/structure_state.hpp"

namespace mfsdp::structure {
namespace {

/// Runs of a pass between a record and a wait.
constexpr std::int64_t kMostDistance = std::int64_t{1} << 40;
/// Limits lags of calls, so that sums of lags stay below 63 bits.
constexpr std::int64_t kMostLag = std::int64_t{1} << 40;

void find_records(State& s, const Plan& plan) {
  s.records.clear();
  for (const Op& op : ops_of(plan))
    if (const auto* record = std::get_if<Record>(&op.body))
      s.records.emplace_back(op.id, record->event);
  std::ranges::sort(s.records);
}

void check_live(State& s, const std::vector<BufferId>& live, std::string_view name) {
  for (std::size_t i = 0; i < live.size(); ++i) {
    const auto found = s.buffers.find(live[i]);
    if (found && !s.program.buffers[*found].persistent) continue;
    const std::string where = fmt::format("{}.{}[{}]", list_place(s), name, i);
    if (!found)
      add(s, StructureFaultKind::unknown_id, where, no_such("buffer", live[i].value));
    else
      add(s, StructureFaultKind::malformed, where,
          fmt::format("buffer {} is persistent; expected a transient one", live[i].value), live[i]);
  }
}

/// From group_begin to group_end there are only collectives of one communicator on one stream: they
/// are one launch. Groups do not nest.
void check_launch(State& s, const Op& op) {
  const OpKind kind = op.kind();
  if (kind == OpKind::group_end && s.launch == nullptr)
    return add_here(s, StructureFaultKind::group, "", "group_end without a group_begin before it");
  if (kind == OpKind::group_begin && s.launch == nullptr) {
    s.launch = &op;
    return;
  }
  if (s.launch == nullptr) return;
  if (kind != OpKind::group_end && kind != OpKind::collective)
    add_here(s, StructureFaultKind::group, "",
             fmt::format("is a {} inside a group of collectives; expected collectives only",
                         to_string(kind)));
  if (op.stream != s.launch->stream)
    add_here(s, StructureFaultKind::group, ".stream",
             fmt::format("is on stream {}, but its group began on stream {}", op.stream.value,
                         s.launch->stream.value));
  const CommunicatorId of_group = std::get<GroupBegin>(s.launch->body).communicator;
  const auto* collective = std::get_if<Collective>(&op.body);
  const auto* end = std::get_if<GroupEnd>(&op.body);
  const CommunicatorId own = collective != nullptr ? collective->communicator
                             : end != nullptr      ? end->communicator
                                                   : of_group;
  if (own != of_group && s.communicators.find(own) && s.communicators.find(of_group))
    add_in_body(
        s, StructureFaultKind::group, ".communicator",
        fmt::format("is {}, but its group began with communicator {}", own.value, of_group.value));
  if (kind == OpKind::group_end) s.launch = nullptr;
}

void check(State& s, const Record& record) {
  resolves_in_body(s, s.events, record.event, ".event", "event");
}

void check_communicator(State& s, CommunicatorId id) {
  resolves_in_body(s, s.communicators, id, ".communicator", "communicator");
}

void check(State& s, const GroupBegin& group) { check_communicator(s, group.communicator); }

void check(State& s, const GroupEnd& group) { check_communicator(s, group.communicator); }

void check_transient(State& s, BufferId id) {
  if (resolves_in_body(s, s.buffers, id, ".buffer", "buffer") &&
      s.program.buffers[s.buffers[id]].persistent)
    add_in_body(s, StructureFaultKind::malformed, ".buffer",
                fmt::format("buffer {} is persistent; expected a transient one", id.value), id);
}

void check(State& s, const Acquire& acquire) { check_transient(s, acquire.buffer); }

void check(State& s, const Release& release) { check_transient(s, release.buffer); }

void check_wait(State& s, const auto& wait) {
  resolves_in_body(s, s.events, wait.event, ".event", "event");
  if (wait.bindings.empty())
    add_in_body(s, StructureFaultKind::malformed, ".bindings", "expected at least one record");
  for (std::size_t i = 0; i < wait.bindings.size(); ++i) {
    const Binding& binding = wait.bindings[i];
    const auto place = [&](const char* field) { return fmt::format(".bindings[{}].{}", i, field); };
    if (!std::ranges::binary_search(s.records, std::pair(binding.record, wait.event)))
      add_in_body(s, StructureFaultKind::unknown_id, place("record"),
                  s.ops.find(binding.record)
                      ? fmt::format("op {} does not record event {} in this plan",
                                    binding.record.value, wait.event.value)
                      : no_such("op", binding.record.value));
    if (binding.distance < 0 || binding.distance > kMostDistance)
      add_in_body(s, StructureFaultKind::malformed, place("distance"),
                  fmt::format("expected 0 to {}", kMostDistance));
  }
}

void check(State& s, const Wait& wait) { check_wait(s, wait); }

void check(State& s, const HostWait& wait) { check_wait(s, wait); }

/// On every rank of the mesh.
bool check_span(State& s, const Operand& operand, const Buffer& buffer, auto wrong) {
  std::int64_t begin = operand.offset;
  std::int64_t end = checked_add(operand.offset, operand.span_bytes());
  for (const RankStride& stride : operand.rank_strides) {
    const std::int64_t ranks = s.program.config.mesh.size(stride.axis);
    const std::int64_t reach = checked_mul(stride.bytes, checked_sub(ranks, 1));
    (reach < 0 ? begin : end) = checked_add(reach < 0 ? begin : end, reach);
  }
  if (begin < 0)
    return wrong(StructureFaultKind::out_of_bounds, "",
                 fmt::format("begins at byte {} of buffer '{}'", begin, buffer.name));
  if (end > buffer.size.value)
    return wrong(StructureFaultKind::out_of_bounds, "",
                 fmt::format("ends at byte {} of buffer '{}', which has {} bytes", end, buffer.name,
                             buffer.size.value));
  (void)
      operand.touched_bytes();  // throws where there are too many elements, also with strides of 0
  return true;
}

/// `place` continues the path of the op's body. False where anything is wrong with the operand.
bool check_operand(State& s, const Operand& operand, auto place) {
  const auto wrong = [&](StructureFaultKind kind, const char* field, std::string what) {
    if (wants(s, kind)) add_in_body(s, kind, place() + field, std::move(what), operand.buffer);
    return false;
  };
  const auto found = s.buffers.find(operand.buffer);
  if (!found)
    return wrong(StructureFaultKind::unknown_id, ".buffer",
                 no_such("buffer", operand.buffer.value));
  if (!operand.strides.empty() && operand.strides.size() != operand.shape.size())
    return wrong(StructureFaultKind::malformed, ".strides", "expected as many entries as in shape");
  const auto negative = [](std::int64_t number) { return number < 0; };
  if (operand.offset < 0 || std::ranges::any_of(operand.shape, negative) ||
      std::ranges::any_of(operand.strides, negative))
    return wrong(StructureFaultKind::malformed, "",
                 "expected offset, dims and strides of at least 0");
  for (const RankStride& stride : operand.rank_strides)
    if (std::ranges::count(operand.rank_strides, stride.axis, &RankStride::axis) > 1)
      return wrong(StructureFaultKind::malformed, ".rank_strides",
                   fmt::format("{} is listed twice", to_string(stride.axis)));
  try {
    return check_span(s, operand, s.program.buffers[*found], wrong);
  } catch (const OverflowError&) {
    return wrong(StructureFaultKind::malformed, "", "a size or an offset needs more than 63 bits");
  }
}

/// The number is an integer of at least 0 on every rank.
bool is_number_everywhere(const Attribute& attribute, const Mesh& mesh) {
  std::int64_t least = attribute.value.num;
  for (const IndexStep& per : attribute.per)
    least = checked_add(least,
                        std::min<std::int64_t>(0, checked_mul(per.step, mesh.size(per.axis) - 1)));
  return attribute.value.den == 1 && least >= 0;
}

/// Only numbers at which a rank's part begins may differ by rank.
void check_by_rank(State& s, const Kernel& kernel, const Attribute& attribute,
                   const std::string& place) {
  const auto wrong = [&](std::string what) {
    add_in_body(s, StructureFaultKind::malformed, place, std::move(what));
  };
  const KernelSpec* spec = spec_of(kernel);
  if (spec == nullptr ||
      std::ranges::find(spec->rank_attributes, attribute.name) == spec->rank_attributes.end())
    return wrong(fmt::format("expected '{}' of a {} to be one number, the same on all ranks",
                             attribute.name, to_string(kernel.kind)));
  const Mesh& mesh = s.program.config.mesh;
  for (const IndexStep& per : attribute.per) {
    if (std::ranges::count(attribute.per, per.axis, &IndexStep::axis) > 1)
      return wrong(fmt::format("{} is listed twice", to_string(per.axis)));
    if (per.step == 0 || mesh.size(per.axis) == 1)
      return wrong(
          fmt::format("expected a step other than 0 on an axis with several ranks, got {} "
                      "on {}",
                      per.step, to_string(per.axis)));
  }
  try {
    if (!is_number_everywhere(attribute, mesh))
      wrong("expected an integer of at least 0 on every rank");
  } catch (const OverflowError&) {
    wrong("a number of some rank needs more than 63 bits");
  }
}

void check(State& s, const Kernel& kernel) {
  for (std::size_t i = 0; i < kernel.attributes.size(); ++i)
    if (!kernel.attributes[i].per.empty())
      check_by_rank(s, kernel, kernel.attributes[i], fmt::format(".attributes[{}].per", i));
  for (std::size_t i = 0; i < kernel.operands.size(); ++i)
    check_operand(s, kernel.operands[i], [i] { return fmt::format(".operands[{}]", i); });
}

/// One kind of collective has no such operand; all others have it.
void check_side(State& s, const Operand& operand, CollectiveKind kind, CollectiveKind lacks,
                std::string_view field) {
  if (operand.stated() == (kind == lacks))
    return add_in_body(
        s, StructureFaultKind::malformed, field,
        operand.stated() ? fmt::format("a {} has no such operand", to_string(lacks)) : "missing");
  if (operand.stated()) check_operand(s, operand, [field] { return std::string(field); });
}

void check(State& s, const Collective& collective) {
  const bool known = resolves_in_body(s, s.communicators, collective.communicator, ".communicator",
                                      "communicator");
  if (collective.count < 0)
    add_in_body(s, StructureFaultKind::malformed, ".count", "expected at least 0");
  check_side(s, collective.input, collective.kind, CollectiveKind::recv, ".input");
  check_side(s, collective.output, collective.kind, CollectiveKind::send, ".output");
  const std::optional<PeerStep>& peer = collective.peer;
  if (peer.has_value() != is_point_to_point(collective.kind))
    return add_in_body(s, StructureFaultKind::malformed, ".peer",
                       peer ? "expected only for send and recv" : "missing");
  if (!peer || !known) return;
  const auto& axes = s.program.communicators[s.communicators[collective.communicator]].axes;
  if (std::ranges::find(axes, peer->axis) == axes.end())
    add_in_body(s, StructureFaultKind::malformed, ".peer.axis",
                fmt::format("{} is not an axis of the communicator", to_string(peer->axis)));
}

void check(State& s, const Copy& copy) {
  const bool reads = check_operand(s, copy.input, [] { return std::string(".input"); });
  const bool writes = check_operand(s, copy.output, [] { return std::string(".output"); });
  if (reads && writes && copy.input.touched_bytes() != copy.output.touched_bytes())
    add_in_body(s, StructureFaultKind::malformed, "",
                "input and output have different sizes in bytes");
}

void check_op(State& s, const Op& op) {
  s.now = &op;
  resolves_here(s, s.streams, op.stream, ".stream", "stream");
  if (op.unit) resolves_here(s, s.units, *op.unit, ".unit", "unit");
  if (op.group) resolves_here(s, s.groups, *op.group, ".group", "group");
  if (const Int128 limit = s.lag_limit[s.list]; op.lag < 0 || (op.lag > 0 && op.lag >= limit))
    add_here(s, StructureFaultKind::malformed, ".lag",
             fmt::format("expected less than {}, the microbatches that have begun, got {}",
                         static_cast<std::int64_t>(limit), op.lag));
  std::visit([&s](const auto& body) { check(s, body); }, op.body);
  check_launch(s, op);
}

// ---- passes and their calls ---------------------------------------------------------------------

void index_passes(State& s, const Plan& plan) {
  s.passes = {};
  std::set<std::string_view> names;
  for (std::size_t p = 0; p < plan.passes.size(); ++p) {
    const Pass& pass = plan.passes[p];
    const std::string where = fmt::format("plans[{}].passes[{}]", s.plan, p);
    if (!s.passes.insert(pass.id, p))
      add(s, StructureFaultKind::double_id, where + ".id",
          fmt::format("id {} appears twice", pass.id.value));
    if (pass.name.empty() || !names.insert(pass.name).second)
      add(s, StructureFaultKind::malformed, where + ".name",
          fmt::format("expected a name that no other pass has, got '{}'", pass.name));
  }
}

/// A call works on a microbatch that has begun. Its lag and the number of those that have begun
/// change evenly over the repetitions, so the first and the last one decide.
void check_call(State& s, const Segment& segment, std::size_t c, Int128 begun_before) {
  const PassCall& call = segment.calls[c];
  const std::string where = fmt::format("{}.calls[{}]", list_place(s), c);
  const auto pass = s.passes.find(call.pass);
  if (!pass)
    return add(s, StructureFaultKind::unknown_id, where + ".pass",
               no_such("pass", call.pass.value));
  Int128& limit = s.lag_limit[s.program.plans[s.plan].segments.size() + *pass];
  for (const std::int64_t repetition :
       {std::int64_t{0}, std::max<std::int64_t>(segment.repeat, 1) - 1}) {
    const Int128 lag = call.lag + Int128{call.lag_step} * repetition;
    const Int128 begun = begun_before + Int128{segment.microbatches} * (repetition + 1);
    if (lag < 0 || lag > kMostLag || (lag > 0 && lag >= begun)) {
      limit = limit == kNotCalled ? begun : limit;
      return add(s, StructureFaultKind::malformed, where + ".lag",
                 fmt::format("the lag is {} in repetition {}: expected at least 0, and less than "
                             "{}, the microbatches that have begun",
                             static_cast<std::int64_t>(lag), repetition,
                             static_cast<std::int64_t>(begun)));
    }
    limit = limit == kNotCalled ? begun - lag : std::min(limit, begun - lag);
  }
}

void check_segment(State& s, const Segment& segment, Int128 begun_before) {
  const std::string where = list_place(s);
  if (segment.repeat < 1)
    add(s, StructureFaultKind::malformed, where + ".repeat", "expected at least 1");
  check_live(s, segment.live_in, "live_in");
  check_live(s, segment.live_out, "live_out");
  if (!segment.calls.empty() && !segment.ops.empty())
    add(s, StructureFaultKind::malformed, where + ".calls",
        "expected calls of passes or ops of its own, not both");
  for (std::size_t c = 0; c < segment.calls.size(); ++c) check_call(s, segment, c, begun_before);
}

void check_ops(State& s, const std::vector<Op>& ops) {
  s.launch = nullptr;
  for (s.op = 0; s.op < ops.size(); ++s.op) check_op(s, ops[s.op]);
  if (s.launch != nullptr)
    add(s, StructureFaultKind::group, list_place(s),
        fmt::format("op {} (group_begin) has no group_end in its {}", s.launch->id.value,
                    s.list < s.program.plans[s.plan].segments.size() ? "segment" : "pass"));
}

}  // namespace

void check_plan(State& s, const Plan& plan) {
  find_records(s, plan);
  index_passes(s, plan);
  const std::size_t segments = plan.segments.size();
  s.lag_limit.assign(count_op_lists(plan), kNotCalled);
  Int128 begun = 0;
  for (s.list = 0; s.list < segments; ++s.list) {
    const Segment& segment = plan.segments[s.list];
    s.lag_limit[s.list] = begun + segment.microbatches;
    check_segment(s, segment, begun);
    check_ops(s, segment.ops);
    begun += Int128{segment.microbatches} * segment.repeat;
  }
  for (s.list = segments; s.list < s.lag_limit.size(); ++s.list) {
    if (s.lag_limit[s.list] == kNotCalled)
      add(s, StructureFaultKind::malformed, list_place(s), "no segment calls this pass");
    check_ops(s, op_list(plan, s.list));
  }
}

}  // namespace mfsdp::structure
