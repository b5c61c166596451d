// A run's result as JSON text, and its configuration back from it.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

inline constexpr std::string_view kResultSchema = "mfsdp.result/1";

/// The same object as to_json(RunResult), on one line without a line break.
[[nodiscard]] std::string to_json_line(const RunResult& result);

/// Reads the output of to_json() or to_json_line(), without timelines and launches. Keys that
/// earlier versions did not write, and null, are unknown figures. `where` names the text in errors,
/// which name the first key of another type, another schema or a missing run_id.
[[nodiscard]] Result<RunResult> result_from_json(std::string_view text, const std::string& where);

/// The result's `model` object on one line: name, parameters and every field of the shape.
[[nodiscard]] std::string model_json(const RunHead& run);

/// The result's `config` object on one line: every flag that shapes the plan.
/// Requires a valid configuration: throws OverflowError if the global batch leaves 63 bits.
[[nodiscard]] std::string config_json(const PlanConfig& config);

/// The result's `routing` object on one line, and back. `where` as below.
[[nodiscard]] std::string routing_json(const RoutingReport& routing);
[[nodiscard]] Result<RoutingReport> routing_from_json(std::string_view text,
                                                      const std::string& where);

/// The configuration that `model_json` and `config_json` were written from. Results without a
/// layout are of versions that had megatron_fsdp alone. `where` names their
/// origin in errors; a missing or mistyped field is named.
[[nodiscard]] Result<PlanConfig> config_from_json(const std::string& model,
                                                  const std::string& config,
                                                  const std::string& where);

}  // namespace mfsdp
