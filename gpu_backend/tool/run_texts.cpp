#include "gpu_backend/tool/run_texts.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/strategy_names.hpp"
#include "core/cli/table.hpp"

namespace mfsdp {

std::string run_title(const MeasuredRun& run, const MachineFacts& facts, const RunInputs& inputs,
                      const Saves& saves, const ExecOptions& options) {
  const PlanConfig& config = run.config;
  std::string text = fmt::format(
      "{}, {} parameters{}, on {}, {}\n"
      "sequence {}, micro-batch {}, microbatches {}: {} tokens a step\n"
      "data: {}\n",
      printable(run.model_name), format_parameters(run.parameters),
      active_text(run.parameters, config.model), facts.ranks, strategy_text(config), config.seq_len,
      config.micro_batch, config.microbatches, format_count(config.global_tokens()),
      printable(inputs.data->describe()));
  if (inputs.eval_data) text += "evaluation: " + printable(inputs.eval_data->describe()) + "\n";
  if (options.init_from && !saves.resumed)
    text += "weights: from " + printable(*options.init_from) + "\n";
  if (options.init_adapters && !saves.resumed)
    text += "adapters: from " + printable(*options.init_adapters) + "\n";
  text += fmt::format("loss of guessing: ln(vocabulary) {:.4f}",
                      std::log(static_cast<double>(config.model.vocab)));
  if (const auto entropy = inputs.data->unigram_entropy())
    text += fmt::format(", unigram entropy {:.4f}", *entropy);
  text += fmt::format("\nplan {}\n", run.plan_hash);
  if (saves.resumed)
    text += fmt::format("resumed after step {} from {}\n", saves.start().step,
                        printable(saves.resumed->folder().string()));
  else if (options.resumes_if_it_can())
    text += fmt::format("no save in {} yet: begins\n", printable(*options.save));
  return text + "\n";
}

std::string run_summary(const MeasuredRun& run, std::chrono::nanoseconds took) {
  if (run.steps.empty()) return "no step was done\n";
  std::string text =
      fmt::format("{} steps in {}: loss {:.4f}, at last {:.4f}", run.steps.size(),
                  format_duration(Nanos(took.count())), run.steps.front().loss.value_or(NAN),
                  run.steps.back().loss.value_or(NAN));
  if (run.steps.size() > 1 && !run.absent.has(ResultFigure::tokens_per_second_per_gpu))
    text += fmt::format("; {} tokens/s per rank (median)",
                        format_rate(run.time.tokens_per_second_per_gpu));
  text += "\n";
  if (const auto skipped = std::ranges::count(run.steps, true, &StepResult::skipped); skipped > 0)
    text += fmt::format("{} of {} steps skipped: their gradients were not finite\n", skipped,
                        run.steps.size());
  return text;
}

std::string memory_table(const PredictedRun& predicted, const MeasuredRun& run,
                         const Program& program, const RanRun& ran, const TextStyle& style) {
  Table table{.columns = {{"memory of a rank"},
                          {"predicted", Align::right},
                          {"measured", Align::right},
                          {"difference", Align::right}},
              .rows = {}};
  const auto add = [&](std::string name, Bytes before, Bytes after) {
    table.rows.push_back({std::move(name), format_count(before.value), format_count(after.value),
                          format_count((after - before).value)});
  };
  for (std::size_t i = 0; i < run.memory.categories.size(); ++i)
    if ((static_cast<Category>(i) != Category::runtime || ran.runtime) &&
        (predicted.memory.categories.at(i) != Bytes(0) || run.memory.categories.at(i) != Bytes(0)))
      add(std::string(to_string(static_cast<Category>(i))), predicted.memory.categories.at(i),
          run.memory.categories.at(i));
  for (std::size_t i = 0; i < std::min(ran.memory.pools.size(), program.pools.size()); ++i)
    add("pool " + program.pools[i].name, program.pools[i].height, ran.memory.pools[i]);
  return render_table(table, style);
}

std::string export_note(const RunInputs& inputs) {
  std::string text;
  for (const HfExport& exported : inputs.exported)
    text += fmt::format("exported: {}, {}\n", printable(exported.folder().string()),
                        format_bytes(Bytes(exported.layout().bytes())));
  return text;
}

}  // namespace mfsdp
