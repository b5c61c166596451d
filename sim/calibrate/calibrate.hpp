// Converts measurements to the files that price a machine (--calibrate).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "sim/calibrate/fidelity.hpp"
#include "sim/calibrate/measurements.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

struct CalibrationRequest {
  std::vector<std::filesystem::path> files;
  std::string gpu = "h100";            ///< base: it has the values not determined
  std::filesystem::path gpus_dir;      ///< the catalogue
  std::filesystem::path output;        ///< the GPU file, "my_h100.toml"; others are beside it
  std::optional<std::int64_t> domain;  ///< GPUs in a domain; none: as the base
};

/// One value of the GPU or cluster file that the measurements determined.
struct FittedValue {
  std::string key;  ///< "memory.copy_fraction", "nic_gb_per_s"
  double value = 0;
  double base = 0;     ///< the base GPU's value
  std::string source;  ///< from which files, by which fit
};

struct CalibrationFile {
  std::filesystem::path path;
  std::string content;
};

struct Calibration {
  Gpu gpu;               ///< as the GPU file reads back, its tables being the new files
  bool network = false;  ///< whether domains were measured
  std::vector<FittedValue> values;
  std::vector<FidelityRow> errors;     ///< of the written files against the measurements
  std::vector<std::string> notes;      ///< one line each: what the user should know
  std::vector<CalibrationFile> files;  ///< tables first, then the cluster file, the GPU file last
};

/// Reads the files and fits. Checks the result by reading it back and pricing every measurement.
/// Nothing is written. Collectives on ranks of one domain become a table of the GPU. Collectives
/// between domains become a table and a fitted NIC bandwidth and latency, in the GPU file and in a
/// cluster file whose stem has the suffix "_cluster". Both files reproduce the measured
/// collectives; others are priced with the fitted NIC. Errors are those of read_measurements and
/// load_gpu, and data that no value of a parameter explains.
[[nodiscard]] Result<Calibration> calibrate(const CalibrationRequest& request);

/// Writes all files or none. The stated output is replaced. Any other existing file is replaced
/// only if a calibration wrote it, which its first line states; otherwise it is an error.
[[nodiscard]] Result<void> write_calibration(const Calibration& calibration);

/// Report: the fitted values, their errors, and the written files, in lines of at most 100 columns
/// if paths allow.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);

}  // namespace mfsdp
