#include "reports/import/foreign_run.hpp"

#define XXH_INLINE_ALL
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <limits>
#include <system_error>
#include <utility>

#include "core/base/text.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

constexpr double kNanosPerSecond = 1e9;

using FigureOfStep = std::optional<double> ForeignStep::*;

bool is_rate(const std::optional<double>& value) {
  return value && std::isfinite(*value) && *value >= 0;
}

/// A rate of the median step: the work of a step divided by that step's time. The median is that of
/// the timed steps; for a log without times, it is the median of the rates in the log.
std::optional<double> rate_of(const ForeignRun& from, FigureOfStep rate,
                              std::optional<Nanos> step) {
  std::vector<double> rates;
  std::vector<double> amounts;
  for (const auto& [number, figures] : from.steps) {
    const std::optional<double>& value = figures.*rate;
    if (!is_rate(value)) continue;
    rates.push_back(*value);
    if (is_rate(figures.seconds) && *figures.seconds > 0)
      amounts.push_back(*value * *figures.seconds);
  }
  if (amounts.empty() || !step || *step <= Nanos(0)) return settled_median(rates);
  return *settled_median(amounts) / (static_cast<double>(step->value) / kNanosPerSecond);
}

std::optional<double> tokens_of_steps(const ForeignRun& from) {
  std::vector<double> tokens;
  for (const auto& [number, figures] : from.steps)
    if (figures.tokens) tokens.push_back(static_cast<double>(*figures.tokens));
  return settled_median(tokens);
}

constexpr double kLongestSeconds = 1e9;  ///< 31 years

std::optional<Nanos> nanos_of(std::optional<double> seconds) {
  if (!seconds || !(*seconds >= 0) || *seconds > kLongestSeconds) return std::nullopt;
  return Nanos(std::llround(*seconds * kNanosPerSecond));
}

std::string hash_of(std::string_view bytes, const ImportSettings& settings) {
  XXH3_state_t state;
  XXH3_INITSTATE(&state);
  XXH3_128bits_reset(&state);
  const auto add = [&](std::string_view text) {
    XXH3_128bits_update(&state, text.data(), text.size());
    XXH3_128bits_update(&state, "", 1);
  };
  for (const auto* text : {&settings.engine, &settings.model, &settings.name, &settings.gpu})
    add(text->value_or(""));
  add(fmt::format("{}", settings.gpus.value_or(0)));
  add(bytes);
  const XXH128_hash_t hash = XXH3_128bits_digest(&state);
  return fmt::format("{:016x}{:016x}", hash.high64, hash.low64);
}

std::int64_t time_of_file(const std::filesystem::path& path) {
  std::error_code error;
  const auto time = std::filesystem::last_write_time(path, error);
  if (error) return 0;
  const auto system = std::chrono::file_clock::to_sys(time).time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(system).count();
}

/// Takes what is known out of the set of what is absent.
template <class Value, class Target>
void know(MeasuredRun& run, ResultFigure figure, const std::optional<Value>& value,
          Target& target) {
  if (!value) return;
  target = *value;
  run.absent.remove(figure);
}

void set_memory(MeasuredRun& run, const ForeignRun& from) {
  MemorySummary& memory = run.memory;
  know(run, ResultFigure::capacity_bytes, from.capacity, memory.capacity);
  know(run, ResultFigure::allocated_bytes, from.peak, memory.allocated);
  know(run, ResultFigure::peak_bytes, from.peak, memory.peak);
  if (!from.reserved) return;
  memory.cached = CachedMemory{.reserved = *from.reserved};
  memory.runtime_source = "what the caching allocator reserved, no context";
  if (!from.capacity) return;
  know(run, ResultFigure::headroom_bytes, std::optional(*from.capacity - *from.reserved),
       memory.headroom);
  know(run, ResultFigure::fits, std::optional(memory.headroom >= Bytes(0)), memory.fits);
}

void set_time(MeasuredRun& run, const ForeignRun& from) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  TimeSummary& time = run.time;
  if (from.time) {
    time = *from.time;
    for (const ResultFigure figure : {ResultFigure::compute_ns, ResultFigure::communication_ns,
                                      ResultFigure::idle_ns, ResultFigure::exposed_communication_ns,
                                      ResultFigure::overlap_fraction, ResultFigure::step_ns})
      run.absent.remove(figure);
  } else {
    time.overlap_fraction = none;
  }
  time.tokens_per_second_per_gpu = time.tflops_per_gpu = time.mfu = none;
  auto step = median_step(run.steps);
  if (!step && from.time) step = from.time->step;
  know(run, ResultFigure::median_step_ns, step, time.median_step);
  auto tokens_per_second = rate_of(from, &ForeignStep::tokens_per_second, step);
  const auto tokens = tokens_of_steps(from);
  const bool all_known = !tokens_per_second && tokens && step && *step > Nanos(0) && from.gpus;
  if (all_known)
    tokens_per_second = *tokens / (static_cast<double>(step->value) / kNanosPerSecond) /
                        static_cast<double>(*from.gpus);
  know(run, ResultFigure::tokens_per_second_per_gpu, tokens_per_second,
       time.tokens_per_second_per_gpu);
  know(run, ResultFigure::tflops_per_gpu, rate_of(from, &ForeignStep::tflops, step),
       time.tflops_per_gpu);
  know(run, ResultFigure::mfu, rate_of(from, &ForeignStep::mfu, step), time.mfu);
}

void set_steps(MeasuredRun& run, const ForeignRun& from) {
  for (const auto& [number, step] : from.steps) {
    StepResult& result = run.steps.emplace_back();
    result.step = number;
    const auto duration = nanos_of(step.seconds);
    result.duration = duration.value_or(Nanos(0));
    result.timed = duration.has_value();
    result.loss = step.loss;
    result.grad_norm = step.grad_norm;
    result.tokens = step.tokens;
    result.learning_rate = step.learning_rate;
    result.skipped = step.skipped;
  }
  for (const auto& [step, loss] : from.validation_losses)
    run.evaluations.push_back({.step = step, .loss = loss});
}

}  // namespace

void ForeignRun::fact(const std::string& name, FactValue value) {
  const auto found = std::ranges::find(facts, name, &Fact::name);
  if (found != facts.end())
    found->value = std::move(value);
  else
    facts.push_back({.topic = "import", .name = name, .value = std::move(value)});
}

void ForeignRun::leave_out(std::string_view name) {
  if (!left_out.contains(name)) left_out.emplace(name);
}

namespace {

/// Important figures of a training that no line of the file contains.
std::vector<std::string> missing_figures(const MeasuredRun& run) {
  std::vector<std::string> missing;
  const auto has = [&](auto member) {
    return std::ranges::any_of(run.steps, [&](const StepResult& s) { return s.*member; });
  };
  const auto any_loss =
      std::ranges::any_of(run.steps, [](const StepResult& s) { return s.loss.has_value(); });
  if (!any_loss) missing.emplace_back("loss");
  if (!has(&StepResult::timed)) missing.emplace_back("step time");
  if (run.absent.has(ResultFigure::tokens_per_second_per_gpu))
    missing.emplace_back("tokens per second and GPU");
  if (!run.memory.cached && run.absent.has(ResultFigure::peak_bytes))
    missing.emplace_back("memory");
  return missing;
}

/// "a, b, c and 4 more".
std::string joined_names(const auto& names) {
  constexpr std::size_t shown = 20;
  std::string text;
  std::size_t count = 0;
  for (const std::string& name : names) {
    if (count++ == shown) return text + fmt::format(" and {} more", names.size() - shown);
    text += (text.empty() ? "" : ", ") + printable(name.substr(0, 60));
  }
  return text;
}

/// Records data of the file that the run lacks, and figures of a run that the file lacks.
void add_gaps(MeasuredRun& run, const ForeignRun& from) {
  const auto add = [&](std::string_view name, const auto& names) {
    if (!names.empty())
      run.facts.push_back(
          {.topic = "import", .name = std::string(name), .value = joined_names(names)});
  };
  if (!run.steps.empty()) add(kMissingFigures, missing_figures(run));
  add(kLeftOutFigures, from.left_out);
}

}  // namespace

RunResult result_of(ForeignRun from, const ImportSettings& settings, std::string_view bytes,
                    const std::filesystem::path& path) {
  if (const auto& origin = from.origin) {
    from.engine = origin->engine;
    from.model_name = origin->model;
    from.gpu = origin->gpu;
    from.gpus = origin->gpus;
    from.fact("exported_by", origin->tool);
    from.fact("exported_run_id", origin->run_id);
  }
  if (settings.engine) from.engine = *settings.engine;
  if (settings.model) from.model_name = *settings.model;
  if (settings.gpu) from.gpu = *settings.gpu;
  if (settings.gpus) from.gpus = settings.gpus;
  from.fact("file", path.filename().string());
  from.fact("format", from.format);
  MeasuredRun run;
  run.absent = FigureSet::all();
  run.run_id = hash_of(bytes, settings);
  run.name = settings.name.value_or(path.filename().string());
  run.engine = from.engine;
  run.model_name = from.model_name;
  run.cluster.gpu = from.gpu;
  run.created_unix_ns = from.created_unix_ns.value_or(time_of_file(path));
  run.timeline = from.timeline;
  run.facts = from.facts;
  know(run, ResultFigure::gpus, from.gpus, run.cluster.gpus);
  know(run, ResultFigure::parameters, from.parameters, run.parameters);
  set_memory(run, from);
  set_steps(run, from);
  set_time(run, from);
  add_gaps(run, from);
  if (from.origin && from.origin->source == "simulated")
    return {static_cast<const RunFigures&>(run), Predicted()};
  return run;
}

}  // namespace mfsdp
