// State of a calibration in progress. Internal to this folder.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/calibrate/calibrate.hpp"

namespace mfsdp {

/// Measurements, results so far, and the base GPU of a calibration.
struct CalibrationState {
  const CalibrationRequest& request;
  Measurements data;
  Gpu base;
  Gpu gpu;            ///< what will be written
  CostTables tables;  ///< what prices will be made from
  std::int64_t gpus_per_node = 8;
  std::int64_t domain = 8;
  std::vector<CollectiveSample> inside = {};   ///< inside a domain
  std::vector<CollectiveSample> between = {};  ///< between domains
  Calibration result = {};

  [[nodiscard]] std::string file_name(std::string_view ending) const {
    return request.output.stem().string() + std::string(ending);
  }
  [[nodiscard]] std::filesystem::path beside(std::string_view ending) const {
    return request.output.parent_path() / file_name(ending);
  }
};

/// File names for a source line.
[[nodiscard]] std::string names_of(const std::vector<std::string>& files);

/// Replaces the origin of a key of the GPU file.
void set_source(Gpu& gpu, const std::string& key, std::string source);

/// Adds a value that the data determined.
void note_value(CalibrationState& state, const std::string& key, double value, double base,
                const std::string& source);

/// Adds a line to the report.
void note_errors(CalibrationState& state, std::string group, std::string what,
                 std::span<const double> errors, Evaluation evaluation, const std::string& source);

/// FLOPs per nanosecond of one TFLOP/s.
inline constexpr double kFlopsPerNanoOfTera = 1e3;

/// FLOPs of causal attention: 2 B S S heads head_dim forward, 2.5 times that backward.
[[nodiscard]] double attention_flops(bool backward, double batch, double seq, double heads,
                                     double head_dim);

/// Rejects rows that no GPU of the base's kind can reach: GEMMs and attention above its peak,
/// gathers and reductions above its link. Errors name file and line, the row's rate, and the limit.
[[nodiscard]] Result<void> check_possible(const CalibrationState& state);
/// The same for traces, with their copies, once the domain is known. Errors name the trace.
[[nodiscard]] Result<void> check_traces(const CalibrationState& state);

/// Splits the collectives into those inside a domain and those between domains, makes a table of
/// the former and fits the NICs to the latter.
[[nodiscard]] Result<void> add_collectives(CalibrationState& state);

/// Scales rates to those of the traces, and sets the other values that traces contain. Values with
/// a table of this GPU are not changed.
[[nodiscard]] Result<void> add_traces(CalibrationState& state);

/// Prices every collective with the values that will be written, for the report. Messages that took
/// longer than larger ones are not reproduced; a note counts them.
[[nodiscard]] Result<void> check_prices(CalibrationState& state);

}  // namespace mfsdp
