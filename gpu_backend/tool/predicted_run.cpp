#include "gpu_backend/tool/predicted_run.hpp"

#include <utility>

#include "core/request/plan_request.hpp"
#include "sim/search/prediction_requests.hpp"

namespace mfsdp {

Result<PlannedRun> plan_run(const ExecOptions& options, const Session& session) {
  PlanRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(request, requests.read(options.common, {.gpus_are_chosen = say_gpus(options.given),
                                                    .runs = true,
                                                    .takes_jobs = true}));
  MFSDP_LET(job, build_requested(request));
  return PlannedRun{.job = std::move(job), .hash = request.hash};
}

Result<PredictedRun> predict_run(const PlannedRun& planned, const ExecOptions& options,
                                 const Session& session) {
  const std::shared_ptr<const Program> program(planned.job, planned.job->programs.data());
  JobOptions asked;
  asked.common = options.common;
  asked.given = options.given;
  asked.memory_alone = true;
  asked.attention = options.attention;
  const PlanRequest plan{.config = program->config,
                         .meta = program->meta,
                         .program = program,
                         .job = planned.job,
                         .hash = planned.hash};
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(request, requests.read(plan, asked));
  MFSDP_LET(prediction, predict(request));
  return std::move(prediction.run);
}

}  // namespace mfsdp
