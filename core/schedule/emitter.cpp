#include "core/schedule/emitter.hpp"

#include <algorithm>
#include <stdexcept>

#include "core/plan/transport.hpp"
#include "core/schedule/route.hpp"
#include "core/schedule/stage.hpp"

namespace mfsdp::schedule {

Operand operand(std::string role, Access access, const Region& region) {
  Operand made;
  made.role = std::move(role);
  made.access = access;
  made.buffer = region.buffer;
  made.offset = region.offset;
  made.dtype = region.dtype;
  made.shape = region.shape;
  made.rank_strides = region.rank_strides;
  return made;
}

Emitter::Emitter(Program& program) : program_(program) {
  for (std::size_t i = 0; i < static_cast<std::size_t>(StreamRole::exchange); ++i)
    program_.streams.push_back({.id = StreamId(i), .role = static_cast<StreamRole>(i)});
  for (const AxisTraffic& on : axis_traffic()) {
    make_communicator(on.axes(program_.config.mesh), on.gather_communicator);
    make_communicator(on.axes(program_.config.mesh), on.reduce_communicator);
  }
  make_communicator(token_axes(program_.config.mesh), kWorld);
  if (loss_axes(program_.config.mesh) != token_axes(program_.config.mesh))
    make_communicator(loss_axes(program_.config.mesh), kLosses);
  for (const char* name : {"model_weights", "state", "unsharded_weights", "gradients",
                           "activations", "workspace", "pinned"})
    make_pool(name);
  program_.pools.back().space = MemorySpace::host;
  make_windows();
  if (program_.config.mesh.size(Axis::pp) > 1) make_links();
}

/// Adds streams and communicators of stages, and the pool of received tensors.
void Emitter::make_links() {
  make_stream(StreamRole::send);
  make_stream(StreamRole::recv);
  make_communicator({Axis::pp}, kStages);
  const std::int64_t stages = program_.config.mesh.size(Axis::pp);
  for (std::int64_t from = 0; from < stages; ++from)
    for (const std::int64_t step : {1, -1})
      if (chunks_of_stage(program_.config) > 1 || (from + step >= 0 && from + step < stages))
        make_communicator({Axis::pp}, link_from(from, step, stages));
  make_pool("received");
}

void Emitter::make_pool(std::string name) {
  Pool pool;
  pool.id = PoolId(program_.pools.size());
  pool.name = std::move(name);
  program_.pools.push_back(std::move(pool));
}

/// A collective over registered memory has both operands in pools that are registered with its
/// communicator.
void Emitter::make_windows() {
  const auto register_with = [&](const Communicator& communicator, PoolRole role) {
    program_.pools[static_cast<std::size_t>(role)].registered = communicator.id;
  };
  for (const AxisTraffic& on : axis_traffic()) {
    if (!on.wire || on.of_whole) continue;  // no registered memory beside ranks of tp
    for (Communicator& communicator : program_.communicators) {
      if (communicator.purpose == on.gather_communicator)
        communicator.transport = config().gather;
      else if (communicator.purpose == on.reduce_communicator)
        communicator.transport = config().reduce;
      if (!traits_of(communicator.transport).uses_windows) continue;
      if (communicator.purpose == on.gather_communicator) {
        register_with(communicator, PoolRole::model_weights);
        register_with(communicator, PoolRole::unsharded_weights);
      } else {
        make_pool(traits_of(config().reduce).adds ? "reduced_gradients" : "gradient_parts");
        register_with(communicator, PoolRole::gradients);
        register_with(communicator, PoolRole::reduced_gradients);
      }
    }
  }
}

Transport Emitter::reduces_by() const {
  const Pool& gradients = program_.pools[static_cast<std::size_t>(PoolRole::gradients)];
  return gradients.registered ? config().reduce : Transport::nccl;
}

void Emitter::begin_segment(std::string name, std::int64_t repeat, std::int64_t microbatches) {
  Segment segment;
  segment.name = std::move(name);
  segment.repeat = repeat;
  segment.microbatches = microbatches;
  program_.plans.back().segments.push_back(std::move(segment));
  in_pass_ = false;
}

PassId Emitter::begin_pass(std::string name) {
  std::vector<Pass>& passes = program_.plans.back().passes;
  passes.push_back({.id = PassId(passes.size()), .name = std::move(name), .ops = {}});
  in_pass_ = true;
  return passes.back().id;
}

std::vector<Op>& Emitter::ops() {
  return in_pass_ ? program_.plans.back().passes.back().ops : segment().ops;
}

StreamId Emitter::stream(StreamRole role) const {
  return std::ranges::find(program_.streams, role, &Stream::role)->id;
}

PoolId Emitter::pool(PoolRole role) const {
  return role == PoolRole::received ? program_.pools.back().id
                                    : PoolId(static_cast<std::size_t>(role));
}

void Emitter::emit(StreamRole stream, Phase phase, std::optional<UnitId> unit, std::string name,
                   OpBody body, std::optional<GroupId> group) {
  ops().push_back({.id = OpId(ops_++),
                   .stream = this->stream(stream),
                   .phase = phase,
                   .unit = unit,
                   .group = group,
                   .name = std::move(name),
                   .body = std::move(body)});
}

void Emitter::record(StreamRole stream, Phase phase, const std::string& name) {
  emit(stream, phase, std::nullopt, name, Record{.event = event(name)});
}

void Emitter::max_over_ranks(Phase phase, std::string name, const Region& values) {
  emit(StreamRole::outer, phase, std::nullopt, std::move(name),
       Collective{.kind = CollectiveKind::all_reduce,
                  .communicator = communicator(kWorld),
                  .reduction = Reduction::max,
                  .count = values.shape[0],
                  .dtype = values.dtype,
                  .input = operand("input", Access::read, values),
                  .output = operand("output", Access::write, values)});
}

void Emitter::transfer(StreamRole stream, Phase phase, std::string_view purpose, std::int64_t step,
                       CollectiveKind kind, const Region& what) {
  const bool sends = kind == CollectiveKind::send;
  Collective made{.kind = kind,
                  .communicator = communicator(purpose),
                  .reduction = Reduction::none,
                  .count = what.shape[0],
                  .dtype = what.dtype,
                  .input = {},
                  .output = {},
                  .peer = PeerStep{.axis = Axis::pp, .step = step}};
  (sends ? made.input : made.output) =
      operand(sends ? "input" : "output", sends ? Access::read : Access::write, what);
  emit(stream, phase, at(what.buffer).unit, at(what.buffer).name + (sends ? ".send" : ".recv"),
       std::move(made));
}

void Emitter::wait(StreamRole stream, Phase phase, const std::string& name) {
  emit(stream, phase, std::nullopt, name, Wait{.event = event(name), .bindings = {}});
}

void Emitter::acquire(StreamRole stream, Phase phase, BufferId id) {
  emit(stream, phase, at(id).unit, at(id).name, Acquire{.buffer = id});
}

void Emitter::release(StreamRole stream, Phase phase, BufferId id) {
  emit(stream, phase, at(id).unit, at(id).name, Release{.buffer = id});
}

BufferId Emitter::buffer(const std::string& name, const BufferForm& form) {
  const auto [found, fresh] = buffers_.try_emplace(name, BufferId(program_.buffers.size()));
  if (!fresh) return found->second;
  Buffer made;
  made.id = found->second;
  made.name = name;
  made.category = form.category;
  made.dtype = form.dtype;
  made.pool = pool(form.pool);
  made.size = bytes_of(form.elements, form.dtype);
  made.unit = form.unit;
  made.holds = form.holds;
  if (!form.slot_class.empty())
    made.slot_class = slot_classes_
                          .try_emplace({form.category, std::string(form.slot_class)},
                                       static_cast<std::int64_t>(slot_classes_.size()))
                          .first->second;
  program_.buffers.push_back(std::move(made));
  return found->second;
}

BufferId Emitter::persistent(const std::string& name, const BufferForm& form) {
  const BufferId id = buffer(name, form);
  program_.buffers[id.value].persistent = true;
  return id;
}

EventId Emitter::event(const std::string& name) {
  const auto [found, fresh] = events_.try_emplace(name, EventId(program_.events.size()));
  if (fresh) program_.events.push_back({.id = found->second, .name = name});
  return found->second;
}

void Emitter::rotate(BufferId buffer, std::int64_t instances) {
  if (instances > 1) program_.buffers[buffer.value].instances = instances;
}

void Emitter::rotate(EventId event, std::int64_t instances) {
  if (instances > 1) program_.events[event.value].instances = instances;
}

void Emitter::make_stream(StreamRole role) {
  if (std::ranges::find(program_.streams, role, &Stream::role) == program_.streams.end())
    program_.streams.push_back({.id = StreamId(program_.streams.size()), .role = role});
}

void Emitter::make_communicator(std::vector<Axis> axes, std::string_view purpose) {
  const Mesh& mesh = program_.config.mesh;
  std::erase_if(axes, [&](Axis axis) { return mesh.size(axis) == 1; });
  std::int64_t size = 1;
  for (const Axis axis : axes) size = checked_mul(size, mesh.size(axis));
  const bool is_made = std::ranges::find(program_.communicators, purpose, &Communicator::purpose) !=
                       program_.communicators.end();
  if (size == 1 || is_made) return;
  program_.communicators.push_back({.id = CommunicatorId(program_.communicators.size()),
                                    .axes = std::move(axes),
                                    .purpose = std::string(purpose),
                                    .size = size});
}

CommunicatorId Emitter::communicator(std::string_view purpose) const {
  for (const Communicator& communicator : program_.communicators)
    if (communicator.purpose == purpose) return communicator.id;
  throw std::logic_error("no communicator for " + std::string(purpose));
}

}  // namespace mfsdp::schedule
