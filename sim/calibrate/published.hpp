// Runs that others published, each with its prediction (--published).
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/price_tables.hpp"

namespace mfsdp {

/// A published figure and its prediction.
struct Judged {
  double published = 0;
  double predicted = 0;

  /// Predicted / published - 1.
  [[nodiscard]] double error() const { return predicted / published - 1; }
};

/// One row of scenarios/fidelity/published_steps.csv.
struct PublishedRun {
  std::string origin;  ///< how the row was found
  std::string source;
  std::string model;   ///< as the source calls it
  std::string gpu;     ///< likewise
  std::string engine;  ///< of --engine; empty where none is described
  std::string catalogue_gpu;
  std::string what;         ///< GPUs, lengths and recomputation, in words
  bool experts = false;     ///< expert-parallel
  bool shares = false;      ///< ranks share weights (tp) or sequences (cp)
  bool has_stages = false;  ///< of a pipeline
  /// Priced by micro-benchmarks of that very GPU; else by those of another one, scaled.
  bool calibrated = false;
  std::string excluded = {};   ///< the rule that excludes it, in words; empty where it applies
  std::string memory_of = {};  ///< "allocated" or "reserved"
  std::optional<Judged> tokens_per_s_per_gpu{};
  std::optional<Judged> memory_gib{};  ///< none where weights between steps are not fp32
};

/// Number of rows that a rule excludes and no earlier rule does.
struct Exclusion {
  std::string rule;
  std::int64_t rows = 0;
};

/// Errors of the rows that share an engine, a framework and GPU, or a GPU, or that have experts. Rows
/// whose ranks share weights or sequences are summarised for themselves.
struct PublishedErrors {
  std::string by;    ///< "engine", "framework", "gpu", "experts" or "mesh"
  std::string name;  ///< of --engine, of the catalogue; with experts an origin, or of which GPUs
  std::string of;    ///< "tokens/s/GPU", "memory"
  std::int64_t rows = 0;
  double mean = 0;   ///< of absolute errors
  double worst = 0;  ///< the largest, with its sign
};

struct Published {
  std::vector<PublishedRun> runs;   ///< in the order of the file
  std::vector<Exclusion> excluded;  ///< in the order of the rules, those that exclude something
  std::vector<PublishedErrors> errors;
};

/// Reads the file and predicts the rows that apply, each with its engine. Nothing is fitted to
/// them. GPUs that also have published tables of attention are priced by those of `tables`, or by
/// their default. `scenarios` is the catalogue's folder. Errors name file and line.
[[nodiscard]] Result<Published> published_runs(const std::filesystem::path& scenarios,
                                               std::optional<PriceTables> tables = std::nullopt);

/// The titles, then a line of cells for each run that applies, for any table renderer.
[[nodiscard]] std::vector<std::vector<std::string>> published_cells(const Published& published);
/// Errors by engine and by GPU, and the exclusions, in sentences.
[[nodiscard]] std::string published_summary(const Published& published);
/// {"schema": "mfsdp.published/1", "cost_model_version", "runs", "errors", "excluded"}; fractions.
[[nodiscard]] std::string published_json(const Published& published);

}  // namespace mfsdp
