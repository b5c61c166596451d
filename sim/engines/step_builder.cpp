#include "sim/engines/step_builder.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <stdexcept>
#include <utility>
#include <vector>

#include "core/plan/live_buffers.hpp"
#include "core/plan/pipeline.hpp"
#include "core/plan/work.hpp"

namespace mfsdp {
namespace {

// Streams and pools have these positions as their ids; the last one is for the outer axis.
constexpr std::array kStreams{StreamRole::compute, StreamRole::all_gather,
                              StreamRole::reduce_scatter, StreamRole::outer};

// Messages between stages have four: activations that come and go, gradients that come and go. Nothing
// is allocated there.
constexpr std::array kMessageStreams{StreamId{4}, StreamId{5}, StreamId{6}, StreamId{7}};

constexpr std::int64_t kBlockBytes = 512;  // block sizes of the allocator are multiples of it

KernelKind grouped_kind(GemmKind kind) {
  switch (kind) {
    case GemmKind::input_gradient: return KernelKind::grouped_input_gradient;
    case GemmKind::weight_gradient: return KernelKind::grouped_weight_gradient;
    case GemmKind::forward: break;
  }
  return KernelKind::grouped_product;
}

/// Rows in and out. Matrices count once; gradients that are added to others count twice.
std::int64_t grouped_bytes(GemmKind kind, const GroupedShape& shape, std::int64_t gradient) {
  constexpr std::int64_t kElement = size_of(DType::bf16);
  const std::int64_t rows =
      checked_mul(checked_mul(shape.rows, shape.outputs + shape.inputs), kElement);
  const std::int64_t matrices =
      checked_mul(checked_mul(shape.experts, shape.outputs), shape.inputs);
  const bool adds = kind == GemmKind::weight_gradient && gradient != 0;
  const std::int64_t of_element = adds ? 2 * gradient : kElement;
  return checked_add(rows, checked_mul(matrices, of_element));
}

StreamId stream_id(StreamRole stream) { return StreamId{static_cast<std::size_t>(stream)}; }

}  // namespace

StepBuilder::StepBuilder(const PlanConfig& config, const Meta& meta, std::int64_t stage) {
  program_.meta = meta;
  program_.config = config;
  const Mesh& mesh = config.mesh;
  const bool has_stages = mesh.size(Axis::pp) > 1;
  program_.classes = {has_stages ? class_of_stage(mesh, stage)
                                 : RankClass{.role = "all", .ranks = mesh.world_size()}};
  const bool has_outer = mesh.size(Axis::dp_outer) > 1;
  for (const StreamRole stream : kStreams)
    if (stream != StreamRole::outer || has_outer) add_stream(stream, to_string(stream));
  const auto join = [&](std::vector<Axis> axes, std::string_view purpose) {
    std::erase_if(axes, [&](Axis axis) { return mesh.size(axis) == 1; });
    if (axes.empty()) return CommunicatorId{};
    const CommunicatorId id{program_.communicators.size()};
    program_.communicators.push_back(
        {.id = id, .axes = axes, .purpose = std::string(purpose), .size = ranks_on(axes, mesh)});
    return id;
  };
  const bool is_world = ranks_on({Axis::dp_shard, Axis::cp}, mesh) == mesh.world_size();
  shards_ = join({Axis::dp_shard, Axis::cp}, is_world ? "world" : "shards");
  outer_ = join({Axis::dp_outer}, "outer");
  same_experts_ = join({Axis::expt_dp}, "same_experts");
  experts_ = join({Axis::ep}, "experts");
  tensor_ = join({Axis::tp}, "tensor");
  context_ = join({Axis::cp}, "context");
  messages_.fill(join({Axis::pp}, "stages"));
  if (!has_stages) return;
  model_ = join({Axis::pp, Axis::tp}, "model");
  for (const StreamId stream : kMessageStreams)
    program_.streams.push_back({.id = stream, .role = StreamRole::exchange});
}

void StepBuilder::add_stream(StreamRole stream, std::string_view name) {
  program_.streams.push_back({.id = stream_id(stream), .role = stream});
  Pool& pool = program_.pools.emplace_back();
  pool.id = PoolId{static_cast<std::size_t>(stream)};
  pool.name = name;
  pool.alignment = kBlockBytes;
}

void StepBuilder::begin_segment(std::string_view name, std::int64_t repeat,
                                std::int64_t microbatches) {
  Segment& segment = segments_.emplace_back();
  segment.name = name;
  segment.repeat = repeat;
  segment.microbatches = microbatches;
  in_pass_ = false;
  lag_ = 0;
  made_by_work_ = nullptr;
  next_made_.reset();
}

void StepBuilder::separate_messages() {
  const Communicator stages = program_.communicators[messages_[0].value];
  // A rank's pairs need different ones: the first of each pair is an even stage, an odd one, or the
  // last.
  for (CommunicatorId& of_pair : messages_) {
    of_pair = CommunicatorId{program_.communicators.size()};
    program_.communicators.push_back(
        {.id = of_pair, .axes = stages.axes, .purpose = "neighbours", .size = stages.size});
  }
}

PassId StepBuilder::begin_pass(std::string_view name, std::string_view work) {
  const PassId id{passes_.size()};
  passes_.push_back({.id = id, .name = std::string(name), .ops = {}});
  in_pass_ = true;
  lag_ = 0;
  made_by_work_ = nullptr;
  next_made_.reset();
  if (work.empty()) return id;
  const auto [made, is_new] = tensors_of_work_.try_emplace(std::string(work));
  made_by_work_ = &made->second;
  if (!is_new) next_made_ = 0;
  return id;
}

void StepBuilder::call(PassId pass, std::int64_t lag) {
  segments_.back().calls.push_back({.pass = pass, .lag = lag});
}

void StepBuilder::write_segments(const std::function<void(Turn)>& microbatch,
                                 const std::function<void()>& optimizer, bool last_differs) {
  const std::int64_t others = program_.config.microbatches - 1;
  const std::int64_t alike = last_differs ? others - 1 : others;
  begin_segment("first", 1, 1);
  host_work(kRootHooks);
  microbatch({.first = true, .last = others == 0});
  if (alike > 0) {
    begin_segment("next", alike, 1);
    host_work(kRootHooks);
    microbatch({.first = false, .last = !last_differs});
  }
  if (others > 0 && last_differs) {
    begin_segment("last", 1, 1);
    host_work(kRootHooks);
    microbatch({.first = false, .last = true});
  }
  begin_segment("optimizer", 1, 0);
  optimizer();
  // Training loops read the loss of each step.
  host_wait(record(StreamRole::compute));
}

UnitId StepBuilder::add_unit(std::string_view name, UnitKind kind) {
  const UnitId id{program_.units.size()};
  program_.units.push_back(
      {.id = id, .name = std::string(name), .kind = kind, .position = id.value});
  return id;
}

void StepBuilder::at(UnitId unit, Phase phase) {
  unit_ = unit;
  phase_ = phase;
}

std::string StepBuilder::full_name(std::string_view name) const {
  if (!unit_) return std::string(name);
  return program_.units[static_cast<std::size_t>(unit_->value)].name + "." + std::string(name);
}

Op& StepBuilder::add(std::string_view name, StreamRole stream, OpBody body) {
  return add_named(full_name(name), stream_id(stream), std::move(body));
}

void StepBuilder::add_kernel(std::string_view name, StreamRole stream, Kernel kernel) {
  const auto call = [&](bool is_before) {
    if (!around_kernels_ || in_hook_) return;
    in_hook_ = true;
    const auto unit = unit_;
    const Phase phase = phase_;
    around_kernels_(kernel, is_before);
    unit_ = unit;
    phase_ = phase;
    in_hook_ = false;
  };
  call(true);
  add(name, stream, kernel);
  call(false);
}

Op& StepBuilder::add_named(std::string name, StreamId stream, OpBody body) {
  host_.push_back(std::exchange(host_work_, 0) + work_of(body));
  return ops().emplace_back(Op{.id = OpId{next_op_++},
                               .stream = stream,
                               .phase = phase_,
                               .unit = unit_,
                               .lag = lag_,
                               .name = std::move(name),
                               .body = std::move(body)});
}

/// The host work of allocations and frees is included in that of their operators.
HostLaunches StepBuilder::work_of(const OpBody& body) const {
  if (std::holds_alternative<Kernel>(body)) return kernel_work(launcher_, phase_);
  if (std::holds_alternative<Collective>(body)) return kCollectiveCall;
  if (std::holds_alternative<Record>(body) || std::holds_alternative<Wait>(body)) return kEventCall;
  return 0;
}

Tensor StepBuilder::add_buffer(std::string_view name, std::int64_t bytes, Category category,
                               StreamRole stream) {
  const auto position = static_cast<std::uint32_t>(program_.buffers.size());
  Buffer& buffer = program_.buffers.emplace_back();
  buffer.id = BufferId{position};
  buffer.name = full_name(name);
  buffer.category = category;
  buffer.dtype = DType::uint8;
  buffer.pool = PoolId{static_cast<std::size_t>(stream)};
  buffer.size = Bytes(bytes);
  buffer.unit = unit_;
  return {position};
}

KeptFrom& StepBuilder::add_kept(BufferId buffer) {
  KeptFrom& kept = kept_.emplace_back();
  kept.buffer = buffer;
  if (!segments_.empty()) kept.before = OpId{next_op_};
  kept.in_second_step = second_step_;
  return kept;
}

Tensor StepBuilder::keep(std::string_view name, std::int64_t bytes, Category category,
                         StreamRole stream) {
  const Tensor tensor = add_buffer(name, bytes, category, stream);
  Buffer& buffer = program_.buffers[tensor.buffer];
  buffer.persistent = true;
  add_kept(buffer.id);
  return tensor;
}

Tensor StepBuilder::keep_by_renewal(std::string_view name, std::int64_t bytes, Category category,
                                    StreamRole stream) {
  const Tensor tensor = keep(name, bytes, category, stream);
  kept_.back().by_renewal = true;
  return tensor;
}

Tensor StepBuilder::once(std::string_view name, std::int64_t bytes, Category category,
                         StreamRole stream) {
  const Tensor tensor = keep(name, bytes, category, stream);
  // Not part of the steady state.
  program_.buffers.back().size = Bytes(0);
  kept_.back().brief = Bytes(bytes);
  return tensor;
}

void StepBuilder::free_once(Tensor tensor) {
  const KeptFrom made =
      *std::ranges::find(kept_, program_.buffers[tensor.buffer].id, &KeptFrom::buffer);
  KeptFrom& end = add_kept(made.buffer);
  end.brief = made.brief;
  end.freed = true;
}

void StepBuilder::empty_cache() { kept_.emplace_back().empties_cache = true; }

Tensor StepBuilder::allocate(std::string_view name, std::int64_t bytes, Category category,
                             StreamRole stream) {
  const Tensor tensor = next_made_ ? made_before(bytes) : add_buffer(name, bytes, category, stream);
  if (made_by_work_ != nullptr && !next_made_) made_by_work_->push_back(tensor);
  add(name, stream, Acquire{program_.buffers[tensor.buffer].id});
  return tensor;
}

/// The next tensor that another variant of the same work allocates.
Tensor StepBuilder::made_before(std::int64_t bytes) {
  const std::size_t next = (*next_made_)++;
  if (next >= made_by_work_->size() || bytes_of((*made_by_work_)[next]) != bytes)
    throw std::logic_error("variants of a pass allocate other tensors: " + passes_.back().name);
  return (*made_by_work_)[next];
}

Tensor StepBuilder::rest(std::string_view name, std::int64_t bytes, Category category,
                         StreamRole stream) {
  const Tensor tensor = add_buffer(name, bytes, category, stream);
  const BufferId id = program_.buffers[tensor.buffer].id;
  add_kept(id);
  resting_.push_back(id);
  return tensor;
}

Tensor StepBuilder::rest_from_first(std::string_view name, std::int64_t bytes, Category category,
                                    StreamRole stream) {
  const Tensor tensor = rest(name, bytes, category, stream);
  kept_.back().by_renewal = true;
  return tensor;
}

Tensor StepBuilder::begin_with(std::string_view name, std::int64_t bytes, Category category,
                               StreamRole stream) {
  const Tensor tensor = add_buffer(name, bytes, category, stream);
  KeptFrom& made = add_kept(program_.buffers[tensor.buffer].id);
  made.brief = Bytes(bytes);
  made.before_steps = true;
  return tensor;
}

void StepBuilder::allocate_again(Tensor rests) {
  const Buffer& buffer = program_.buffers[rests.buffer];
  add_named(buffer.name, StreamId{buffer.pool.value}, Acquire{buffer.id});
}

Tensor StepBuilder::renew(Tensor kept) {
  const Buffer old = program_.buffers[kept.buffer];
  const auto position = static_cast<std::uint32_t>(program_.buffers.size());
  Buffer& next = program_.buffers.emplace_back(old);
  next.id = BufferId{position};
  next.name += "_next";
  next.persistent = false;
  add_named(next.name, StreamId{old.pool.value}, Acquire{next.id});
  renewals_.push_back({.kept = old.id, .next = next.id});
  return {position};
}

void StepBuilder::free(Tensor tensor) {
  const Buffer& buffer = program_.buffers[tensor.buffer];
  add_named(buffer.name, StreamId{buffer.pool.value}, Release{buffer.id});
}

void StepBuilder::free_after(Tensor tensor, StreamRole stream) {
  const PoolId own = program_.buffers[tensor.buffer].pool;
  const auto used = static_cast<std::size_t>(stream);
  if (own != PoolId{used}) in_use_.push_back({.release = OpId{next_op_}, .stream = StreamId{used}});
  free(tensor);
}

void StepBuilder::free(std::initializer_list<Tensor> tensors) {
  for (const Tensor tensor : tensors) free(tensor);
}

void StepBuilder::scratch(std::string_view name, std::int64_t bytes) {
  free(allocate(name, bytes, Category::workspace));
}

std::int64_t StepBuilder::bytes_of(Tensor tensor) const {
  return program_.buffers[tensor.buffer].size.value;
}

void StepBuilder::memory_bound(KernelKind kind, std::string_view name, const Traffic& traffic,
                               StreamRole stream) {
  Kernel kernel{.kind = kind,
                .operands = {},
                .attributes = {{"bytes", traffic.bytes},
                               {"pattern", static_cast<std::int64_t>(traffic.pattern)}}};
  if (traffic.share != 0) kernel.attributes.emplace_back("share", traffic.share);
  add_kernel(name, stream, std::move(kernel));
}

void StepBuilder::gemm(GemmKind kind, std::string_view name, std::int64_t m, std::int64_t n,
                       std::int64_t k, GemmWorkspace workspace) {
  Kernel kernel{.kind = KernelKind::gemm,
                .operands = {},
                .attributes = {{"k", k}, {"kind", number_of(kind)}, {"m", m}, {"n", n}}};
  kernel.flops = spec_of(kernel)->flops(kernel);
  if (workspace == GemmWorkspace::pytorchs) take_workspace();
  add_kernel(name, StreamRole::compute, std::move(kernel));
}

void StepBuilder::gemm_fp8(GemmKind kind, std::string_view name, const GemmSize& size,
                           const Fp8Sums& sums, GemmWorkspace workspace) {
  Kernel kernel{.kind = KernelKind::gemm_fp8,
                .operands = {},
                .attributes = {{"adds_fp32", sums.adds_fp32 ? 1 : 0},
                               {"fast", sums.fast ? 1 : 0},
                               {"k", size.k},
                               {"kind", number_of(kind)},
                               {"m", size.m},
                               {"n", size.n}}};
  kernel.flops = spec_of(kernel)->flops(kernel);
  if (workspace == GemmWorkspace::pytorchs) take_workspace();
  add_kernel(name, StreamRole::compute, std::move(kernel));
}

/// cuBLAS has a workspace for each thread that calls it; backward runs on another thread than
/// forward.
void StepBuilder::take_workspace() {
  constexpr std::int64_t kHopper = std::int64_t{32} << 20;
  bool& there = phase_ == Phase::forward ? forward_workspace_ : backward_workspace_;
  if (!there) keep("cublas_workspace", kHopper, Category::workspace);
  there = true;
}

void StepBuilder::grouped_gemm(GemmKind kind, std::string_view name, const GroupedShape& shape,
                               std::int64_t gradient) {
  Kernel kernel{.kind = grouped_kind(kind),
                .operands = {},
                .attributes = {{"bytes", grouped_bytes(kind, shape, gradient)},
                               {"experts", shape.experts},
                               {"gradient", gradient},
                               {"k", shape.inputs},
                               {"m", shape.rows},
                               {"n", shape.outputs}}};
  kernel.flops = spec_of(kernel)->flops(kernel);
  if (!shape.one_kernel) host_work((shape.experts - 1) * kCompiledKernel);
  add(name, StreamRole::compute, std::move(kernel));
}

void StepBuilder::attention(KernelKind kind, const AttentionKind& other) {
  const PlanConfig& config = program_.config;
  const auto given = [](std::int64_t value, std::int64_t usual) {
    return value == 0 ? usual : value;
  };
  Kernel kernel{
      .kind = kind,
      .operands = {},
      .attributes = {{"batch", (other.whole ? 2 : 1) * given(other.batch, config.micro_batch)},
                     {"head_dim", config.model.head_dim},
                     {"heads", given(other.heads, config.model.heads / config.mesh.size(Axis::tp))},
                     {"seq", given(other.tokens, config.seq_len)}}};
  if (other.value_dim != 0) kernel.attributes.emplace_back("value_dim", other.value_dim);
  if (other.window != 0) kernel.attributes.emplace_back("window", other.window);
  if (other.whole) kernel.attributes.emplace_back("mask", 1);
  kernel.flops = spec_of(kind).flops(kernel);
  add("attention", StreamRole::compute, std::move(kernel));
}

void StepBuilder::collective(CollectiveKind kind, std::string_view name, std::int64_t elements,
                             DType dtype, RankGroup group) {
  const StreamRole stream =
      kind == CollectiveKind::all_gather ? StreamRole::all_gather : StreamRole::reduce_scatter;
  collective_on(stream, kind, name, elements, dtype, group);
}

CommunicatorId StepBuilder::communicator_of(RankGroup group) const {
  switch (group) {
    case RankGroup::same_experts: return same_experts_;
    case RankGroup::tensor: return tensor_;
    case RankGroup::context: return context_;
    case RankGroup::experts: return experts_;
    case RankGroup::outer: return outer_;
    case RankGroup::model: return model_;
    case RankGroup::all: break;
  }
  return shards_;
}

void StepBuilder::collective_on(StreamRole stream, CollectiveKind kind, std::string_view name,
                                std::int64_t elements, DType dtype, RankGroup group) {
  const bool sums = kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce_scatter;
  Collective made;
  made.kind = kind;
  made.communicator = communicator_of(group);
  if (sums) made.reduction = Reduction::sum;
  made.count = elements;
  made.dtype = dtype;
  add(name, stream, std::move(made));
}

Mark StepBuilder::collective_beside(CollectiveKind kind, std::string_view name,
                                    std::int64_t elements, DType dtype, RankGroup group) {
  wait(StreamRole::outer, record(StreamRole::compute));
  collective_on(StreamRole::outer, kind, name, elements, dtype, group);
  return record(StreamRole::outer);
}

void StepBuilder::all_reduce_between(StreamRole stream, std::string_view name,
                                     std::int64_t elements, DType dtype) {
  wait(StreamRole::reduce_scatter, record(stream));
  collective(CollectiveKind::all_reduce, name, elements, dtype);
  wait(stream, record(StreamRole::reduce_scatter));
}

void StepBuilder::exchange(CollectiveKind kind, std::string_view name, std::int64_t elements,
                           DType dtype) {
  collective_on(StreamRole::compute, kind, name, elements, dtype, RankGroup::experts);
}

void StepBuilder::reduce_outer(std::string_view name, std::int64_t elements, DType dtype,
                               StreamRole stream) {
  collective_on(stream, CollectiveKind::all_reduce, name, elements, dtype, RankGroup::outer);
}

EventId StepBuilder::add_event(std::string_view name) {
  const EventId event{program_.events.size()};
  program_.events.push_back({.id = event, .name = std::string(name)});
  return event;
}

void StepBuilder::wait_for(EventId event, bool host_waits) {
  add("wait", StreamRole::compute, Wait{.event = event, .bindings = {}});
  if (host_waits) add("host_wait", StreamRole::compute, HostWait{.event = event, .bindings = {}});
}

void StepBuilder::exchange_messages(const std::vector<StageMessage>& messages, EventId ended) {
  const StageMessage& first = messages.front();
  const std::size_t own = (first.of_gradients ? 2U : 0U) + (first.sends ? 1U : 0U);
  const StreamId stream = kMessageStreams[messages.size() > 1 ? 0 : own];
  const std::int64_t stages = program_.config.mesh.size(Axis::pp);
  const std::int64_t stage = program_.classes[0].at[0].index;
  const auto is_next = [](const StageMessage& one) { return one.sends != one.of_gradients; };
  const auto communicator = [&](const StageMessage& one) {
    const std::int64_t first_of_pair = is_next(one) ? stage : (stage + stages - 1) % stages;
    const std::int64_t pair = first_of_pair == stages - 1 ? 2 : first_of_pair % 2;
    return messages_[static_cast<std::size_t>(pair) + (one.of_gradients ? 3 : 0)];
  };
  const std::string_view single = first.sends ? "send" : "receive";
  const std::string_view name = messages.size() > 1 ? "exchange" : single;
  const auto add_here = [&](std::string_view op, OpBody body) {
    add_named(full_name(op), stream, std::move(body));
  };
  const Mark before = record(StreamRole::compute);
  add_here("wait", Wait{.event = before.event, .bindings = {}});
  add_here(name, GroupBegin{communicator(first)});
  for (const StageMessage& message : messages) {
    const std::int64_t peer = (stage + (is_next(message) ? 1 : stages - 1)) % stages;
    Collective made;
    made.kind = message.sends ? CollectiveKind::send : CollectiveKind::recv;
    made.communicator = communicator(message);
    made.count = message.elements;
    made.dtype = DType::bf16;
    made.peer = PeerStep{.axis = Axis::pp, .step = peer - stage};
    add_here(name, std::move(made));
  }
  add_here(name, GroupEnd{communicator(first)});
  add_here("record", Record{ended});
}

Mark StepBuilder::record(StreamRole stream) {
  const EventId event = add_event(full_name("done"));
  return {.event = event, .record = add("record", stream, Record{event}).id};
}

void StepBuilder::wait(StreamRole stream, const Mark& mark, std::int64_t distance) {
  add("wait", stream,
      Wait{.event = mark.event, .bindings = {{.record = mark.record, .distance = distance}}});
}

void StepBuilder::host_wait(const Mark& mark) {
  add("host_wait", StreamRole::compute,
      HostWait{.event = mark.event, .bindings = {{.record = mark.record, .distance = 0}}});
}

/// Tensors that one pass allocates and another one frees have instances.
void StepBuilder::add_instances() {
  std::map<BufferId, std::size_t, std::less<>> acquired_by;
  for (std::size_t p = 0; p < passes_.size(); ++p)
    for (const Op& op : passes_[p].ops)
      if (const auto* acquire = std::get_if<Acquire>(&op.body))
        acquired_by.emplace(acquire->buffer, p);
  for (std::size_t p = 0; p < passes_.size(); ++p)
    for (const Op& op : passes_[p].ops)
      if (const auto* release = std::get_if<Release>(&op.body))
        if (const auto made = acquired_by.find(release->buffer);
            made != acquired_by.end() && made->second != p)
          program_.buffers[release->buffer.value].instances = instances_;
}

EnginePlan StepBuilder::finish() {
  EnginePlan plan;
  add_instances();
  program_.plans.push_back({.name = std::string(to_string(PlanRole::train)),
                            .segments = std::move(segments_),
                            .passes = std::move(passes_)});
  state_live_buffers(program_.plans.back(), resting_);
  plan.padding = padding_;
  plan.outside = outside_;
  plan.leaves_sms = leaves_sms_;
  plan.program = std::move(program_);
  std::ranges::stable_partition(kept_, std::logical_not{}, &KeptFrom::in_second_step);
  plan.kept = std::move(kept_);
  plan.renewals = std::move(renewals_);
  plan.host = std::move(host_);
  plan.in_use = std::move(in_use_);
  return plan;
}

}  // namespace mfsdp
