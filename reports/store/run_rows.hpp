// A run as rows: the columns of each table in the order in which they are written and read.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name is SQLiteCpp's
namespace SQLite {
class Database;
}

namespace mfsdp {

namespace columns {

inline constexpr std::string_view kRuns =
    "run_id, name, tool, version, created_unix_ns, source, plan_hash, model_name, parameters, "
    "model, config, gpu, gpus, nodes, gpus_per_node, network, engine, calibration, "
    "cost_model_version, capacity_bytes, allocated_bytes, peak_bytes, peak_op, fits, "
    "headroom_bytes, runtime_source, step_ns, compute_ns, communication_ns, "
    "exposed_communication_ns, idle_ns, contention_ns, overlap_fraction, "
    "tokens_per_second_per_gpu, tflops_per_gpu, mfu, all_gather_bytes, reduce_scatter_bytes, "
    "all_reduce_bytes, status, resumed_step, resumed_run_id";
inline constexpr std::string_view kPlanSummaries =
    "units, groups, ops, events, waits, buffers, collectives, segments, max_live_full_weights, "
    "max_live_full_gradients, allocator, padding_bytes";
inline constexpr std::string_view kPools = "name, height_bytes, lower_bound_bytes";
inline constexpr std::string_view kMemoryCategories = "category, bytes";
inline constexpr std::string_view kExposedUnits = "unit, exposed_ns";
inline constexpr std::string_view kSteps =
    "step, step_ns, loss, grad_norm, tokens, learning_rate, skipped";
inline constexpr std::string_view kEvaluations = "step, loss, tokens";
inline constexpr std::string_view kOpTimes =
    "op, name, stream, kind, segment, instance, start_ns, end_ns";
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

  /// Adds rows behind those that the run has.
  void append(std::int64_t run, const RunProgress& progress);

  /// Writes the run anew into its row, but for its steps and evaluations, which stay. False if
  /// there is no such row.
  [[nodiscard]] bool rewrite(std::int64_t row, const RunResult& run);

 private:
  struct Statements;
  std::unique_ptr<Statements> statements_;
};

/// Reads the run of that row. `file` names the store in errors.
[[nodiscard]] Result<RunResult> read_run(SQLite::Database& database, std::int64_t id,
                                         const std::string& file);

}  // namespace mfsdp
