// A calibration while it grows. For the sources of this folder alone.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "sim/calibrate/calibrate.hpp"

namespace mfsdp {

/// What a calibration is made of while it grows.
struct CalibrationState {
  const CalibrationRequest& request;
  Measurements data;
  Gpu base;
  Gpu gpu;            ///< what will be written
  CostTables tables;  ///< what prices will be made from
  std::int64_t gpus_per_node = 8;
  std::int64_t domain = 8;
  std::vector<CollectiveSample> inside;   ///< a domain
  std::vector<CollectiveSample> between;  ///< domains
  Calibration result;

  [[nodiscard]] std::string file_name(std::string_view ending) const {
    return request.output.stem().string() + std::string(ending);
  }
  [[nodiscard]] std::filesystem::path beside(std::string_view ending) const {
    return request.output.parent_path() / file_name(ending);
  }
};

/// File names for a source line.
[[nodiscard]] std::string names_of(const std::vector<std::string>& files);

/// Replaces where a key of the GPU file is from.
void set_source(Gpu& gpu, const std::string& key, std::string source);

/// A value that the data determined.
void note_value(CalibrationState& state, const std::string& key, double value, double base,
                const std::string& source);

/// A line of the report.
void note_errors(CalibrationState& state, std::string group, std::string what,
                 std::span<const double> errors, Evaluation evaluation, const std::string& source);

/// FLOPs per nanosecond of one TFLOP/s.
inline constexpr double kFlopsPerNanoOfTera = 1e3;

/// Of causal attention: 2 B S S heads head_dim forward, 2.5 times that backward.
[[nodiscard]] double attention_flops(bool backward, double batch, double seq, double heads,
                                     double head_dim);

/// Refuses rows that no GPU of the base's kind can reach: products and attention above its peak,
/// gathers and reductions above its link. Errors name file and line, what the row says, and the
/// limit.
[[nodiscard]] Result<void> check_possible(const CalibrationState& state);
/// Likewise of traces, with their copies, once the domain is known. Errors name the trace.
[[nodiscard]] Result<void> check_traces(const CalibrationState& state);

/// Sorts the collectives into those inside a domain and those between domains, makes a table of the
/// former and fits the NICs to the latter.
[[nodiscard]] Result<void> add_collectives(CalibrationState& state);

/// Scales the rates to those of the traces, and sets what else they say. What has a table of this
/// GPU already is left.
[[nodiscard]] Result<void> add_traces(CalibrationState& state);

/// Prices every collective with the numbers that will be written, for the report. Messages that
/// took longer than larger ones are not priced as measured; a note counts them.
[[nodiscard]] Result<void> check_prices(CalibrationState& state);

}  // namespace mfsdp
