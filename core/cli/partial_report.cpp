#include "core/cli/partial_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kNotKnown = "-";
constexpr std::size_t kLongestFact = 60;

std::string or_unknown(const std::string& text) {
  return text.empty() ? std::string(kNotKnown) : printable(text);
}

/// The figure's text, or "-" where nobody knows it.
template <class Text>
std::string figure_text(const RunFigures& run, ResultFigure figure, Text text) {
  return run.absent.has(figure) ? std::string(kNotKnown) : std::string(text());
}

std::string loss_line(const Measured& measured) {
  const auto first =
      std::ranges::find_if(measured.steps, [](const StepResult& s) { return s.loss.has_value(); });
  if (first == measured.steps.end()) return "";
  const auto last = std::ranges::find_if(measured.steps | std::views::reverse,
                                         [](const StepResult& s) { return s.loss.has_value(); });
  return fmt::format("Loss   {:.4f} at step {}, {:.4f} at step {}; {} steps\n", *first->loss,
                     first->step, *last->loss, last->step,
                     format_count(std::ssize(measured.steps)));
}

}  // namespace

std::string render_partial_text(const RunResult& run, const TextStyle& style,
                                const std::string& stored) {
  const auto figure = [&](ResultFigure which, auto text) { return figure_text(run, which, text); };
  const MemorySummary& memory = run.memory;
  const TimeSummary& time = run.time;
  const auto gib = [&](ResultFigure which, Bytes bytes) {
    return figure(which, [&] { return format_gib(bytes); });
  };
  const auto duration = [&](ResultFigure which, Nanos nanos) {
    return figure(which, [&] { return format_duration(nanos); });
  };
  const std::string name = or_unknown(run.model_name) +
                           (run.name.empty() ? "" : fmt::format(" ({})", printable(run.name)));
  std::string text = fmt::format(
      "{}, {} parameters, on {} {}\n\n", coloured(name, Colour::bold, style),
      figure(ResultFigure::parameters, [&] { return format_parameters(run.parameters); }),
      figure(ResultFigure::gpus, [&] { return format_count(run.cluster.gpus); }),
      or_unknown(run.cluster.gpu));
  const std::string cached = memory.cached ? fmt::format(", {} GiB reserved by the allocator",
                                                         format_gib(memory.cached->reserved))
                                           : "";
  text += fmt::format("Memory {} of {} GiB allocated{}, {} GiB live at the peak\n",
                      gib(ResultFigure::allocated_bytes, memory.allocated),
                      gib(ResultFigure::capacity_bytes, memory.capacity), cached,
                      gib(ResultFigure::peak_bytes, memory.peak));
  text += fmt::format("Time   {} a step", duration(ResultFigure::median_step_ns, time.median_step));
  if (!run.absent.has(ResultFigure::step_ns))
    text +=
        fmt::format("; one of {} = {} compute + {} exposed communication + {} idle",
                    format_duration(time.step), duration(ResultFigure::compute_ns, time.compute),
                    duration(ResultFigure::exposed_communication_ns, time.exposed_communication),
                    duration(ResultFigure::idle_ns, time.idle));
  text += '\n';
  text += fmt::format(
      "       {} tokens/s per GPU; {} TFLOP/s per GPU, MFU {}\n",
      figure(ResultFigure::tokens_per_second_per_gpu,
             [&] { return format_rate(time.tokens_per_second_per_gpu); }),
      figure(ResultFigure::tflops_per_gpu, [&] { return format_real(time.tflops_per_gpu, 1); }),
      figure(ResultFigure::mfu, [&] { return format_percent(time.mfu); }));
  if (const Measured* measured = run.measured()) text += loss_line(*measured);
  Table facts{.columns = {{"topic"}, {"fact"}, {"value"}}, .rows = {}};
  for (const Fact& fact : run.facts)
    facts.rows.push_back(
        {fact.topic, fact.name, cut_to_width(fact_text(fact.value), kLongestFact)});
  if (!facts.rows.empty()) text += render_table(facts, style);
  text += fmt::format("\n{}: engine {}; {}\n", run.source(), or_unknown(run.engine), stored);
  return wrap_text(text, style);
}

}  // namespace mfsdp
