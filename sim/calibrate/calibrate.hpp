// From measurements to the files that price a machine: what --calibrate does.
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
  std::string gpu = "h100";            ///< base: whatever the files do not determine is its value
  std::filesystem::path gpus_dir;      ///< the catalogue
  std::filesystem::path output;        ///< the GPU file, "my_h100.toml"; others lie beside it
  std::optional<std::int64_t> domain;  ///< GPUs that the fast link joins; else the base GPU's
};

/// One number of the files that the measurements determined.
struct FittedValue {
  std::string key;  ///< "memory.copy_fraction", "nic_gb_per_s"
  double value = 0;
  double base = 0;     ///< what the base GPU said
  std::string source;  ///< from which files, by which fit
};

struct CalibrationFile {
  std::filesystem::path path;
  std::string content;
};

struct Calibration {
  Gpu gpu;               ///< as the GPU file reads back, its tables being the new files
  bool network = false;  ///< whether the files say what was measured between domains
  std::vector<FittedValue> values;
  std::vector<FidelityRow> errors;     ///< of the written files against the measurements
  std::vector<std::string> notes;      ///< one line each: what the user should know
  std::vector<CalibrationFile> files;  ///< tables first, then the cluster file, the GPU file last
};

/// Reads the files, fits, and checks what it would write by reading it back and pricing every
/// measurement. Nothing is written. Collectives on ranks of one domain become a table of the GPU;
/// those that span domains a table, and NIC bandwidth and latency that are fitted: in the GPU file,
/// and in a cluster file whose stem gains "_cluster". With both files the measured collectives cost
/// what they took; what was not measured has the fitted NIC. Errors as
/// read_measurements and load_gpu; data that no value of a parameter explains are errors too.
[[nodiscard]] Result<Calibration> calibrate(const CalibrationRequest& request);

/// Writes all files or none. The stated output is replaced; another file that exists is replaced
/// only if a calibration wrote it (its first line says so), and is otherwise an error.
[[nodiscard]] Result<void> write_calibration(const Calibration& calibration);

/// What was fitted, how well, and what was written: lines of text, no more than 100 columns where
/// paths allow.
[[nodiscard]] std::string calibration_text(const Calibration& calibration);

}  // namespace mfsdp
