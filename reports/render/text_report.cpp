#include "reports/render/text_report.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "core/base/text.hpp"
#include "core/cli/format.hpp"
#include "core/cli/strategy_names.hpp"
#include "core/cli/table.hpp"
#include "core/cli/wrap.hpp"
#include "core/model/model.hpp"
#include "core/plan/config_fields.hpp"
#include "core/plan/engine.hpp"
#include "core/plan/fp8.hpp"
#include "core/shard/groups.hpp"
#include "reports/record/axis_times.hpp"
#include "reports/record/kernel_times.hpp"
#include "reports/record/step_figures.hpp"

namespace mfsdp {
namespace {

/// The numbers that GEMMs of blocks multiply.
std::string_view numbers_of(Fp8Recipe recipe) {
  switch (recipe) {
    case Fp8Recipe::delayed: return "FP8 (delayed scaling)";
    case Fp8Recipe::blockwise: return "FP8 (scales of blocks)";
    case Fp8Recipe::mxfp8: return "MXFP8";
    case Fp8Recipe::nvfp4: return "NVFP4";
    case Fp8Recipe::off:
    case Fp8Recipe::current: break;
  }
  return "FP8";
}

constexpr std::size_t screen_lines = 24;
constexpr std::size_t bar_columns = 50;

/// Printable, without blanks at the end.
std::string trimmed(std::string_view text) {
  const std::size_t end = text.find_last_not_of(' ');
  return printable(text.substr(0, end == std::string_view::npos ? 0 : end + 1));
}

/// Collects lines, which a narrow terminal wraps.
class Screen {
 public:
  explicit Screen(const TextStyle& style) : style_(style) {}

  void line(std::string_view text, Colour colour = Colour::plain) {
    lines_.push_back(coloured(trimmed(text), colour, style_));
  }
  /// A line whose first words have a colour of their own.
  void line(std::string_view head, Colour colour, std::string_view rest) {
    lines_.push_back(coloured(head, colour, style_) + trimmed(rest));
  }
  void blank() { lines_.emplace_back(); }
  /// The lines; blank ones give way, the last first, where there are more than a screen holds.
  [[nodiscard]] std::string text() const {
    std::vector<std::string> lines = lines_;
    for (std::size_t i = lines.size(); i-- > 0 && lines.size() > screen_lines;)
      if (lines[i].empty()) lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i));
    return wrap_text(fmt::format("{}\n", fmt::join(lines, "\n")), style_);
  }
  [[nodiscard]] const TextStyle& style() const { return style_; }

 private:
  TextStyle style_;
  std::vector<std::string> lines_;
};

std::string counted(std::int64_t count, std::string_view one, std::string_view many) {
  return format_count(count) + " " + std::string(count == 1 ? one : many);
}

/// "adamw", "lion with bf16 states".
std::string optimizer_text(const PlanConfig& config) {
  const std::string_view name = to_string(config.optimizer);
  if (config.state_dtype == StateDtype::full) return std::string(name);
  return fmt::format("{} with {} states", name, to_string(config.state_dtype));
}

/// The trainer that a prediction describes: "mfsdp-exec trains ".
std::string trainer_text(const RunResult& run) {
  const auto engine = parse<EngineKind>(run.engine);
  if (run.predicted() == nullptr || !engine) return "";
  return fmt::format("{} trains ", traits_of(*engine).trainer);
}

/// ", 4 pipeline stages"; nothing without a pipeline.
std::string stages_text(const Mesh& mesh) {
  const std::int64_t stages = mesh.size(Axis::pp);
  return stages == 1 ? "" : fmt::format(", {} pipeline stages", stages);
}

void add_title(Screen& screen, const RunResult& run) {
  const PlanConfig& config = run.config;
  const std::string title = run.model_name + (run.name.empty() ? "" : " (" + run.name + ")");
  screen.line(
      trainer_text(run) + printable(title), Colour::bold,
      fmt::format(", {} parameters{}, on {} {} in {}, {}", format_parameters(run.parameters),
                  active_text(run.parameters, config.model), format_count(run.cluster.gpus),
                  run.cluster.gpu, counted(run.cluster.nodes, "node", "nodes"),
                  strategy_text(config) + stages_text(config.mesh)));
  std::string numbers;
  if (config.has_fp8()) numbers = fmt::format(", {} GEMMs in blocks", numbers_of(config.fp8));
  if (config.fp8_keep_bf16 > 0)
    numbers += fmt::format(" but the first and last {}", config.fp8_keep_bf16);
  if (config.fp8_gather) numbers += ", weights gathered in FP8";
  const auto tokens = static_cast<double>(config.global_tokens());
  screen.line(fmt::format(
      "sequence {}, micro-batch {}, {}: {} tokens a step; recompute {}, {}{}", config.seq_len,
      config.micro_batch, counted(config.microbatches, "microbatch", "microbatches"),
      format_real(tokens, 0), flag_text(config.recompute), optimizer_text(config), numbers));
}

/// Adapters, which train alone.
void add_adapters(Screen& screen, const PlanConfig& config) {
  std::int64_t trained = 0;
  std::int64_t frozen = 0;
  for (const Parameter& parameter : make_model(config).parameters)
    (config.is_frozen(parameter.name) ? frozen : trained) += parameter.elements();
  screen.line(fmt::format(
      "LoRA of rank {}, alpha {}, beside {}: {} parameters train, {} are frozen{}",
      config.lora_rank, flag_text(config.lora_alpha), fmt::join(config.lora_targets, ", "),
      format_parameters(trained), format_parameters(frozen),
      config.base_dtype == BaseDType::compute ? "" : ", those of linear layers in 4 bits (NF4)"));
}

/// Effects of flags that the user may not expect: adapters, frozen parameters, and large padding.
void add_notes(Screen& screen, const RunFigures& run) {
  const PlanConfig& config = run.config;
  if (config.has_lora()) {
    add_adapters(screen, config);
  } else if (!config.frozen.empty()) {
    const Model model = make_model(config);
    std::int64_t tensors = 0;
    double elements = 0;
    for (const Parameter& parameter : model.parameters) {
      if (!config.is_frozen(parameter.name)) continue;
      ++tensors;
      elements += static_cast<double>(parameter.elements());
    }
    const double all = static_cast<double>(std::max<std::int64_t>(model.parameter_count(), 1));
    screen.line(fmt::format("frozen: {} of {} parameter tensors ({} of the weights)",
                            format_count(tensors), format_count(std::ssize(model.parameters)),
                            format_percent(elements / all)));
  }
  constexpr double worth_a_line = 0.02;
  const double weights = static_cast<double>(run.parameters) *
                         static_cast<double>(bytes_of(1, config.param_dtype).value);
  const auto padding = static_cast<double>(run.plan.padding.value);
  if (padding > worth_a_line * weights) {
    const bool can_be_packed = config.layout != LayoutRule::packed;
    const std::string added =
        fmt::format("padding adds {} to the weights at {} shards",
                    format_percent(padding / weights), format_count(layout_ranks(config)));
    screen.line(run.memory.cached
                    ? fmt::format("{}: the layout of {}", added, shown_engine(run.engine))
                    : fmt::format("{}: see --explain layout, {}", added,
                                  can_be_packed ? "--layout packed" : "--outer-dp"));
  }
}

/// The most that the allocator may reserve; none without a limit.
std::optional<Bytes> memory_limit(const RunFigures& run) {
  const Fact* limit = find_fact(run.facts, "simulation", kMemoryLimit);
  const auto* const bytes = limit != nullptr ? std::get_if<std::int64_t>(&limit->value) : nullptr;
  return bytes != nullptr ? std::optional(Bytes(*bytes)) : std::nullopt;
}

void add_verdict(Screen& screen, const RunFigures& run) {
  const MemorySummary& memory = run.memory;
  std::string amount =
      fmt::format("{} of {} GiB {}", format_gib(memory.deciding()), format_gib(memory.capacity),
                  memory.cached ? "of the device" : "allocated");
  if (memory.reserve.value > 0)
    amount += fmt::format(", {} GiB to be kept free", format_gib(memory.reserve));
  // A limit may be lower than the device's memory.
  const Bytes free = memory.capacity - memory.deciding() - memory.reserve;
  const bool is_limited = !memory.fits && memory.cached && free.value >= 0;
  if (const auto limit = memory_limit(run); limit && memory.cached && !is_limited)
    amount += fmt::format(", {} of {} GiB of the limit", format_gib(memory.cached->reserved),
                          format_gib(*limit));
  const std::string_view doubt = memory.cached && !memory.cached->certain ? ", within error" : "";
  if (memory.fits)
    screen.line("Fits", Colour::green,
                fmt::format("{}: {}, {} GiB free{}", doubt, amount, format_gib(memory.headroom),
                            memory.cached && memory.headroom < free ? " under the limit" : ""));
  else
    screen.line("Does not fit", Colour::red,
                is_limited
                    ? fmt::format("{}: {}; out of memory under the limit of {} GiB", doubt, amount,
                                  format_gib(memory.headroom + memory.cached->reserved))
                    : fmt::format("{}: {}, {} GiB too much", doubt, amount,
                                  format_gib(Bytes(0) - memory.headroom)));
  if (memory.cached && memory.fits && memory.cached->retries.value_or(0) > 0)
    screen.line(
        "Barely fits", Colour::red,
        fmt::format(": PyTorch must flush its cache {}; {}",
                    counted(*memory.cached->retries, "time", "times"),
                    *memory.cached->retries == 1 ? "that stops the GPU" : "each stops the GPU"));
}

/// "21 % longer", of the same tokens.
std::string longer_text(const WouldFit& one, const RunFigures& run) {
  const double before = static_cast<double>(run.time.step.value);
  const double change = static_cast<double>(one.step.value) / std::max(before, 1.0) - 1;
  const std::string percent = format_real(100 * std::abs(change), 0);
  if (percent == "0") return "as long";
  return fmt::format("{} % {}", percent, change > 0 ? "longer" : "shorter");
}

/// The changes that would make a run fit, each with memory and step.
void add_would_fit(Screen& screen, const RunFigures& run, const Predicted& predicted) {
  const std::int64_t tokens = run.config.global_tokens();
  for (const WouldFit& one : predicted.would_fit)
    screen.line("Would fit", Colour::green,
                fmt::format(" with {}: {} GiB, {}", one.flags, format_gib(one.memory),
                            one.tokens == tokens
                                ? "the step " + longer_text(one, run)
                                : fmt::format("{} for {} tokens a step", format_duration(one.step),
                                              format_count(one.tokens))));
}

/// "layers.31" is layer 31; other units have their names.
std::string unit_text(std::string_view unit) {
  constexpr std::string_view kLayers = "layers.";
  if (unit.starts_with(kLayers)) return fmt::format("layer {}", unit.substr(kLayers.size()));
  return std::string(unit);
}

/// The work of a phase on a unit.
std::string_view phase_text(Phase phase) {
  switch (phase) {
    case Phase::input: return "as the step begins, in";
    case Phase::forward: return "in the forward pass of";
    case Phase::recompute: return "in the recomputation of";
    case Phase::backward: return "in the backward pass of";
    case Phase::reduce: return "in the reduction of gradients of";
    case Phase::optimizer: return "in the optimizer's step on";
    case Phase::refresh: return "in the gathering of new weights of";
    case Phase::output: return "as the loss is read, in";
  }
  return "";
}

/// When most is in use: " in the backward pass of layer 31 (down.wgrad)".
std::string peak_text(const Predicted& predicted) {
  if (predicted.peak_op.empty()) return "";
  if (!predicted.peak_place || predicted.peak_place->unit.empty())
    return " at " + predicted.peak_op;
  const PeakPlace& place = *predicted.peak_place;
  std::string_view detail = predicted.peak_op;
  if (detail.starts_with(place.unit + ".")) detail.remove_prefix(place.unit.size() + 1);
  return fmt::format(" {} {} ({})", phase_text(place.phase), unit_text(place.unit), detail);
}

/// Our own plan sets every pool aside where it is fullest. Where pools are fullest at different
/// times, less is in use together. PyTorch's allocator has no pools: the peak is of one time.
void add_peak(Screen& screen, const MemorySummary& memory, const Predicted* predicted) {
  const std::string peak = format_gib(memory.peak);
  const auto line = [&](const std::string& text) { screen.line("Memory", Colour::bold, text); };
  if (predicted == nullptr) return line(fmt::format(" peak {} GiB", peak));
  const std::string when = peak_text(*predicted);
  if (memory.cached) return line(fmt::format(" allocated: {} GiB at most,{}", peak, when));
  const Bytes used = predicted->live_peak.value_or(memory.peak);
  if (used == memory.peak) return line(fmt::format(" set aside: {} GiB, all in use{}", peak, when));
  line(fmt::format(" set aside: {} GiB. In use at most: {} GiB,{}", peak, format_gib(used), when));
}

/// The allocator's figures as PyTorch reports them, and the memory outside it.
void add_cached(Screen& screen, const MemorySummary& memory) {
  const CachedMemory& cached = *memory.cached;
  screen.line(
      "Device", Colour::bold,
      fmt::format(" {} GiB at most = {} GiB reserved by the allocator + {} GiB of context and NCCL",
                  format_gib(memory.deciding()), format_gib(cached.reserved),
                  format_gib(memory.deciding() - cached.reserved)));
  screen.line(fmt::format("       Fragmentation: {} GiB reserved, never in use at once",
                          format_gib(cached.reserved - memory.allocated)));
  if (const auto& errors = cached.errors)
    screen.line(fmt::format("       may be off by {} (allocated), {} (reserved), {} (device): {}",
                            format_percent(errors->allocated), format_percent(errors->reserved),
                            format_percent(errors->device), errors->source));
}

/// Categories with bytes at the peak, in the order of their enumeration.
void add_memory(Screen& screen, const MemorySummary& memory, const Predicted* predicted) {
  const double peak = static_cast<double>(std::max<std::int64_t>(memory.peak.value, 1));
  add_peak(screen, memory, predicted);
  for (std::size_t i = 0; i < memory.categories.size(); ++i) {
    const Bytes bytes = memory.categories[i];
    if (bytes.value == 0) continue;
    const double part = static_cast<double>(bytes.value) / peak;
    const std::string label =
        fmt::format("  {:<17}{:>8} GiB {:>7}  ", to_string(static_cast<Category>(i)),
                    format_gib(bytes), format_percent(part));
    const std::size_t room = screen.style().width.value_or(label.size() + bar_columns);
    const std::size_t columns = room > label.size() ? room - label.size() : 0;
    screen.line(label + bar(part, std::min(columns, bar_columns), screen.style()));
  }
}

/// The host issues ops while the GPU runs those before: it binds the step where the GPU waits.
void add_host(Screen& screen, const HostTime& host, Nanos step) {
  constexpr double worth_a_name = 0.05;
  const double share = static_cast<double>(host.bound.value) /
                       static_cast<double>(std::max<std::int64_t>(step.value, 1));
  const std::string bound =
      share < worth_a_name ? std::string() : std::string("; the step is bound by the host");
  screen.line("Host", Colour::bold,
              fmt::format("   {} to issue a step; the GPU waits {} for it ({}){}",
                          format_duration(host.issue), format_duration(host.bound),
                          format_percent(share), bound));
}

/// "GEMMs in FP8 282.0 ms, casts to FP8 43.0 ms, ...": kernels by group, where they are known.
std::string kernel_line(const Facts& facts) {
  std::string text;
  const auto add = [&](KernelGroup group, std::string_view words) {
    const auto time = time_of(group, facts);
    if (time && *time > Nanos(0))
      text += fmt::format("{}{} {}", text.empty() ? "" : ", ", words, format_duration(*time));
  };
  add(KernelGroup::gemm_fp8, "GEMMs in FP8");
  add(KernelGroup::casts, "casts to FP8");
  add(KernelGroup::gemm, "GEMMs in bf16");
  add(KernelGroup::attention, "attention");
  add(KernelGroup::optimizer, "optimizer");
  add(KernelGroup::others, "others");
  return text;
}

/// MFU's denominator is the peak in bf16, also where GEMMs are in FP8.
void add_fp8(Screen& screen, const RunResult& run) {
  if (!run.config.has_fp8()) return;
  if (run.time.mfu > 0) {
    const double peak = run.time.tflops_per_gpu / run.time.mfu;
    std::string text =
        fmt::format("       MFU is of the peak in bf16, {} TFLOP/s", format_real(peak, 0));
    if (run.config.fp8 != Fp8Recipe::nvfp4)
      text += fmt::format("; of the peak in FP8, {}, it is {}", format_real(kFp8Speed * peak, 0),
                          format_percent(run.time.mfu / kFp8Speed));
    screen.line(text);
  }
  if (const std::string kernels = kernel_line(run.facts); !kernels.empty())
    screen.line("       kernels: " + kernels);
}

void add_time(Screen& screen, const RunResult& run) {
  const TimeSummary& time = run.time;
  const double total =
      time.tokens_per_second_per_gpu * static_cast<double>(run.config.mesh.world_size());
  const std::string parts = fmt::format(
      "= {} compute + {} exposed communication + {} idle", format_duration(time.compute),
      format_duration(time.exposed_communication), format_duration(time.idle));
  std::string text = fmt::format("   {} a step", format_duration(time.median_step));
  if (run.measured() == nullptr)
    text += " " + parts;
  else if (!run.absent.has(ResultFigure::step_ns))
    text += fmt::format(" (median); the one recorded {} {}", format_duration(time.step), parts);
  screen.line("Time", Colour::bold, text);
  screen.line(fmt::format("       {} tokens/s per GPU, {} in all; {} TFLOP/s per GPU, MFU {}",
                          format_rate(time.tokens_per_second_per_gpu), format_rate(total),
                          time.tflops_per_gpu < 0.05 ? format_rate(time.tflops_per_gpu)
                                                     : format_real(time.tflops_per_gpu, 1),
                          format_percent(time.mfu)));
  add_fp8(screen, run);
  if (time.host) add_host(screen, *time.host, time.step);
  if (run.config.document_mask)
    screen.line(
        "       FLOPs and MFU count whole sequences, of which attention sees its documents");
}

void add_ranks(Screen& screen, const RankReport& ranks) {
  screen.line("Ranks", Colour::bold,
              fmt::format("  {} ({} simulated); rank {} is the slowest: {} of kernels (mean {}), "
                          "the others wait {}",
                          format_count(ranks.ranks), format_count(ranks.simulated), ranks.slowest,
                          format_duration(ranks.compute_most), format_duration(ranks.compute_mean),
                          format_duration(ranks.waiting_mean)));
}

/// A line for each class of ranks. The figures of the run are those of two of them.
void add_classes(Screen& screen, const RunResult& run) {
  const std::vector<ClassReport>& classes = run.classes();
  const auto fullest = std::ranges::find(classes, true, &ClassReport::fullest);
  const auto busiest = std::ranges::find(classes, true, &ClassReport::busiest);
  screen.line(
      "Classes", Colour::bold,
      fmt::format(" {} of ranks; memory above is that of {}, the fullest; times are those "
                  "of {}, {}",
                  classes.size(), printable(fullest->role), printable(busiest->role),
                  run.measured() != nullptr ? "whose kernels take longest" : "which idles least"));
  Table table{.columns = {{"  class"},
                          {"ranks", Align::right},
                          {"GiB", Align::right},
                          {"compute", Align::right},
                          {"exposed", Align::right},
                          {"idle", Align::right},
                          {"idle of the step", Align::right}},
              .rows = {}};
  for (const ClassReport& one : classes) {
    const double step = static_cast<double>(std::max<std::int64_t>(one.step.value, 1));
    table.rows.push_back({"  " + printable(one.role), format_count(one.ranks),
                          format_gib(one.allocated), format_duration(one.compute),
                          format_duration(one.exposed_communication), format_duration(one.idle),
                          format_percent(static_cast<double>(one.idle.value) / step)});
  }
  std::string text = render_table(table, screen.style());
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    screen.line(std::string_view(text).substr(begin, end - begin));
    begin = end + 1;
  }
}

/// The routing's effect on the slowest rank, and whether the capacity for rows is sufficient.
void add_routing(Screen& screen, const RoutingReport& routing, const PlanConfig& config) {
  std::string text = fmt::format("{}: ", printable(routing.routing));
  if (config.is_expert_parallel())
    text += fmt::format(
        "rank {} of each {} is the slowest{}, with {} rows, {} times the mean {}; ",
        routing.slowest_rank, config.expert_parallel,
        routing.slowest_block ? fmt::format(", in block {}", *routing.slowest_block) : "",
        format_count(routing.rows), format_real(routing.imbalance, 2),
        format_count(routing.mean_rows));
  else if (routing.slowest_block)
    text += fmt::format("block {} is the slowest; ", *routing.slowest_block);
  text += fmt::format("{} in whole tiles; expert {} has {} times the mean expert's",
                      format_count(routing.tiled_rows), routing.busiest_expert,
                      format_real(routing.expert_imbalance, 2));
  screen.line("Routing", Colour::bold, " " + text);
  if (!routing.room) return;
  const RoutingRoom& room = *routing.room;
  const std::string least =
      fmt::format("--capacity-factor {} is the least that holds: {} GiB, which {}",
                  flag_text(room.least_factor), format_gib(room.least_allocated),
                  room.least_fits ? "fits" : "does not fit");
  const std::string rows = fmt::format("{} rows from a rank to another, capacity {}",
                                       format_count(room.needed), format_count(room.rows));
  if (room.holds)
    screen.line("Capacity holds", Colour::green, fmt::format(": {}; {}", rows, least));
  else
    screen.line("Capacity too small", Colour::red,
                fmt::format(": {}: a run ends with an error; {}", rows, least));
}

void add_training(Screen& screen, const TrainingEstimate& training) {
  constexpr double seconds_a_day = 86400;
  std::string text = fmt::format(
      "  {} tokens in {} days, {} GPU-hours", format_real(static_cast<double>(training.tokens), 0),
      format_real(training.seconds / seconds_a_day, 1), format_real(training.gpu_hours, 0));
  if (training.cost) text += ", cost " + format_real(*training.cost, 0);
  screen.line("Train", Colour::bold, text);
}

/// The cause of compute's wait in a unit: "layers.0's weights", "the gradient norm".
std::string awaited_text(const ExposedUnit& most) {
  const bool has_unit = most.unit != "no unit";
  const std::string whose = has_unit ? most.unit + "'s " : std::string();
  switch (most.mostly.value_or(Awaited::others)) {
    case Awaited::weights: return whose + "weights";
    case Awaited::gradients: return whose + "gradients";
    case Awaited::gradient_norm: return "the gradient norm";
    case Awaited::expert_rows: return whose + "rows of experts";
    case Awaited::heads: return whose + "exchange of heads";
    case Awaited::keys: return whose + "keys of other ranks";
    case Awaited::rows: return whose + "rows of other ranks";
    case Awaited::sends: return "sends of other ranks";
    case Awaited::others: break;
  }
  return has_unit ? "collectives of " + most.unit : "collectives of no unit";
}

/// The unit with most exposed communication; "mostly" where that is more than half of all.
std::string longest_wait(const Predicted* predicted, const TimeSummary& time) {
  if (predicted == nullptr || predicted->exposed_units.empty()) return "";
  const ExposedUnit& most = predicted->exposed_units.front();
  if (most.exposed.value <= 0) return "";
  const bool is_most = most.exposed.value > time.exposed_communication.value / 2;
  return fmt::format(", {} the wait for {} ({})", is_most ? "mostly" : "the longest part",
                     awaited_text(most), format_duration(most.exposed));
}

void add_communication(Screen& screen, const RunResult& run) {
  const TimeSummary& time = run.time;
  if (time.communication.value == 0) {
    screen.line("Comm", Colour::bold, "   none");
    return;
  }
  const std::string text = fmt::format(
      "   {} a step, {} hidden, {} exposed", format_duration(time.communication),
      format_percent(time.overlap_fraction), format_duration(time.exposed_communication));
  screen.line("Comm", Colour::bold, text + longest_wait(run.predicted(), time));
  screen.line(fmt::format(
      "       {} GiB sent per GPU; compute includes {} lost to collectives that share the GPU",
      format_gib(run.traffic.all_gather + run.traffic.reduce_scatter + run.traffic.all_reduce +
                 run.traffic.sends),
      format_duration(time.contention)));
  std::vector<std::string> waits;
  for (const auto& [axes, exposed] : axis_times(run.facts))
    if (exposed.value > 0) waits.push_back(fmt::format("{} {}", axes, format_duration(exposed)));
  if (!waits.empty())
    screen.line(fmt::format("       exposed by axes: {}", fmt::join(waits, ", ")));
}

/// For a run that has not ended: its figures are unknown, and none is zero.
std::string not_known(const RunResult& run) {
  const std::string why = why_unfinished(run.status);
  return "not known" + (why.empty() ? "" : ": " + why);
}

void add_memory_part(Screen& screen, const RunResult& run) {
  if (run.absent.has(ResultFigure::allocated_bytes) || run.absent.has(ResultFigure::categories))
    return screen.line("Memory", Colour::bold, " " + not_known(run));
  add_verdict(screen, run);
  if (run.predicted() != nullptr) add_would_fit(screen, run, *run.predicted());
  if (run.memory.cached) add_cached(screen, run.memory);
  add_memory(screen, run.memory, run.predicted());
}

void add_time_part(Screen& screen, const RunResult& run) {
  if (run.absent.has(ResultFigure::median_step_ns))
    return screen.line("Time", Colour::bold, "   " + not_known(run));
  add_time(screen, run);
  if (!run.absent.has(ResultFigure::communication_ns)) add_communication(screen, run);
}

std::string calibration_text(const std::string& calibration) {
  if (calibration == "measured") return "measured (sustained rates)";
  if (calibration == "datasheet") return "datasheet (never measured)";
  if (calibration == "anchored") return "anchored (a measured run)";
  return calibration;
}

/// The origin of a simulation's prices. Its tier of trust states it too, but a run that was read
/// from a store has no tier.
std::string origin_text(const Predicted& predicted) {
  return fmt::format("{} cost model {}",
                     predicted.trust.text.empty()
                         ? fmt::format(" calibration {};", calibration_text(predicted.calibration))
                         : "",
                     predicted.cost_model_version);
}

void add_footer(Screen& screen, const RunResult& run, const std::string& stored) {
  static const Predicted none;
  const Predicted& predicted = run.predicted() != nullptr ? *run.predicted() : none;
  if (!predicted.trust.text.empty()) screen.line(predicted.trust.text, Colour::dim);
  if (run.predicted() != nullptr)
    for (const std::string& statement : statements_of(run.facts))
      screen.line(statement, Colour::dim);
  screen.line(fmt::format("{} {}: engine {}{}", run.source(), run.version, shown_engine(run.engine),
                          run.predicted() == nullptr ? "" : ";" + origin_text(predicted)),
              Colour::dim);
  screen.line(run.cluster.network, Colour::dim);
  screen.line(fmt::format("plan {}; {}", run.plan_hash, stored), Colour::dim);
}

}  // namespace

std::string other_engine_text(const OtherEngine& other) {
  const auto engine = parse<EngineKind>(other.engine);
  const std::string name =
      fmt::format("{} (--engine {})", engine ? traits_of(*engine).trainer : other.engine,
                  shown_engine(other.engine));
  if (!other.reason.empty()) return fmt::format("{}: not predicted: {}", name, other.reason);
  const std::string doubt = other.certain ? "" : ", within error";
  return fmt::format("{}: {}{}, {} of {} GiB of the device, {} a step; recompute {}", name,
                     other.fits ? "fits" : "does not fit", doubt, format_gib(other.memory),
                     format_gib(other.capacity), format_duration(other.step),
                     to_string(other.recompute));
}

std::string render_text(const RunResult& run, const TextStyle& style, const std::string& stored) {
  if (run.absent.has(ResultFigure::plan)) return render_partial_text(run, style, stored);
  Screen screen(style);
  add_title(screen, run);
  add_notes(screen, run);
  screen.blank();
  add_memory_part(screen, run);
  screen.blank();
  add_time_part(screen, run);
  if (!run.classes().empty()) add_classes(screen, run);
  if (const Predicted* predicted = run.predicted()) {
    if (predicted->ranks) add_ranks(screen, *predicted->ranks);
    if (predicted->routing) add_routing(screen, *predicted->routing, run.config);
    if (predicted->training) add_training(screen, *predicted->training);
    for (const OtherEngine& other : predicted->other_engines)
      screen.line("Instead", Colour::bold, " " + other_engine_text(other));
  }
  screen.blank();
  add_footer(screen, run, stored);
  return screen.text();
}

}  // namespace mfsdp
