// A run as rows: the columns of each table in the order in which they are written and read.
// Internal to this folder.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "reports/record/result.hpp"
#include "reports/store/store.hpp"

// NOLINTNEXTLINE(readability-identifier-naming): the name is SQLiteCpp's
namespace SQLite {
class Database;
}

namespace mfsdp {

namespace columns {

/// Columns of the table run_rows; the view runs has them too.
inline constexpr std::string_view kRuns =
    "run_id, name, tool, version, git_commit, created_unix_ns, source, status, engine, plan_hash, "
    "model_name, gpu, network, calibration, cost_model_version, peak_op, runtime_source, "
    "parameters, gpus, nodes, gpus_per_node, capacity_bytes, allocated_bytes, peak_bytes, fits, "
    "reserve_bytes, headroom_bytes, step_ns, compute_ns, communication_ns, "
    "exposed_communication_ns, idle_ns, contention_ns, overlap_fraction, median_step_ns, "
    "tokens_per_second_per_gpu, tflops_per_gpu, mfu, all_gather_bytes, reduce_scatter_bytes, "
    "all_reduce_bytes, resumed_step, resumed_run_id, model, config, facts";
inline constexpr std::string_view kPlanSummaries =
    "units, groups, ops, events, waits, buffers, collectives, segments, max_live_full_weights, "
    "max_live_full_gradients, allocator, padding_bytes, model_flops";
inline constexpr std::string_view kPredictions =
    "live_peak_bytes, trust_tier, trust_step_error, trust_text, ranks, simulated_ranks, "
    "slowest_rank, compute_mean_ns, compute_most_ns, waiting_mean_ns, variation, "
    "training_tokens, training_seconds, training_gpu_hours, training_cost";
inline constexpr std::string_view kPools = "name, height_bytes, lower_bound_bytes";
inline constexpr std::string_view kMemoryCategories = "category, bytes";
inline constexpr std::string_view kCachedMemory =
    "reserved_bytes, device_bytes, alloc_retries, verdict_certain, fits_certain";
inline constexpr std::string_view kMemoryErrors =
    "allocated_error, reserved_error, device_error, error_source";
inline constexpr std::string_view kHostTimes = "host_issue_ns, host_bound_ns";
inline constexpr std::string_view kExposedUnits = "unit, exposed_ns";
inline constexpr std::string_view kSteps =
    "step, step_ns, loss, grad_norm, tokens, learning_rate, skipped, loss_scale";
inline constexpr std::string_view kEvaluations = "step, loss, tokens";
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

/// The steps of that row's run, in order.
[[nodiscard]] std::vector<StepResult> read_steps(SQLite::Database& database, std::int64_t id);

}  // namespace mfsdp
