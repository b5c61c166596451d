#include "gpu_backend/tool/predicted_run.hpp"

#include "core/request/plan_request.hpp"
#include "sim/tool/asker.hpp"

namespace mfsdp {

Result<std::shared_ptr<const Program>> plan_run(const ExecOptions& options,
                                                const Session& session) {
  return PlanRequests(session.scenarios, talk_on(session.err, session.tool))
      .program(options.common, {.gpus_are_chosen = say_gpus(options.given), .runs = true});
}

Result<PredictedRun> predict_run(const std::shared_ptr<const Program>& program,
                                 const ExecOptions& options, const Session& session) {
  SimOptions same = same_question(options.common, options.given);
  same.memory_alone = true;
  same.attention = options.attention;
  const PlanRequest request{.config = program->config, .meta = program->meta, .program = program};
  MFSDP_LET(question, Asker(session).question(request, same));
  MFSDP_LET(prediction, answer(question));
  return std::move(prediction.run);
}

}  // namespace mfsdp
