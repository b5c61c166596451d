#include "core/schedule/build.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <stdexcept>

#include "core/memory/assign.hpp"
#include "core/model/model.hpp"
#include "core/plan/pipeline.hpp"
#include "core/schedule/bindings.hpp"
#include "core/schedule/collective_placement.hpp"
#include "core/schedule/exact_sums.hpp"
#include "core/schedule/microbatch.hpp"
#include "core/schedule/optimizer.hpp"
#include "core/schedule/pipeline.hpp"
#include "core/schedule/route.hpp"

namespace mfsdp {
namespace {

using schedule::Emitter;
using schedule::MicrobatchSchedule;
using schedule::State;

Plan plan_of(PlanRole role) { return {.name = std::string(to_string(role)), .segments = {}}; }

/// first, middle x k, last, optimizer; a single microbatch is the segment "only".
void build_train(Emitter& emitter, const State& state, const FamilyRecipe& recipe,
                 std::int64_t microbatches) {
  emitter.program().plans.push_back(plan_of(PlanRole::train));
  MicrobatchSchedule microbatch(emitter, state, recipe, true);
  if (microbatches == 1) {
    microbatch.emit("only", 1, {.first = true, .last = true});
  } else {
    microbatch.emit("first", 1, {.first = true, .last = false});
    if (microbatches > 2) {
      const MicrobatchSchedule::Carry before = microbatch.carry();
      microbatch.emit("middle", microbatches - 2, {.first = false, .last = false});
      if (microbatch.carry() != before)
        throw std::logic_error("a middle microbatch does not end as it begins");
    }
    microbatch.emit("last", 1, {.first = false, .last = true});
  }
  schedule::emit_loss(emitter, state, "", true);
  emitter.begin_segment("optimizer", 1, 0);
  schedule::emit_optimizer(emitter, state);
}

/// One microbatch forward and its loss.
void build_eval(Emitter& emitter, const State& state, const FamilyRecipe& recipe) {
  emitter.program().plans.push_back(plan_of(PlanRole::eval));
  MicrobatchSchedule microbatch(emitter, state, recipe, false);
  microbatch.emit("eval", 1, {.first = true, .last = true});
  schedule::emit_loss(emitter, state, "eval.", false);
  schedule::emit_readback(emitter, state, "loss_ready", "eval.");
  // The next evaluation resets the sums.
  emitter.wait(StreamRole::compute, Phase::output, "eval.loss_ready");
}

/// The schedule supports the axes of data, context, tensor, expert and pipeline parallelism. Plans over other
/// axes can be written by hand and proved.
Result<void> check_axes(const Mesh& mesh) {
  const auto is_known = [](const MeshAxis& on) {
    return on.axis == Axis::ep || on.axis == Axis::pp ||
           std::ranges::any_of(schedule::axis_traffic(), [&](const schedule::AxisTraffic& row) {
             return row.axis == on.axis || std::ranges::find(row.inner, on.axis) != row.inner.end();
           });
  };
  for (const auto& [grid, name] :
       {std::pair{&mesh.dense, "mesh.dense"}, std::pair{&mesh.experts, "mesh.experts"}})
    for (const MeshAxis& on : *grid)
      if (!is_known(on))
        return fail(name, fmt::format("no schedule is built over {}", to_string(on.axis)));
  return {};
}

/// The program of ranks that all have the whole model.
Program whole_program(const PlanConfig& config, const Meta& meta, const FamilyRecipe& family) {
  Program program;
  program.meta = meta;
  program.config = config;
  program.classes = {{.role = "data_parallel", .ranks = config.mesh.world_size()}};
  Emitter emitter(program);
  const State state(emitter, make_model(config));
  build_train(emitter, state, family, config.microbatches);
  build_eval(emitter, state, family);
  schedule::place_collectives(emitter);
  return program;
}

}  // namespace

Result<Job> build_job(const PlanConfig& config, const Meta& meta, AllocationCache* cache,
                      const FamilyRecipe* recipe) {
  MFSDP_TRY(validate(config));
  MFSDP_TRY(check_pipeline(config));
  MFSDP_TRY(check_axes(config.mesh));
  const FamilyRecipe& family = recipe != nullptr ? *recipe : own_recipe(config.model.family);
  try {
    Job job;
    if (config.mesh.size(Axis::pp) > 1)
      job = schedule::make_stages(config, meta, family);
    else
      job.programs.push_back(whole_program(config, meta, family));
    for (Program& program : job.programs) {
      schedule::mark_exact_sums(program);
      for (Plan& plan : program.plans) resolve_bindings(plan, program.events);
      MFSDP_TRY(assign_memory(program, cache));
    }
    return job;
  } catch (const OverflowError& error) {
    return fail("plan", fmt::format("a size is too large for 63 bits ({}): check the model's "
                                    "shape, --seq-len and --micro-batch",
                                    error.what()));
  }
}

Result<Program> build_program(const PlanConfig& config, const Meta& meta, AllocationCache* cache,
                              const FamilyRecipe* recipe) {
  if (config.mesh.size(Axis::pp) > 1)
    return fail("--pp", "expected 1: a plan of one class of ranks is needed here");
  MFSDP_LET(job, build_job(config, meta, cache, recipe));
  return std::move(job.programs.front());
}

}  // namespace mfsdp
