#include "gpu_backend/tool/predicted_run.hpp"

#include "core/request/plan_request.hpp"
#include "sim/search/prediction_requests.hpp"

namespace mfsdp {

Result<std::shared_ptr<const Program>> plan_run(const ExecOptions& options,
                                                const Session& session) {
  return PlanRequests(session.scenarios, notes_on(session.err, session.tool))
      .program(options.common, {.gpus_are_chosen = say_gpus(options.given), .runs = true});
}

Result<PredictedRun> predict_run(const std::shared_ptr<const Program>& program,
                                 const ExecOptions& options, const Session& session) {
  JobOptions job;
  job.common = options.common;
  job.given = options.given;
  job.memory_alone = true;
  job.attention = options.attention;
  const PlanRequest plan{.config = program->config, .meta = program->meta, .program = program};
  PredictionRequests requests(session.scenarios, notes_on(session.err, session.tool));
  MFSDP_LET(request, requests.read(plan, job));
  MFSDP_LET(prediction, predict(request));
  return std::move(prediction.run);
}

}  // namespace mfsdp
