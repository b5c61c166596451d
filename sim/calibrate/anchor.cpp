#include "sim/calibrate/anchor.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/formats/json_fields.hpp"
#include "core/plan/attention_choice.hpp"
#include "core/plan/engine.hpp"
#include "core/schedule/build.hpp"
#include "reports/record/result_json.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr double kLeastFactor = 0.25;
constexpr double kMostFactor = 4;

struct AnchorRun {
  std::string name;
  std::string model;
  std::string gpu;
  std::int64_t gpus_per_node = 0;
  PlanConfig config;
  bool library_attention = false;
  double step = 0;  ///< ns
  double compute = 0;
  double exposed = 0;
};

/// The largest count; doubles represent it exactly.
constexpr std::int64_t kMostCount = 1'000'000'000'000'000;

/// Reads the configuration and checks that it is valid and has the run's number of GPUs.
Result<PlanConfig> read_config(const Json& document, const std::string& where) {
  MFSDP_LET(model, any_field(document, "model", where));
  MFSDP_LET(configuration, any_field(document, "config", where));
  MFSDP_LET(config, config_from_json(model->dump(), configuration->dump(), where));
  if (const auto valid = validate(config); !valid)
    return fail(where + ": config", valid.error().message());
  MFSDP_LET(gpus, integer_field(document, "cluster/gpus", where, {.least = 1, .most = kMostCount}));
  if (gpus != config.mesh.world_size())
    return fail(where, fmt::format("cluster/gpus is {}; expected {}, dp_outer {} x dp_shard {} of "
                                   "its config",
                                   gpus, config.mesh.world_size(), config.mesh.size(Axis::dp_outer),
                                   config.mesh.size(Axis::dp_shard)));
  return config;
}

/// Checks that the run's token rate, if stated, agrees with its step time and configuration.
Result<void> check_tokens(const Json& document, const PlanConfig& config, double step_ns,
                          const std::string& where) {
  // The rate may be of the mean step, the time of the median step.
  constexpr double kRateTolerance = 0.02;
  const Json* rate = find_field(document, "time/tokens_per_second_per_gpu");
  if (rate == nullptr || !rate->is_number() || *rate == 0) return {};
  const double stated = rate->get<double>() * step_ns / 1e9;
  const auto expected = static_cast<double>(config.tokens_per_step());
  if (std::abs(stated - expected) <= kRateTolerance * expected) return {};
  return fail(where, fmt::format("time/tokens_per_second_per_gpu gives {:.6g} tokens a step and "
                                 "GPU; expected {} from its config",
                                 stated, config.tokens_per_step()));
}

/// Whether cuDNN computed all its attention; assumed if the result does not state it.
bool has_library_attention(const Json& document) {
  const Json* said = find_field(document, fmt::format("facts/software/{}", kAttentionFact));
  return said == nullptr || !said->is_string() ||
         said->get<std::string>() != to_string(AttentionChoice::warpgroups);
}

/// Checks that the result is of a finished run of ours. A missing field counts as correct, as
/// earlier versions did not write these.
Result<void> check_kind(const Json& document, const std::string& where) {
  const auto check = [&](const char* key, const std::vector<std::string>& expected) {
    const Json* said = find_field(document, key);
    if (said == nullptr || said->is_null()) return Result<void>{};
    if (std::ranges::any_of(expected, [&](const std::string& one) { return *said == one; }))
      return Result<void>{};
    return Result<void>(
        fail(where, fmt::format("{} is {}; expected \"{}\"", key, printable(said->dump()),
                                fmt::join(expected, "\" or \""))));
  };
  MFSDP_TRY(check("status", {std::string(to_string(RunStatus::complete)),
                             std::string(to_string(RunStatus::interrupted))}));
  return check("engine", {std::string(stored_name(EngineKind::mfsdp))});
}

Result<AnchorRun> read_run(std::string_view content, const std::string& where) {
  MFSDP_LET(document, parse_json(content, where));
  MFSDP_LET(schema, text_field(document, "schema", where));
  if (schema != kResultSchema)
    return fail(where,
                fmt::format("schema is \"{}\"; expected \"{}\"", printable(schema), kResultSchema));
  MFSDP_LET(source, text_field(document, "source", where));
  if (source != "measured")
    return fail(where, fmt::format("source is \"{}\"; expected \"measured\": a prediction anchors "
                                   "nothing",
                                   printable(source)));
  MFSDP_TRY(check_kind(document, where));
  MFSDP_LET(config, read_config(document, where));
  MFSDP_LET(name, text_field(document, "name", where));
  MFSDP_LET(id, text_field(document, "run_id", where));
  MFSDP_LET(model, text_field(document, "model/name", where));
  MFSDP_LET(gpu, text_field(document, "cluster/gpu", where));
  MFSDP_LET(per_node, integer_field(document, "cluster/gpus_per_node", where,
                                    {.least = 1, .most = kMostCount}));
  // Results of earlier versions contain one step.
  const bool has_median = find_field(document, "time/median_step_ns") != nullptr;
  const std::string step_path = has_median ? "time/median_step_ns" : "time/step_ns";
  MFSDP_LET(step, integer_field(document, step_path, where, {.most = kMostCount}));
  MFSDP_LET(compute, integer_field(document, "time/compute_ns", where, {.most = kMostCount}));
  MFSDP_LET(exposed,
            integer_field(document, "time/exposed_communication_ns", where, {.most = kMostCount}));
  if (step == 0) return fail(where, step_path + " is 0; expected a measured time");
  MFSDP_TRY(check_tokens(document, config, static_cast<double>(step), where));
  return AnchorRun{.name = printable(name.empty() ? id : name),
                   .model = printable(model),
                   .gpu = std::move(gpu),
                   .gpus_per_node = per_node,
                   .config = std::move(config),
                   .library_attention = has_library_attention(document),
                   .step = static_cast<double>(step),
                   .compute = static_cast<double>(compute),
                   .exposed = static_cast<double>(exposed)};
}

double ns(Nanos time) { return static_cast<double>(time.value); }

/// Scales the prices until the predicted parts equal the measured ones, or are as close as
/// possible.
Result<void> fit_parts(const AnchorRun& run, const Program& program, const CostModel& costs,
                       TimeSummary time, Anchor& anchor) {
  constexpr int kRounds = 8;
  constexpr double kClose = 1e-4;
  for (int round = 0; round < kRounds; ++round) {
    const double kernels = run.compute / std::max(1.0, ns(time.compute));
    const bool exposes = run.exposed > 0 && time.exposed_communication.value > 0;
    const double collectives = exposes ? run.exposed / ns(time.exposed_communication) : 1;
    if (std::abs(kernels - 1) < kClose && std::abs(collectives - 1) < kClose) return {};
    anchor.kernel_factor *= kernels;
    const double wanted = anchor.collective_factor * collectives;
    anchor.collective_factor = std::clamp(wanted, kLeastFactor, kMostFactor);
    anchor.collectives_bound = wanted != anchor.collective_factor;
    MFSDP_LET(next, predict(program, costs.scaled(anchor.kernel_factor, anchor.collective_factor)));
    time = next.run.time;
  }
  return {};
}

}  // namespace

std::string Anchor::text() const {
  return fmt::format("kernels x {:.2f}, collectives x {:.2f}{} ({})", kernel_factor,
                     collective_factor, collectives_bound ? ", a bound of the fit" : "", run);
}

Result<Anchor> anchor_from(std::string_view result_json, const std::string& where,
                           const CostsOf& costs_of) {
  MFSDP_LET(run, read_run(result_json, where));
  const std::int64_t gpus = run.config.mesh.world_size();
  MFSDP_LET(costs, costs_of(gpus, run.gpus_per_node));
  if (costs.cluster().gpu.name != run.gpu)
    return fail(where, fmt::format("was measured on {}; expected a run on {} (--gpu)",
                                   printable(run.gpu), costs.cluster().gpu.name));
  if (run.library_attention) costs = costs.with_library_attention();
  MFSDP_LET(
      program,
      build_program(run.config, {.model_name = run.model, .tool_version = "", .stored_hash = ""}));
  MFSDP_LET(unscaled, predict(program, costs));
  const TimeSummary& time = unscaled.run.time;
  // Model FLOPs over the measured step time; a value above 1 exceeds the peak, which is impossible.
  const double utilisation = time.mfu * ns(time.step) / run.step;
  if (utilisation > 1)
    return fail(where, fmt::format("its step of {:.4g} ms would run the model at {:.2f} times the "
                                   "peak of {}; expected at most the peak: it is not of this "
                                   "machine or configuration",
                                   run.step / 1e6, utilisation, costs.cluster().gpu.name));
  Anchor anchor{.run = run.name, .model = run.model, .gpus = gpus};
  anchor.before = ns(time.step) / run.step - 1;
  anchor.domains = ceil_div(gpus, costs.cluster().domain);
  anchor.parts = run.compute > 0;
  anchor.waited = time.exposed_communication.value > 0 && (!anchor.parts || run.exposed > 0);
  if (anchor.parts) {
    MFSDP_TRY(fit_parts(run, program, costs, time, anchor));
  } else {
    anchor.kernel_factor = run.step / std::max(1.0, ns(time.step));
    anchor.collective_factor = anchor.kernel_factor;
  }
  if (!(anchor.kernel_factor >= kLeastFactor && anchor.kernel_factor <= kMostFactor))
    return fail(where, fmt::format("takes {:.2f} times as long as predicted; expected {} to {}: it "
                                   "is not of this machine or configuration",
                                   anchor.kernel_factor, kLeastFactor, kMostFactor));
  MFSDP_LET(scaled, predict(program, costs.scaled(anchor.kernel_factor, anchor.collective_factor)));
  anchor.after = ns(scaled.run.time.step) / run.step - 1;
  return anchor;
}

Result<Anchor> load_anchor(const std::filesystem::path& file, const CostsOf& costs_of) {
  MFSDP_LET(content, read_file(file, "a result of a measured run", std::size_t{64} << 20));
  return anchor_from(content, file.string(), costs_of);
}

}  // namespace mfsdp
