#include "sim/calibrate/anchor.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "core/base/text.hpp"
#include "core/plan/result_json.hpp"
#include "core/schedule/build.hpp"
#include "sim/predict/predict.hpp"

namespace mfsdp {
namespace {

using Json = nlohmann::json;

constexpr double kLeastFactor = 0.25;
constexpr double kMostFactor = 4;

/// The member of a path of keys, or an error that names it.
Result<Json> member(const Json& document, std::string_view pointer, const std::string& where) {
  const Json::json_pointer path{std::string(pointer)};
  if (!document.is_object() || !document.contains(path))
    return fail(
        where, fmt::format("{} is missing; expected a result of --output json", pointer.substr(1)));
  return document.at(path);
}

Result<std::string> text(const Json& document, std::string_view pointer, const std::string& where) {
  MFSDP_LET(value, member(document, pointer, where));
  if (!value.is_string()) return fail(where, fmt::format("{}: expected text", pointer.substr(1)));
  return value.get<std::string>();
}

Result<std::int64_t> integer(const Json& document, std::string_view pointer,
                             const std::string& where) {
  MFSDP_LET(value, member(document, pointer, where));
  if (!value.is_number_integer() || value < 0)
    return fail(where, fmt::format("{}: expected an integer from 0", pointer.substr(1)));
  return value.get<std::int64_t>();
}

struct MeasuredRun {
  std::string name;
  std::string model;
  std::string gpu;
  std::int64_t gpus_per_node = 0;
  PlanConfig config;
  double step = 0;  ///< ns
  double compute = 0;
  double exposed = 0;
};

Result<MeasuredRun> read_run(std::string_view content, const std::string& where) {
  MFSDP_LET(document, parse_json(content, where));
  MFSDP_LET(schema, text(document, "/schema", where));
  if (schema != kResultSchema)
    return fail(where,
                fmt::format("schema is \"{}\"; expected \"{}\"", printable(schema), kResultSchema));
  MFSDP_LET(source, text(document, "/source", where));
  if (source != "measured")
    return fail(where, fmt::format("source is \"{}\"; expected \"measured\": a prediction anchors "
                                   "nothing",
                                   printable(source)));
  MeasuredRun run;
  MFSDP_LET(name, text(document, "/name", where));
  MFSDP_LET(id, text(document, "/run_id", where));
  MFSDP_LET(model_name, text(document, "/model/name", where));
  MFSDP_LET(gpu, text(document, "/cluster/gpu", where));
  MFSDP_LET(per_node, integer(document, "/cluster/gpus_per_node", where));
  MFSDP_LET(model, member(document, "/model", where));
  MFSDP_LET(configuration, member(document, "/config", where));
  MFSDP_LET(config, config_from_json(model.dump(), configuration.dump(), where));
  if (const auto valid = validate(config); !valid)
    return fail(where + ": config", valid.error().message());
  MFSDP_LET(step, integer(document, "/time/step_ns", where));
  MFSDP_LET(compute, integer(document, "/time/compute_ns", where));
  MFSDP_LET(exposed, integer(document, "/time/exposed_communication_ns", where));
  if (step == 0) return fail(where, "time.step_ns is 0; expected a measured time");
  run.name = printable(name.empty() ? id : name);
  run.model = printable(model_name);
  run.gpu = gpu;
  run.gpus_per_node = per_node;
  run.config = config;
  run.step = static_cast<double>(step);
  run.compute = static_cast<double>(compute);
  run.exposed = static_cast<double>(exposed);
  return run;
}

double ns(Nanos time) { return static_cast<double>(time.value); }

/// Scales the prices until the prediction's parts are the measured ones, or as near as they get.
Result<void> fit_parts(const MeasuredRun& run, const Program& program, const CostModel& costs,
                       TimeSummary time, Anchor& anchor) {
  constexpr int kRounds = 8;
  constexpr double kClose = 1e-4;
  for (int round = 0; round < kRounds; ++round) {
    const double kernels = run.compute / std::max(1.0, ns(time.compute));
    const bool exposes = run.exposed > 0 && time.exposed_communication.value > 0;
    const double collectives = exposes ? run.exposed / ns(time.exposed_communication) : 1;
    if (std::abs(kernels - 1) < kClose && std::abs(collectives - 1) < kClose) return {};
    anchor.kernel_factor *= kernels;
    anchor.collective_factor =
        std::clamp(anchor.collective_factor * collectives, kLeastFactor, kMostFactor);
    MFSDP_LET(next, predict(program, costs.scaled(anchor.kernel_factor, anchor.collective_factor)));
    time = next.run.time;
  }
  return {};
}

}  // namespace

std::string Anchor::text() const {
  return fmt::format("run {} ({} on {}): kernels x {:.3f}, collectives x {:.3f}", run, model, gpus,
                     kernel_factor, collective_factor);
}

Result<Anchor> anchor_from(std::string_view result_json, const std::string& where,
                           const CostsOf& costs_of) {
  MFSDP_LET(run, read_run(result_json, where));
  const std::int64_t gpus = run.config.mesh.world_size();
  MFSDP_LET(costs, costs_of(gpus, run.gpus_per_node));
  if (costs.cluster().gpu.name != run.gpu)
    return fail(where, fmt::format("was measured on {}; expected a run on {} (--gpu)",
                                   printable(run.gpu), costs.cluster().gpu.name));
  MFSDP_LET(
      program,
      build_program(run.config, {.model_name = run.model, .tool_version = "", .stored_hash = ""}));
  MFSDP_LET(unscaled, predict(program, costs));
  const TimeSummary& time = unscaled.run.time;
  Anchor anchor{.run = run.name, .model = run.model, .gpus = gpus};
  anchor.before = ns(time.step) / run.step - 1;
  anchor.parts = run.compute > 0;
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
