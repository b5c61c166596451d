#include "sim/search/question.hpp"

#include <fmt/format.h>

#include "core/schedule/build.hpp"

namespace mfsdp {

namespace {

std::string text_of(const RankVariation& variation) {
  std::string text;
  if (variation.jitter.num > 0)
    text = fmt::format("jitter {}, seed {}", variation.jitter.value(), variation.seed);
  for (const SlowRank& slow : variation.slow)
    text += fmt::format("{}rank {} x {}", text.empty() ? "" : ", ", slow.rank, slow.factor.value());
  return text;
}

std::optional<RankReport> report_of(const RankSummary& ranks, const RankVariation& variation) {
  if (ranks.simulated == 1) return std::nullopt;
  return RankReport{.ranks = ranks.ranks,
                    .simulated = ranks.simulated,
                    .slowest = ranks.slowest,
                    .compute_mean = ranks.compute_mean,
                    .compute_most = ranks.compute_most,
                    .waiting_mean = ranks.waiting_mean,
                    .variation = text_of(variation)};
}

}  // namespace

bool fits(Bytes memory, const Question& question) {
  return memory + question.reserve <= question.costs->cluster().gpu.capacity;
}

Result<std::shared_ptr<const Program>> program_of(const Question& question) {
  if (question.program) return question.program;
  MFSDP_LET(program, build_program(question.config, question.meta, question.cache.get()));
  return std::make_shared<const Program>(std::move(program));
}

Result<Prediction> answer(const Question& question) {
  MFSDP_LET(program, program_of(question));
  MFSDP_LET(prediction, predict(*program, *question.costs, question.variation));
  MemorySummary& memory = prediction.run.memory;
  memory.reserve = question.reserve;
  memory.headroom -= question.reserve;
  memory.fits = fits(memory.allocated, question);
  RunResult& run = prediction.run;
  const Trust trust = trust_of(*question.costs, question.errors, run.time, question.anchor);
  run.calibration = trust.calibration;
  run.trust = {.tier = std::string(tier_text(trust.tier)),
               .step_error = trust.expected_step_error,
               .text = trust.text};
  run.ranks = report_of(prediction.simulation.ranks, question.variation);
  return std::move(prediction);
}

}  // namespace mfsdp
