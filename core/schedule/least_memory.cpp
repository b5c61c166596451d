#include "core/schedule/least_memory.hpp"

#include <algorithm>
#include <deque>
#include <functional>

#include "core/model/model.hpp"
#include "core/plan/pipeline.hpp"
#include "core/plan/pipeline_order.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

using schedule::Emitter;
using schedule::MicrobatchSchedule;
using schedule::PipelineStage;
using schedule::State;

/// The tables that the buffers of one stage follow from, without emitted ops.
struct Buffers {
  explicit Buffers(const PlanConfig& config, const PipelineStage& stage)
      : emitter(with_config(program, config)), state(emitter, make_model(config), stage) {
    for (std::size_t c = 0; c < stage.chunks.size(); ++c)
      chunks.emplace_back(emitter, state, own_recipe(config.model.family), true, c);
  }

  static Program& with_config(Program& program, const PlanConfig& config) {
    program.config = config;
    return program;
  }

  Program program;
  Emitter emitter;
  State state;
  std::deque<MicrobatchSchedule> chunks;
};

/// Stages of which the fullest one is usually one: the first has most microbatches in flight, the
/// last has the head, and of those between the second has most in flight.
std::vector<PipelineStage> likely_fullest(const PlanConfig& config) {
  std::vector<PipelineStage> stages = schedule::stages_of(config);
  if (stages.size() > 3) stages.erase(stages.begin() + 2, stages.end() - 1);
  return stages;
}

Bytes persistent_bytes(const Program& program) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    const Pool& pool = program.pools[buffer.pool.value];
    if (buffer.persistent && pool.space == MemorySpace::device)
      sum = checked_add(sum, round_up(buffer.size.value, pool.alignment));
  }
  return Bytes(sum);
}

/// Persistent state, and gathered weights and full gradients of the chunk that has most.
std::vector<LeastMemory> sharded_part(const PlanConfig& config) {
  std::vector<LeastMemory> parts;
  for (const PipelineStage& stage : likely_fullest(config)) {
    const Buffers made(config, stage);
    Bytes weights;
    Bytes gradients;
    for (const MicrobatchSchedule& chunk : made.chunks) {
      weights = std::max(weights, chunk.most_gathered_weights());
      gradients = std::max(gradients, chunk.most_full_gradients());
    }
    parts.push_back({.pools = persistent_bytes(made.program) + weights + gradients,
                     .communicators = std::ssize(made.program.communicators)});
  }
  return parts;
}

/// Bytes that a stage has live while it works on a microbatch, and those of the others in flight:
/// the most over the actions of its order.
Bytes in_flight(const PlanConfig& config, std::int64_t stage,
                const std::vector<MicrobatchSchedule::PartsLive>& chunks) {
  const bool splits_backward = config.schedule == PipelineSchedule::zb_h1;
  Bytes kept;
  Bytes most;
  for (const PipelineAction& action : pipeline_order(pipeline_shape(config), stage)) {
    const MicrobatchSchedule::PartsLive& own = chunks[static_cast<std::size_t>(action.chunk)];
    if (action.part == PipelinePart::weight_gradients) continue;
    if (action.part == PipelinePart::forward) {
      most = std::max(most, kept + own.forward);
      kept += own.saved;
      continue;
    }
    kept -= own.saved;
    most = std::max(most, kept + (splits_backward ? own.saved : own.backward));
  }
  return most;
}

std::vector<LeastMemory> activation_part(const PlanConfig& config) {
  std::vector<LeastMemory> parts;
  for (const PipelineStage& stage : likely_fullest(config)) {
    Buffers made(config, stage);
    if (stage.is_only()) return {{.pools = made.chunks.front().most_live_activations()}};
    std::vector<MicrobatchSchedule::PartsLive> chunks;
    for (MicrobatchSchedule& chunk : made.chunks) chunks.push_back(chunk.live_of_parts());
    parts.push_back({.pools = in_flight(config, stage.index, chunks)});
  }
  return parts;
}

/// Among all configurations with equal sharded state, the one with the smallest buffers: those of
/// tokens grow with the micro-batch.
PlanConfig sharded_key(PlanConfig config) {
  config.micro_batch = 1;
  config.microbatches = 1;
  config.recompute = {.kind = Recompute::none};
  return config;
}

/// Among all configurations with equal activations, one without sharding. Activations of the head
/// depend on the dtype of weight gradients; those of the lowest block on whether these are reduced.
PlanConfig activation_key(PlanConfig config) {
  config.grad_dtype = config.reduce_dtype = weight_gradient_dtype(config);
  const bool reduces = config.mesh.world_size() > 1;
  // Ranks of these axes have parts of activations.
  const std::int64_t cp = config.mesh.size(Axis::cp);
  const std::int64_t tp = config.mesh.size(Axis::tp);
  const std::int64_t pp = config.mesh.size(Axis::pp);
  config.mesh = {};
  if (reduces) config.mesh.dense = {{.axis = Axis::dp_shard, .size = 2}};
  config.mesh.resize(Axis::cp, cp);
  config.mesh.resize(Axis::tp, tp);
  config.mesh.resize(Axis::pp, pp);
  config.strategy = config.outer_strategy = Strategy::no_shard;
  config.expert_strategy.reset();
  // 1F1B and ZB-H1 have at most one microbatch in flight for each stage.
  const bool by_stages = config.schedule == PipelineSchedule::one_f_one_b ||
                         config.schedule == PipelineSchedule::zb_h1;
  if (pp == 1)
    config.microbatches = 1;
  else if (by_stages)
    config.microbatches = std::min(config.microbatches, pp);
  return config;
}

}  // namespace

std::size_t rough_hash(const PlanConfig& config) {
  std::size_t hash = 0;
  const auto add = [&](std::int64_t value) {
    constexpr std::size_t kOdd = 0x9e3779b97f4a7c15;
    hash = (hash ^ std::hash<std::int64_t>{}(value)) * kOdd;
    hash ^= hash >> 32;
  };
  for (const auto* grid : {&config.mesh.dense, &config.mesh.experts})
    for (const MeshAxis& on : *grid) {
      add(static_cast<std::int64_t>(on.axis));
      add(on.size);
    }
  for (const std::int64_t value :
       {config.micro_batch, config.microbatches, config.seq_len, config.model.hidden,
        config.model.layers, config.virtual_stages, config.recompute.full_blocks, config.prefetch,
        config.grad_slots})
    add(value);
  add(static_cast<std::int64_t>(config.recompute.kind));
  add(static_cast<std::int64_t>(config.strategy));
  add(static_cast<std::int64_t>(config.schedule));
  add(static_cast<std::int64_t>(config.fp8));
  return hash;
}

const std::vector<LeastMemory>& LeastMemoryTable::remembered(
    Parts& parts, const PlanConfig& key, std::vector<LeastMemory> (*work_out)(const PlanConfig&)) {
  const std::size_t hash = rough_hash(key);
  const auto find = [&]() -> const std::vector<LeastMemory>* {
    const auto [first, last] = parts.equal_range(hash);
    for (auto at = first; at != last; ++at)
      if (at->second.first == key) return &at->second.second;
    return nullptr;
  };
  {
    const std::lock_guard lock(mutex_);
    if (const auto* known = find()) return *known;
  }
  std::vector<LeastMemory> made = work_out(key);
  const std::lock_guard lock(mutex_);
  if (const auto* known = find()) return *known;
  return parts.emplace(hash, std::pair(key, std::move(made)))->second.second;
}

LeastMemory LeastMemoryTable::of(const PlanConfig& config) {
  const std::vector<LeastMemory>& sharded = remembered(sharded_, sharded_key(config), sharded_part);
  const std::vector<LeastMemory>& activations =
      remembered(activations_, activation_key(config), activation_part);
  LeastMemory most;
  for (std::size_t stage = 0; stage < sharded.size(); ++stage) {
    LeastMemory least = sharded[stage];
    least.pools += activations[stage].pools;
    if (stage == 0 || least.pools > most.pools) most = least;
  }
  return most;
}

}  // namespace mfsdp
