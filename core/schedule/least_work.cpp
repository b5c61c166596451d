#include "core/schedule/least_work.hpp"

#include <algorithm>
#include <unordered_map>

#include "core/model/model.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/shard/groups.hpp"

namespace mfsdp {

LeastWork least_work(const PlanConfig& config) {
  LeastWork work;
  work.program.config = work_key(config);
  schedule::Emitter emitter(work.program);
  const schedule::State state(emitter, make_model(work.program.config));
  const schedule::MicrobatchSchedule microbatch(emitter, state, own_recipe(config.model.family),
                                                true);
  work.units.resize(static_cast<std::size_t>(config.model.layers) + 2);
  std::unordered_map<const RecipeOp*, std::size_t> known;
  for (const auto& op : microbatch.serial_ops()) {
    const auto [number, fresh] = known.try_emplace(op.recipe, work.ops.size());
    if (fresh) work.ops.push_back(microbatch.body_of(*op.recipe));
    UnitWork& unit = work.units[op.owner];
    (op.forward ? unit.forward : unit.backward).push_back(number->second);
  }
  return work;
}

PlanConfig work_key(PlanConfig config) {
  config.grad_dtype = config.reduce_dtype = weight_gradient_dtype(config);
  const std::int64_t ep = config.expert_parallel;
  const std::int64_t cp = config.mesh.size(Axis::cp);
  const std::int64_t tp = config.mesh.size(Axis::tp);
  config.mesh = data_parallel_mesh(1, config.is_expert_parallel() ? ep : 1);
  config.mesh.resize(Axis::cp, cp);
  config.mesh.resize(Axis::tp, tp);
  config.mesh = with_expert_grid(std::move(config.mesh), ep);
  config.strategy = config.outer_strategy = Strategy::no_shard;
  config.expert_strategy.reset();
  config.microbatches = 1;
  config.schedule = PipelineSchedule::one_f_one_b;
  config.virtual_stages = config.microbatch_group = 0;
  config.layers_of_stages.clear();
  // None of these changes what the compute stream runs.
  const PlanConfig usual;
  config.prefetch = usual.prefetch;
  config.grad_slots = usual.grad_slots;
  config.placement = usual.placement;
  config.gather = config.reduce = Transport::nccl;
  config.keep_gathered = usual.keep_gathered;
  config.allocator = usual.allocator;
  return config;
}

LeastGathers least_gathers(const PlanConfig& config) {
  LeastGathers made;
  made.program.config = gathers_key(config);
  schedule::Emitter emitter(made.program);
  const std::vector<schedule::PipelineStage> stages = schedule::stages_of(made.program.config);
  // Stages between have neither embedding nor head, and so the fewest weights: any one will do.
  const schedule::PipelineStage& stage = stages[stages.size() / 2];
  const schedule::State state(emitter, make_model(made.program.config), stage);
  const auto add = [&](const schedule::GroupState& of) {
    const Group& group = *of.group;
    const bool is_dealt =
        std::ranges::find(group.shard, Axis::ep, &AxisPlacement::axis) != group.shard.end();
    if (is_dealt || group.quantised || !of.route.gather || !of.is_gathered_for_use()) return;
    Collective gather{
        .kind = CollectiveKind::all_gather,
        .communicator = emitter.communicator(of.route.gather->on->gather_communicator),
        .reduction = Reduction::none,
        .count = group.elements / of.route.gather->ranks,
        .dtype = group.fp8 ? DType::fp8_e4m3 : config.param_dtype,
        .input = {},
        .output = {}};
    const auto known =
        std::ranges::find(made.gathers, gather, &decltype(made.gathers)::value_type::first);
    if (known != made.gathers.end())
      ++known->second;
    else
      made.gathers.emplace_back(std::move(gather), 1);
  };
  for (std::size_t c = 0; c < stage.chunks.size(); ++c) {
    const schedule::MicrobatchSchedule chunk(emitter, state, own_recipe(config.model.family), true,
                                             c);
    for (const std::size_t unit : chunk.least_gathers())
      for (const std::size_t g : state.units[unit].groups) add(state.groups[g]);
  }
  return made;
}

PlanConfig gathers_key(PlanConfig config) {
  config.micro_batch = config.microbatches = 1;
  config.recompute = {.kind = Recompute::none};
  config.prefetch = std::max(config.prefetch, kMostPrefetch);
  config.gather = config.reduce = Transport::nccl;
  config.schedule = PipelineSchedule::one_f_one_b;
  if (config.virtual_stages > 1) config.schedule = PipelineSchedule::interleaved;
  return config;
}

}  // namespace mfsdp
