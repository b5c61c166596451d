#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <limits>
#include <optional>
#include <utility>

#include "reports/record/result_json.hpp"
#include "reports/store/run_rows.hpp"

namespace mfsdp {

namespace {

/// Takes the columns of a row one after the other.
class Row {
 public:
  explicit Row(SQLite::Statement& statement) : statement_(statement) {}

  Row& operator>>(std::int64_t& value) { return value = next().getInt64(), *this; }
  Row& operator>>(bool& value) { return value = next().getInt() != 0, *this; }
  Row& operator>>(std::string& value) { return value = next().getString(), *this; }
  Row& operator>>(Bytes& value) { return *this >> value.value; }
  Row& operator>>(Nanos& value) { return *this >> value.value; }
  Row& operator>>(OpId& value) { return value = OpId(next().getUInt()), *this; }
  Row& operator>>(double& value) {
    const SQLite::Column column = next();
    value = column.isNull() ? std::numeric_limits<double>::quiet_NaN() : column.getDouble();
    return *this;
  }
  Row& operator>>(std::optional<std::int64_t>& value) {
    const SQLite::Column column = next();
    if (!column.isNull()) value = column.getInt64();
    return *this;
  }
  Row& operator>>(std::optional<double>& value) {
    const SQLite::Column column = next();
    if (!column.isNull()) value = column.getDouble();
    return *this;
  }

 private:
  SQLite::Column next() { return statement_.getColumn(index_++); }

  SQLite::Statement& statement_;
  int index_ = 0;
};

SQLite::Statement select(SQLite::Database& database, std::int64_t run, std::string_view columns,
                         std::string_view table, std::string_view order) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM {} WHERE run = ?{}{}", columns, table,
                                          order.empty() ? "" : " ORDER BY ", order));
  statement.bind(1, run);
  return statement;
}

/// The value of that name. `what` is the column that it stands in.
template <class Enum>
Result<Enum> named(const std::string& name, std::string_view what, const std::string& file) {
  if (const auto value = parse<Enum>(name)) return *value;
  return fail(file, fmt::format("{}: expected {}, found \"{}\"", what, name_list<Enum>(), name));
}

/// What of a row is read further, or belongs to runs of one kind.
struct Texts {
  std::string source;
  std::string model;
  std::string config;
  std::string status;
  std::string calibration;
  std::string cost_model_version;
  std::string peak_op;
  std::optional<ResumedFrom> resumed;
};

/// False if there is no such run.
bool read_head(SQLite::Database& database, std::int64_t id, RunFigures& run, Texts& texts) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM runs WHERE id = ?", columns::kRuns));
  statement.bind(1, id);
  if (!statement.executeStep()) return false;
  MemorySummary& memory = run.memory;
  TimeSummary& time = run.time;
  std::optional<std::int64_t> resumed_step;
  std::string resumed_run_id;
  Row(statement) >> run.run_id >> run.name >> run.tool >> run.version >> run.created_unix_ns >>
      texts.source >> run.plan_hash >> run.model_name >> run.parameters >> texts.model >>
      texts.config >> run.cluster.gpu >> run.cluster.gpus >> run.cluster.nodes >>
      run.cluster.gpus_per_node >> run.cluster.network >> run.engine >> texts.calibration >>
      texts.cost_model_version >> memory.capacity >> memory.allocated >> memory.peak >>
      texts.peak_op >> memory.fits >> memory.headroom >> memory.runtime_source >> time.step >>
      time.compute >> time.communication >> time.exposed_communication >> time.idle >>
      time.contention >> time.overlap_fraction >> time.tokens_per_second_per_gpu >>
      time.tflops_per_gpu >> time.mfu >> run.traffic.all_gather >> run.traffic.reduce_scatter >>
      run.traffic.all_reduce >> texts.status >> resumed_step >> resumed_run_id;
  if (resumed_step) texts.resumed = {.step = *resumed_step, .run_id = resumed_run_id};
  return true;
}

Result<void> read_plan(SQLite::Database& database, std::int64_t run, PlanSummary& plan,
                       const std::string& file) {
  auto summary = select(database, run, columns::kPlanSummaries, "plan_summaries", "");
  if (!summary.executeStep()) return fail(file, "run has no plan summary");
  std::string allocator;
  Row(summary) >> plan.units >> plan.groups >> plan.ops >> plan.events >> plan.waits >>
      plan.buffers >> plan.collectives >> plan.segments >> plan.max_live_full_weights >>
      plan.max_live_full_gradients >> allocator >> plan.padding;
  MFSDP_LET(policy, named<AllocatorPolicy>(allocator, "plan_summaries.allocator", file));
  plan.allocator = policy;
  auto pools = select(database, run, columns::kPools, "pools", "position");
  while (pools.executeStep()) {
    PoolSummary& pool = plan.pools.emplace_back();
    Row(pools) >> pool.name >> pool.height >> pool.lower_bound;
  }
  return {};
}

Result<std::size_t> category_index(const std::string& name, const std::string& file) {
  MFSDP_LET(category, named<Category>(name, "memory category", file));
  return static_cast<std::size_t>(category);
}

Result<void> read_categories(SQLite::Database& database, std::int64_t run, MemorySummary& memory,
                             const std::string& file) {
  auto categories = select(database, run, columns::kMemoryCategories, "memory_categories", "");
  while (categories.executeStep()) {
    std::string name;
    Bytes bytes;
    Row(categories) >> name >> bytes;
    MFSDP_LET(index, category_index(name, file));
    memory.categories.at(index) = bytes;
  }
  return {};
}

void read_timeline(SQLite::Database& database, std::int64_t run, std::vector<OpTime>& timeline) {
  auto ops = select(database, run, columns::kOpTimes, "op_times", "position");
  while (ops.executeStep()) {
    OpTime& op = timeline.emplace_back();
    Row(ops) >> op.op >> op.name >> op.stream >> op.kind >> op.segment >> op.instance >> op.start >>
        op.end;
  }
}

void read_launches(SQLite::Database& database, std::int64_t run, std::vector<OpLaunch>& launches) {
  auto rows = select(database, run, columns::kLaunches, "launches", "rank, position");
  while (rows.executeStep()) {
    OpLaunch& launch = launches.emplace_back();
    std::optional<std::int64_t> stream;
    Row(rows) >> launch.rank >> launch.op >> launch.step >> stream >> launch.drains >>
        launch.issued >> launch.begin >> launch.end;
    if (stream) launch.stream = StreamId(static_cast<std::size_t>(*stream));
  }
}

/// A point holds what the previous one did, except the categories that have a row.
Result<void> read_memory(SQLite::Database& database, std::int64_t run,
                         std::vector<MemoryPoint>& points, const std::string& file) {
  auto changes = select(database, run, "point, at_ns, category, bytes", "memory_timeline", "point");
  std::optional<std::int64_t> current;
  while (changes.executeStep()) {
    std::int64_t number = 0;
    Nanos at;
    std::string category;
    Bytes bytes;
    Row(changes) >> number >> at >> category >> bytes;
    if (current != number) points.push_back(points.empty() ? MemoryPoint{} : points.back());
    current = number;
    MFSDP_LET(index, category_index(category, file));
    points.back().at = at;
    points.back().categories.at(index) = bytes;
  }
  return {};
}

Result<Predicted> read_predicted(SQLite::Database& database, std::int64_t run, Texts& texts,
                                 const std::string& file) {
  Predicted predicted;
  predicted.calibration = std::move(texts.calibration);
  predicted.cost_model_version = std::move(texts.cost_model_version);
  predicted.peak_op = std::move(texts.peak_op);
  auto exposed = select(database, run, columns::kExposedUnits, "exposed_units", "position");
  while (exposed.executeStep()) {
    ExposedUnit& unit = predicted.exposed_units.emplace_back();
    Row(exposed) >> unit.unit >> unit.exposed;
  }
  MFSDP_TRY(read_memory(database, run, predicted.memory_timeline, file));
  return predicted;
}

Measured read_measured(SQLite::Database& database, std::int64_t run, Texts& texts) {
  Measured measured;
  measured.resumed = std::move(texts.resumed);
  auto steps = select(database, run, columns::kSteps, "steps", "position");
  while (steps.executeStep()) {
    StepResult& step = measured.steps.emplace_back();
    Row(steps) >> step.step >> step.duration >> step.loss >> step.grad_norm >> step.tokens >>
        step.learning_rate >> step.skipped;
  }
  auto evaluations = select(database, run, columns::kEvaluations, "evaluations", "position");
  while (evaluations.executeStep()) {
    EvaluationResult& evaluation = measured.evaluations.emplace_back();
    Row(evaluations) >> evaluation.step >> evaluation.loss >> evaluation.tokens;
  }
  read_launches(database, run, measured.launches);
  return measured;
}

}  // namespace

Result<RunResult> read_run(SQLite::Database& database, std::int64_t id, const std::string& file) {
  RunFigures result;
  Texts texts;
  if (!read_head(database, id, result, texts)) return fail(file, fmt::format("no run {}", id));
  const std::string where = fmt::format("{}: run {}", file, id);
  MFSDP_LET(config, config_from_json(texts.model, texts.config, where));
  result.config = std::move(config);
  MFSDP_LET(status, named<RunStatus>(texts.status, "runs.status", where));
  result.status = status;
  MFSDP_TRY(read_plan(database, id, result.plan, where));
  MFSDP_TRY(read_categories(database, id, result.memory, where));
  read_timeline(database, id, result.timeline);
  if (texts.source == "measured")
    return RunResult(std::move(result), read_measured(database, id, texts));
  if (texts.source != "simulated")
    return fail(where, fmt::format("runs.source: expected simulated or measured, found \"{}\"",
                                   texts.source));
  MFSDP_LET(predicted, read_predicted(database, id, texts, where));
  return RunResult(std::move(result), std::move(predicted));
}

}  // namespace mfsdp
