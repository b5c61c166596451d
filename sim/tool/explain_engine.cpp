#include "sim/tool/explain_engine.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "sim/engines/pytorch_process.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kRows = 12;
constexpr std::size_t kSuggestions = 3;

std::string peak_table(const EngineStep& step, const AllocatorSettings& settings,
                       const TextStyle& style) {
  Table table{.columns = {{"at the peak"}, {"tensors", Align::right}, {"GiB", Align::right}},
              .rows = {}};
  const std::vector<KindMemory> kinds = live_at_peak(step.plan, settings);
  KindMemory others;
  for (std::size_t i = 0; i < kinds.size(); ++i) {
    if (i < kRows) {
      table.rows.push_back(
          {kinds[i].name, format_count(kinds[i].count), format_gib(kinds[i].bytes)});
      continue;
    }
    others.count += kinds[i].count;
    others.bytes += kinds[i].bytes;
  }
  if (others.count > 0)
    table.rows.push_back({"others", format_count(others.count), format_gib(others.bytes)});
  return render_table(table, style);
}

std::string stream_table(const EngineMemory& memory, const TextStyle& style) {
  Table table{
      .columns = {{"stream"}, {"most allocated GiB", Align::right}, {"reserved GiB", Align::right}},
      .rows = {}};
  for (const StreamMemory& stream : memory.streams)
    table.rows.push_back({stream.name, format_gib(stream.allocated), format_gib(stream.reserved)});
  return render_table(table, style);
}

/// Device memory that the allocator does not reserve.
std::string process_table(const PredictionRequest& request, const TextStyle& style) {
  const std::int64_t channels = request.costs->cluster().gpu.collective_sms;
  const ProcessMemory memory = pytorch_process(request.engine, request.config, channels);
  Table table{.columns = {{"beside the allocator"}, {"GiB", Align::right}},
              .rows = {{"context, kernels and libraries", format_gib(memory.context)},
                       {"NCCL's kernels", format_gib(memory.nccl)}}};
  for (const CommunicatorMemory& one : memory.communicators)
    table.rows.push_back(
        {one.ranks > 1 ? fmt::format("communicator of {} ranks, {} channels", one.ranks, channels)
                       : "communicator of one rank",
         format_gib(one.bytes)});
  return render_table(table, style);
}

/// A change of the request, by its flag.
struct Change {
  std::string flag;
  std::function<void(PredictionRequest&)> apply;
};

std::vector<Change> changes_of(const PredictionRequest& request) {
  const PlanConfig& config = request.config;
  std::vector<Change> changes;
  if (config.recompute.kind == Recompute::none)
    changes.push_back({"--recompute full",
                       [](PredictionRequest& q) { q.config.recompute.kind = Recompute::full; }});
  const EngineTraits& traits = traits_of(request.engine);
  if (traits.compiled_as)
    changes.push_back({fmt::format("--engine {}", to_string(*traits.compiled_as)),
                       [to = *traits.compiled_as](PredictionRequest& q) { q.engine = to; }});
  if (config.micro_batch % 2 == 0)
    changes.push_back(
        {fmt::format("--micro-batch {} with twice the microbatches", config.micro_batch / 2),
         [](PredictionRequest& q) {
           q.config.micro_batch /= 2;
           q.config.microbatches *= 2;
         }});
  if (!request.allocator.expandable_segments)
    changes.push_back({"--alloc-conf expandable_segments:True",
                       [](PredictionRequest& q) { q.allocator.expandable_segments = true; }});
  if (traits.reduces_in_grad_dtype && config.grad_dtype == DType::fp32)
    changes.push_back({"--grad-dtype bf16 --reduce-dtype bf16", [](PredictionRequest& q) {
                         q.config.grad_dtype = DType::bf16;
                         q.config.reduce_dtype = DType::bf16;
                       }});
  if (config.reduce_dtype == DType::fp32)
    changes.push_back(
        {"--reduce-dtype bf16", [](PredictionRequest& q) { q.config.reduce_dtype = DType::bf16; }});
  return changes;
}

/// The predicted effect of a change.
struct Outcome {
  std::string flag;
  Bytes saved;  ///< of the device's memory
  Nanos slower;
};

std::string speed_text(Nanos slower) {
  if (slower == Nanos(0)) return "as fast";
  return slower > Nanos(0) ? format_duration(slower) + " slower"
                           : format_duration(Nanos(0) - slower) + " faster";
}

std::string suggestions(const PredictionRequest& request, const PredictedRun& run) {
  std::vector<Outcome> outcomes;
  for (const Change& change : changes_of(request)) {
    PredictionRequest other = request;
    other.program.reset();
    other.step.reset();
    change.apply(other);
    if (!engine_config(other.engine, other.config, other.options)) continue;
    const auto answered = predict(other);
    if (!answered) continue;
    outcomes.push_back({.flag = change.flag,
                        .saved = run.memory.deciding() - answered->run.memory.deciding(),
                        .slower = answered->run.time.step - run.time.step});
  }
  std::ranges::stable_sort(outcomes, std::greater{}, &Outcome::saved);
  std::string text;
  for (std::size_t i = 0; i < outcomes.size() && i < kSuggestions; ++i) {
    const Outcome& outcome = outcomes[i];
    if (outcome.saved <= Bytes(0)) break;
    text += fmt::format("  {}: {} GiB less, {}\n", outcome.flag, format_gib(outcome.saved),
                        speed_text(outcome.slower));
  }
  return text.empty() ? "Nothing that was tried would lower it.\n"
                      : "Changes that would lower it most, as predicted:\n" + text;
}

}  // namespace

std::string explain_engine_memory(const PredictionRequest& request, const Prediction& prediction,
                                  const TextStyle& style) {
  const EngineStep& step = *request.step;
  return fmt::format(
      "{}\n{}\n{}\nWhere most is reserved, {} GiB are segments without a block in use, {} GiB lie "
      "beside blocks in use. Streams share neither.\n\n{}",
      peak_table(step, request.allocator, style), stream_table(step.memory, style),
      process_table(request, style), format_gib(step.memory.idle_segments),
      format_gib(step.memory.fragments), suggestions(request, prediction.run));
}

}  // namespace mfsdp
