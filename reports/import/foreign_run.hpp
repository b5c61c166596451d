// What readers of foreign files collect, and how it becomes a result. Internal to this folder.
#pragma once

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/import/import.hpp"
#include "reports/record/origin.hpp"
#include "reports/record/result.hpp"

namespace mfsdp {

/// What a file says of one step.
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
  /// Of a file that mfsdp itself has exported: it says what the run is, in place of the reader.
  std::optional<RunOrigin> origin = {};

  /// Adds a fact, or replaces its value.
  void fact(const std::string& name, FactValue value);
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

// Texts of logs.

/// Without the blanks in front.
[[nodiscard]] std::string_view without_leading_blanks(std::string_view text);

/// Without colours, which terminals are told by "ESC [ ... letter".
[[nodiscard]] std::string without_colours(std::string_view line);

/// The number at the beginning after blanks: "10,050", "2.5E+00"; `end` becomes the rest.
[[nodiscard]] std::optional<double> leading_number(std::string_view text,
                                                   std::string_view* end = nullptr);

/// The number after `key` where that stands at the beginning or after a blank.
[[nodiscard]] std::optional<double> number_after(std::string_view line, std::string_view key);

/// Unix nanoseconds of the first "2026-02-24 19:46:17,508" (or with a point, or no fraction), taken
/// as UTC: logs do not say their zone.
[[nodiscard]] std::optional<std::int64_t> time_in(std::string_view line);

/// Calls `use(line, number)` with each line, from 1, without its end.
template <class Use>
void for_each_line(std::string_view text, Use use) {
  std::int64_t number = 0;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    if (line.ends_with('\r')) line.remove_suffix(1);
    use(line, ++number);
    text.remove_prefix(std::min(end + 1, text.size()));
  }
}

// Readers. Each fails where the text holds no step (or trace, or snapshot) of its format.

[[nodiscard]] Result<ForeignRun> read_torchtitan_log(std::string_view text,
                                                     const std::string& where);
[[nodiscard]] Result<ForeignRun> read_megatron_log(std::string_view text, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_step_lines(std::string_view text, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_tensorboard(std::string_view bytes, const std::string& where);
[[nodiscard]] Result<ForeignRun> read_memory_snapshot(std::string_view bytes,
                                                      const std::string& where);
[[nodiscard]] Result<ForeignRun> read_profile(std::string_view bytes, const std::string& where);

/// What a file holds, by its first bytes and lines.
[[nodiscard]] Result<ImportFormat> detect_format(std::string_view bytes, const std::string& where);

}  // namespace mfsdp
