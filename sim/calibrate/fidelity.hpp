// Compares the model with all measurements of the project (--fidelity).
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "sim/calibrate/errors.hpp"
#include "sim/calibrate/trust_level.hpp"
#include "sim/cost/cost_model.hpp"

namespace mfsdp {

/// One line of the table: a set of measured rows and their prediction errors.
struct FidelityRow {
  std::string group;  ///< "GEMM", "attention", "collective", "copy", "contention", "network",
                      ///< "step", "engine"
  std::string what;
  ErrorSummary error;
  Evaluation evaluation = Evaluation::unseen;
  TrustLevel trust_level = TrustLevel::calibrated;
  std::string source;  ///< file below scenarios/
};

/// All rows, in the order of the groups above. `scenarios` is the catalogue's folder; missing files
/// of scenarios/fidelity are skipped. The tables are the H200's.
[[nodiscard]] Result<std::vector<FidelityRow>> fidelity(const std::filesystem::path& scenarios);

/// Parts of fidelity(): tables that others published for GPUs, and one for each other data file.
[[nodiscard]] Result<std::vector<FidelityRow>> published_tables_fidelity(
    const std::filesystem::path& scenarios);
[[nodiscard]] Result<std::vector<FidelityRow>> contention_fidelity(
    const std::filesystem::path& scenarios);
[[nodiscard]] Result<std::vector<FidelityRow>> network_fidelity(
    const std::filesystem::path& scenarios);
[[nodiscard]] Result<std::vector<FidelityRow>> step_fidelity(
    const std::filesystem::path& scenarios);

/// A cost model for `gpus` GPUs of the catalogue, in NVLink domains of one size.
[[nodiscard]] Result<CostModel> costs_on(const std::string& gpu, std::int64_t gpus,
                                         std::int64_t domains,
                                         const std::filesystem::path& scenarios);

/// The table's titles, then a line of cells for each row, for any table renderer.
[[nodiscard]] std::vector<std::vector<std::string>> fidelity_cells(
    const std::vector<FidelityRow>& rows);

/// Fractions, not percent; texts are quoted.
[[nodiscard]] std::string fidelity_csv(const std::vector<FidelityRow>& rows);
/// {"schema": "mfsdp.fidelity/1", "cost_model_version", "rows": [...]}, fractions, not percent.
[[nodiscard]] std::string fidelity_json(const std::vector<FidelityRow>& rows);

}  // namespace mfsdp
