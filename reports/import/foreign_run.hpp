// The data that readers of foreign files collect, and its conversion to a result. Internal to this
// folder.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/import/import.hpp"
#include "reports/record/origin.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// The data of one step in a file.
struct ForeignStep {
  std::optional<double> loss = {};
  std::optional<double> grad_norm = {};
  std::optional<double> learning_rate = {};
  std::optional<double> seconds = {};
  std::optional<std::int64_t> tokens = {};
  std::optional<double> tokens_per_second = {};  ///< of one GPU
  std::optional<double> tflops = {};             ///< of one GPU
  std::optional<double> mfu = {};                ///< a fraction
  bool skipped = false;
};

struct ForeignRun {
  std::string engine;
  std::string format;  ///< for people: "torchtitan log"
  std::string model_name = {};
  std::string gpu = {};
  std::optional<std::int64_t> gpus = {};
  std::optional<std::int64_t> parameters = {};
  std::optional<std::int64_t> created_unix_ns = {};
  std::optional<Bytes> capacity = {};
  std::optional<Bytes> reserved = {};    ///< the most that the caching allocator held
  std::optional<Bytes> peak = {};        ///< the most that was live in it
  std::optional<TimeSummary> time = {};  ///< of one step, apart from its rates
  std::vector<OpTime> timeline = {};
  std::map<std::int64_t, ForeignStep> steps = {};
  std::map<std::int64_t, double> validation_losses = {};  ///< by the step they come after
  Facts facts = {};                                       ///< of topic "import"
  /// Names of figures that the file states and a run has no place for.
  std::set<std::string, std::less<>> left_out = {};
  /// In a file that mfsdp exported: the origin of the run, which replaces the reader's.
  std::optional<RunOrigin> origin = {};

  /// Adds a fact, or replaces its value.
  void fact(const std::string& name, FactValue value);
  /// Adds a name to those that are left out.
  void leave_out(std::string_view name);
};

/// The result. The median step is that of the steps (reports/record/step_figures.hpp), else the
/// timeline's one; the rates are those of the median step. `bytes` and `path` are the file's.
[[nodiscard]] RunResult result_of(ForeignRun run, const ImportSettings& settings,
                                  std::string_view bytes, const std::filesystem::path& path);

/// The larger one; `value` where there was none.
template <class Value>
void keep_largest(std::optional<Value>& largest, Value value) {
  if (!largest || *largest < value) largest = value;
}

// Readers. Each fails where the text holds no step (or trace, or snapshot) of its format.

[[nodiscard]] Result<ForeignRun> read_torchtitan_log(std::string_view text,
                                                     const std::string& where);
[[nodiscard]] Result<ForeignRun> read_megatron_log(std::string_view text, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_step_lines(std::string_view text, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_trainer_state(std::string_view text,
                                                    const std::string& where);
[[nodiscard]] Result<ForeignRun> read_tensorboard(std::string_view bytes, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_memory_snapshot(std::string_view bytes,
                                                      const std::string& where);
[[nodiscard]] Result<ForeignRun> read_profile(std::string_view bytes, const std::string& where);

/// The format of a file, by its magic bytes, the keys of its JSON or the lines of its log. For a
/// packed file, the bytes are unpacked ones. The error names a format without a reader, and the
/// file to import in its place (reports/import/other_formats.hpp).
[[nodiscard]] Result<ImportFormat> detect_format(std::string_view bytes, const std::string& where);

}  // namespace mfsdp
