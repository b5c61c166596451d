// A run as rows: the columns of each table in the order in which they are written and read.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result_fields.hpp"
#include "reports/store/database.hpp"

namespace mfsdp {

/// A field of this type is no column: its struct or list has a table of its own.
template <class T>
inline constexpr bool kHasTable = Described<T>;
template <class T>
inline constexpr bool kHasTable<std::vector<T>> = Described<T>;
template <class T>
inline constexpr bool kHasTable<std::optional<T>> = Described<T>;

/// The part of the Io of result_fields.hpp that is the same for all columns of a row.
template <class Self>
class RowIo {
 public:
  static constexpr bool kIsJson = false;

  void sparse(std::string_view column, auto& value, auto... /*range*/) {
    static_cast<Self&>(*this)(column, value);
  }
  void derived(std::string_view /*column*/, auto /*value*/) {}
  void object(ResultFigure /*figure*/, auto /*part*/) {}
  void part(std::string_view /*first*/, auto& /*value*/) {}
  [[nodiscard]] static bool includes(bool /*condition*/) { return true; }
  [[nodiscard]] static bool lacks(std::string_view /*column*/) { return false; }

 private:
  friend Self;
  RowIo() = default;
};

/// The names of a row's columns.
class Columns : public RowIo<Columns> {
 public:
  template <class T, class... Range>
  void operator()(std::string_view column, const T& /*value*/, Range... /*range*/) {
    if (kHasTable<T>) return;
    if (!names_.empty()) names_ += ", ";
    names_ += column == "commit" ? "git_commit" : column;  // a keyword of SQL
  }
  void figure(ResultFigure figure, const auto& value, auto... /*range*/) {
    (*this)(to_string(figure), value);
  }
  void real(std::string_view column, double value) { (*this)(column, value); }
  void known(std::string_view column, Nanos value, bool /*is_known*/) { (*this)(column, value); }
  void positive(std::string_view column, double value) { (*this)(column, value); }

  [[nodiscard]] const std::string& names() const { return names_; }

 private:
  std::string names_;
};

/// "units, groups, ops".
template <class T>
[[nodiscard]] std::string columns_of() {
  Columns columns;
  const T value{};
  result_fields(columns, value);
  return columns.names();
}

/// The columns of a row of run_rows beside the fields of RunFigures.
struct RunRow {
  std::string source;
  Predicted predicted;  ///< calibration, cost_model_version and peak_op; empty if it was measured
  std::optional<std::int64_t> resumed_step;
  std::optional<std::string> resumed_run_id;
  std::optional<std::string> model;   ///< JSON
  std::optional<std::string> config;  ///< JSON
  std::string facts;                  ///< JSON
};

void run_fields(auto& io, Is<RunFigures> auto& run, Is<RunRow> auto& row) {
  head_fields(io, run);
  io("source", row.source);
  io("status", run.status);
  io("engine", run.engine);
  io("model_name", run.model_name);
  io("calibration", row.predicted.calibration);
  io("cost_model_version", row.predicted.cost_model_version);
  io.figure(ResultFigure::parameters, run.parameters);
  result_fields(io, run.cluster);
  memory_fields(io, run.memory, row.predicted);
  time_fields(io, run.time, row.predicted);
  result_fields(io, run.traffic);
  io("resumed_step", row.resumed_step);
  io("resumed_run_id", row.resumed_run_id);
  io("model", row.model);
  io("config", row.config);
  io("facts", row.facts);
}

[[nodiscard]] inline std::string run_columns() {
  Columns columns;
  const RunFigures run{};
  const RunRow row{};
  run_fields(columns, run, row);
  return columns.names();
}

/// Columns with other names than the fields, or of no struct.
namespace columns {

inline constexpr std::string_view kPredictions =
    "live_peak_bytes, trust_tier, trust_step_error, trust_text, ranks, simulated_ranks, "
    "slowest_rank, compute_mean_ns, compute_most_ns, waiting_mean_ns, variation, "
    "training_tokens, training_seconds, training_gpu_hours, training_cost";
inline constexpr std::string_view kMemoryCategories = "category, bytes";
inline constexpr std::string_view kMemoryErrors =
    "allocated_error, reserved_error, device_error, error_source";
inline constexpr std::string_view kOpCopies = "segment, instance, copy, shift_ns, omitted";
inline constexpr std::string_view kMemoryCopies = "point, points, copy, shift_ns";
inline constexpr std::string_view kLaunches =
    "rank, op, step, stream, drains, issued_ns, begin_ns, end_ns";

}  // namespace columns

/// Writes runs, with statements and names that serve all of them. Exceptions are SQLite's. After
/// one, or where a transaction was not committed, the writer may know names that are not stored:
/// make a new one.
class RunWriter {
 public:
  /// `database` must outlive the writer.
  explicit RunWriter(SQLite::Database& database);
  RunWriter(const RunWriter&) = delete;
  RunWriter& operator=(const RunWriter&) = delete;
  ~RunWriter();

  /// Writes all rows of the run inside the caller's transaction and returns its row in `runs`.
  [[nodiscard]] std::int64_t write(const RunResult& run);

  /// Adds rows after those that the run has. False if it is not in that row.
  [[nodiscard]] bool append(std::int64_t row, const std::string& run_id,
                            const RunProgress& progress);

  /// Writes the run anew into its row, but for its steps and evaluations, which stay. False if it
  /// is not there.
  [[nodiscard]] bool rewrite(std::int64_t row, const RunResult& run);

 private:
  [[nodiscard]] bool has(std::int64_t row, const std::string& run_id) const;

  struct Statements;
  std::unique_ptr<Statements> statements_;
};

/// Reads the run of that row. `file` names the store in errors.
[[nodiscard]] Result<RunResult> read_run(SQLite::Database& database, std::int64_t id,
                                         const LoadedParts& parts, const std::string& file);

}  // namespace mfsdp
