#include "core/schedule/least_memory.hpp"

#include <algorithm>

#include "core/model/model.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {
namespace {

using schedule::Emitter;
using schedule::MicrobatchSchedule;
using schedule::State;

/// The tables that a configuration's buffers follow from, without emitted ops.
struct Buffers {
  explicit Buffers(const PlanConfig& config)
      : emitter(with_config(program, config)),
        state(emitter, make_model(config)),
        microbatch(emitter, state, own_recipe(config.model.family), true) {}

  static Program& with_config(Program& program, const PlanConfig& config) {
    program.config = config;
    return program;
  }

  Program program;
  Emitter emitter;
  State state;
  MicrobatchSchedule microbatch;
};

Bytes persistent_bytes(const Program& program) {
  std::int64_t sum = 0;
  for (const Buffer& buffer : program.buffers) {
    const Pool& pool = program.pools[buffer.pool.value];
    if (buffer.persistent && pool.space == MemorySpace::device)
      sum = checked_add(sum, round_up(buffer.size.value, pool.alignment));
  }
  return Bytes(sum);
}

/// Persistent state, gathered weights and full gradients.
LeastMemory sharded_part(const PlanConfig& config) {
  const Buffers made(config);
  const Bytes least = persistent_bytes(made.program) + made.microbatch.most_gathered_weights() +
                      made.microbatch.most_full_gradients();
  return {.pools = least, .communicators = std::ssize(made.program.communicators)};
}

LeastMemory activation_part(const PlanConfig& config) {
  return {.pools = Buffers(config).microbatch.most_live_activations()};
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
  config.mesh = {};
  if (reduces) config.mesh.dense = {{.axis = Axis::dp_shard, .size = 2}};
  config.mesh.resize(Axis::cp, cp);
  config.mesh.resize(Axis::tp, tp);
  config.strategy = config.outer_strategy = Strategy::no_shard;
  config.expert_strategy.reset();
  config.microbatches = 1;
  return config;
}

}  // namespace

LeastMemory LeastMemoryTable::remembered(std::vector<Part>& parts, const PlanConfig& key,
                                         LeastMemory (*work_out)(const PlanConfig&)) {
  {
    const std::lock_guard lock(mutex_);
    const auto found = std::ranges::find(parts, key, &Part::first);
    if (found != parts.end()) return found->second;
  }
  const LeastMemory part = work_out(key);
  const std::lock_guard lock(mutex_);
  parts.emplace_back(key, part);
  return part;
}

LeastMemory LeastMemoryTable::of(const PlanConfig& config) {
  LeastMemory least = remembered(sharded_, sharded_key(config), sharded_part);
  least.pools += remembered(activations_, activation_key(config), activation_part).pools;
  return least;
}

}  // namespace mfsdp
