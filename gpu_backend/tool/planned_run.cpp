#include "gpu_backend/tool/planned_run.hpp"

#include "sim/tool/asker.hpp"

namespace mfsdp {

Result<PlannedRun> plan_run(const ExecOptions& options, const Session& session) {
  SimOptions same = same_plan(options.common, options.given);
  same.memory_alone = true;
  same.runs = true;
  Asker asker(session);
  MFSDP_LET(question, asker.question(same));
  MFSDP_LET(program, program_of(question));
  question.program = program;
  MFSDP_LET(prediction, answer(question));
  return PlannedRun{.program = program, .predicted = std::move(prediction.run)};
}

}  // namespace mfsdp
