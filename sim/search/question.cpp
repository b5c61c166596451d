#include "sim/search/question.hpp"

#include "core/schedule/build.hpp"

namespace mfsdp {

Footprint footprint(const Program& program, const Gpu& gpu) {
  const Bytes runtime = runtime_bytes(gpu, std::ssize(program.communicators));
  Footprint footprint{.allocated = runtime, .least = runtime};
  for (const Pool& pool : program.pools) {
    if (pool.space != MemorySpace::device) continue;
    footprint.allocated += pool.height;
    footprint.least += pool.lower_bound;
  }
  return footprint;
}

bool fits(Bytes memory, const Question& question) {
  return memory + question.reserve <= question.costs->cluster().gpu.capacity;
}

Result<std::shared_ptr<const Program>> program_of(const Question& question) {
  if (question.program) return question.program;
  MFSDP_LET(program, build_program(question.config, question.meta));
  return std::make_shared<const Program>(std::move(program));
}

Result<Prediction> answer(const Question& question) {
  MFSDP_LET(program, program_of(question));
  MFSDP_LET(prediction, predict(*program, *question.costs));
  MemorySummary& memory = prediction.run.memory;
  memory.headroom -= question.reserve;
  memory.fits = fits(memory.allocated, question);
  return std::move(prediction);
}

}  // namespace mfsdp
