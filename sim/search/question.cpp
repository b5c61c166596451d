#include "sim/search/question.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/schedule/build.hpp"
#include "sim/hardware/power.hpp"

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

Bytes least_allocated(const Question& question) {
  const Gpu& gpu = question.costs->cluster().gpu;
  if (question.program) return footprint(*question.program, gpu).least;
  if (question.engine != EngineKind::mfsdp) return {};
  try {
    LeastMemoryTable alone;
    LeastMemoryTable& table = question.least ? *question.least : alone;
    const LeastMemory least = table.of(question.config);
    return least.pools + runtime_bytes(gpu, least.communicators);
  } catch (const OverflowError&) {
    return {};  // building it says what is too large
  }
}

bool cannot_fit(const Question& question) {
  Question smaller = question;
  const std::int64_t micro_batch = question.config.micro_batch;
  for (std::int64_t size = 1;; size = std::min(2 * size, micro_batch)) {
    smaller.config.micro_batch = size;
    if (!fits(least_allocated(smaller), question)) return true;
    if (size >= micro_batch) return false;
  }
}

Result<Question> built(Question question) {
  if (question.program) return question;
  if (question.engine != EngineKind::mfsdp) {
    MFSDP_LET(step, engine_step(question.engine, question.config, question.meta,
                                {.settings = question.allocator,
                                 .gpu = question.costs->cluster().gpu,
                                 .reserve = question.reserve}));
    question.step = std::make_shared<const EngineStep>(std::move(step));
    question.program = {question.step, &question.step->plan.program};
    return question;
  }
  MFSDP_LET(program, build_program(question.config, question.meta, question.cache.get()));
  question.program = std::make_shared<const Program>(std::move(program));
  return question;
}

Result<Prediction> answer(const Question& asked) {
  MFSDP_LET(question, built(asked));
  std::function<Nanos(const Op&)> host;
  if (question.step) host = host_times(*question.step, question.costs->cluster().gpu);
  MFSDP_LET(prediction, predict(*question.program, *question.costs, question.variation, host));
  MemorySummary& memory = prediction.run.memory;
  memory.reserve = question.reserve;
  memory.headroom -= question.reserve;
  memory.fits = fits(memory.allocated, question);
  if (question.step) complete(prediction.run, *question.step, question.costs->cluster().gpu);
  PredictedRun& run = prediction.run;
  const Trust trust = trust_of(*question.costs, question.errors, run.time, question.anchor);
  run.calibration = trust.calibration;
  run.trust = {.tier = std::string(tier_text(trust.tier)),
               .step_error = trust.expected_step_error,
               .text = trust.text};
  if (const std::string_view basis = engine_basis(question.engine); !basis.empty())
    run.facts.push_back(
        {.topic = "simulation", .name = "engine_basis", .value = std::string(basis)});
  if (const std::string& tables = question.costs->cluster().gpu.published_prices; !tables.empty())
    run.facts.push_back({.topic = "simulation", .name = "published_prices", .value = tables});
  if (std::string power = power_statement(question.costs->cluster().gpu); !power.empty())
    run.facts.push_back({.topic = "simulation", .name = "power", .value = std::move(power)});
  if (question.anchor)
    run.facts.push_back(
        {.topic = "simulation", .name = "anchor", .value = question.anchor->text()});
  run.ranks = report_of(prediction.simulation.ranks, question.variation);
  return std::move(prediction);
}

}  // namespace mfsdp
