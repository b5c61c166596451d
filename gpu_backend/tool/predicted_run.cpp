#include "gpu_backend/tool/predicted_run.hpp"

#include <fmt/format.h>

#include <utility>

#include "core/model/model_shape.hpp"
#include "core/request/plan_file.hpp"
#include "core/request/plan_request.hpp"
#include "core/schedule/build.hpp"
#include "reports/record/rates.hpp"
#include "sim/search/prediction_requests.hpp"

namespace mfsdp {
namespace {

Result<PredictedRun> unpredicted(const Job& job) {
  const Program& program = job.programs.front();
  PredictedRun run;
  for (const Program& of_class : job.programs) {
    const Plan* plan = of_class.find_plan(kTrainPlan);
    if (plan == nullptr)
      return fail("plans", fmt::format("there is no plan named '{}'", kTrainPlan));
    run.plan.model_flops += model_flops(*plan) * static_cast<double>(of_class.classes[0].ranks);
  }
  run.plan.model_flops /= static_cast<double>(program.config.mesh.world_size());
  run.plan_hash = plan_hash(job);
  run.model_name = program.meta.model_name;
  run.parameters = parameter_count(program.config.model);
  run.config = program.config;
  run.absent = FigureSet::all();
  for (const ResultFigure known :
       {ResultFigure::parameters, ResultFigure::model, ResultFigure::config})
    run.absent.remove(known);
  return run;
}

}  // namespace

Result<std::shared_ptr<const Job>> plan_run(const ExecOptions& options, const Session& session) {
  const Notes notes = notes_on(session.err, session.tool);
  Job job;
  if (options.common.plan) {
    MFSDP_SET(job, load_job(*options.common.plan, notes));
  } else {
    MFSDP_LET(request, PlanRequests(session.scenarios, notes)
                           .read(options.common,
                                 {.gpus_are_chosen = say_gpus(options.given), .runs = true}));
    MFSDP_LET(program, build_program(request.config, request.meta));
    job.programs.push_back(std::move(program));
  }
  return std::make_shared<const Job>(std::move(job));
}

Result<PredictedRun> predict_run(const std::shared_ptr<const Job>& job, const ExecOptions& options,
                                 const Session& session) {
  if (job->programs.size() > 1 || is_pipelined(job->programs.front())) return unpredicted(*job);
  const std::shared_ptr<const Program> program(job, &job->programs.front());
  JobOptions asked;
  asked.common = options.common;
  asked.given = options.given;
  asked.memory_alone = true;
  asked.attention = options.attention;
  const PlanRequest plan{.config = program->config, .meta = program->meta, .program = program};
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(request, requests.read(plan, asked));
  MFSDP_LET(prediction, predict(request));
  return std::move(prediction.run);
}

bool is_predicted(const PredictedRun& run) { return !run.absent.has(ResultFigure::categories); }

}  // namespace mfsdp
