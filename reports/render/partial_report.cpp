#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/plan/engine.hpp"
#include "reports/render/text_report.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kLongestFact = 60;

/// Amounts that are known, side by side.
class Known {
 public:
  explicit Known(const RunFigures& run) : run_(run) {}
  void add(ResultFigure figure, auto text) {
    if (run_.absent.has(figure))
      any_missing_ = true;
    else
      add(text());
  }
  void add(std::string text) { parts_.push_back(std::move(text)); }
  [[nodiscard]] bool any_missing() const { return any_missing_; }
  [[nodiscard]] std::string joined(std::string_view separator) const {
    return fmt::format("{}", fmt::join(parts_, separator));
  }
  [[nodiscard]] bool empty() const { return parts_.empty(); }

 private:
  const RunFigures& run_;
  std::vector<std::string> parts_;
  bool any_missing_ = false;
};

/// Where the figures come from: "the log", "the file", and of a run that was not imported "the
/// run".
std::string_view source_of(const RunFigures& run) {
  const Fact* format = find_fact(run.facts, "import", "format");
  if (format == nullptr) return "the run";
  return fact_text(format->value).ends_with(" log") ? "the log" : "the file";
}

/// "llama3_8b (train.log), 8.03 B parameters, on 8 NVIDIA B200", as far as it is known.
std::string title_of(const RunResult& run, const TextStyle& style) {
  std::string name = printable(run.model_name);
  if (!run.name.empty())
    name += name.empty() ? printable(run.name) : fmt::format(" ({})", printable(run.name));
  std::string text = coloured(name.empty() ? "a run" : name, Colour::bold, style);
  if (!run.absent.has(ResultFigure::parameters))
    text += fmt::format(", {} parameters", format_parameters(run.parameters));
  const bool counts_gpus = !run.absent.has(ResultFigure::gpus);
  const std::string gpu = printable(run.cluster.gpu);
  if (counts_gpus)
    text += fmt::format(", on {} {}", format_count(run.cluster.gpus), gpu.empty() ? "GPUs" : gpu);
  else if (!gpu.empty())
    text += ", on " + gpu;
  return text + "\n\n";
}

/// "Memory 58.92 GiB reserved (the log has no more)". The allocator's reservation is device memory,
/// from which the plan's pools are allocated.
std::string memory_line(const RunResult& run) {
  const MemorySummary& memory = run.memory;
  Known known(run);
  known.add(ResultFigure::allocated_bytes,
            [&] { return format_gib(memory.allocated) + " GiB allocated"; });
  if (memory.cached) known.add(format_gib(memory.cached->reserved) + " GiB reserved");
  known.add(ResultFigure::peak_bytes,
            [&] { return format_gib(memory.peak) + " GiB live at the peak"; });
  if (known.empty()) return fmt::format("Memory not known: {} does not state it\n", source_of(run));
  std::string text = "Memory " + known.joined(", ");
  if (!run.absent.has(ResultFigure::capacity_bytes))
    text += fmt::format("; the GPU has {} GiB", format_gib(memory.capacity));
  if (known.any_missing()) text += fmt::format(" ({} has no more)", source_of(run));
  return text + "\n";
}

/// The step, what the one of a timeline consists of, and rates, as far as they are known.
std::string time_lines(const RunResult& run) {
  const TimeSummary& time = run.time;
  std::string text = "Time   not known: " + std::string(source_of(run)) + " does not state it";
  if (!run.absent.has(ResultFigure::median_step_ns))
    text = fmt::format("Time   {} a step", format_duration(time.median_step));
  if (!run.absent.has(ResultFigure::step_ns)) {
    Known parts(run);
    parts.add(ResultFigure::compute_ns, [&] { return format_duration(time.compute) + " compute"; });
    parts.add(ResultFigure::exposed_communication_ns, [&] {
      return format_duration(time.exposed_communication) + " exposed communication";
    });
    parts.add(ResultFigure::idle_ns, [&] { return format_duration(time.idle) + " idle"; });
    text += fmt::format("; one of {} = {}", format_duration(time.step), parts.joined(" + "));
  }
  text += '\n';
  Known rates(run);
  rates.add(ResultFigure::tokens_per_second_per_gpu,
            [&] { return format_rate(time.tokens_per_second_per_gpu) + " tokens/s per GPU"; });
  rates.add(ResultFigure::tflops_per_gpu,
            [&] { return format_real(time.tflops_per_gpu, 1) + " TFLOP/s per GPU"; });
  rates.add(ResultFigure::mfu, [&] { return "MFU " + format_percent(time.mfu); });
  return rates.empty() ? text : text + "       " + rates.joined("; ") + "\n";
}

/// The first and the last loss of a step, and the last evaluation.
std::string loss_lines(const Measured& measured) {
  const auto has_loss = [](const StepResult& step) { return step.loss.has_value(); };
  const auto first = std::ranges::find_if(measured.steps, has_loss);
  std::string text;
  if (first != measured.steps.end()) {
    const auto last = std::ranges::find_if(measured.steps | std::views::reverse, has_loss);
    text = fmt::format("{:.4f} at step {}, {:.4f} at step {}; {} steps", *first->loss, first->step,
                       *last->loss, last->step, format_count(std::ssize(measured.steps)));
  }
  if (!measured.evaluations.empty()) {
    const EvaluationResult& last = measured.evaluations.back();
    text += fmt::format("{}{:.4f} evaluated after step {}", text.empty() ? "" : "; ", last.loss,
                        last.step);
  }
  return text.empty() ? text : "Loss   " + text + "\n";
}

}  // namespace

std::string render_partial_text(const RunResult& run, const TextStyle& style,
                                const std::string& stored) {
  std::string text = title_of(run, style) + memory_line(run) + time_lines(run);
  if (const Measured* measured = run.measured()) text += loss_lines(*measured);
  Table facts{.columns = {{"topic"}, {"fact"}, {"value"}}, .rows = {}};
  for (const Fact& fact : run.facts)
    facts.rows.push_back(
        {fact.topic, fact.name, cut_to_width(fact_text(fact.value), kLongestFact)});
  if (!facts.rows.empty()) text += render_table(facts, style);
  text +=
      fmt::format("\n{}: engine {}; {}\n", run.source(),
                  run.engine.empty() ? "not known" : printable(shown_engine(run.engine)), stored);
  return wrap_text(text, style);
}

}  // namespace mfsdp
