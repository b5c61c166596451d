#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <limits>
#include <optional>

#include "core/plan/result_json.hpp"
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

struct Texts {
  std::string model;
  std::string config;
  std::string status;
};

/// False if there is no such run.
bool read_head(SQLite::Database& database, std::int64_t id, RunResult& run, Texts& texts) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM runs WHERE id = ?", columns::kRuns));
  statement.bind(1, id);
  if (!statement.executeStep()) return false;
  MemorySummary& memory = run.memory;
  TimeSummary& time = run.time;
  std::optional<std::int64_t> resumed_step;
  std::string resumed_run_id;
  Row(statement) >> run.run_id >> run.name >> run.tool >> run.version >> run.created_unix_ns >>
      run.source >> run.plan_hash >> run.model_name >> run.parameters >> texts.model >>
      texts.config >> run.cluster.gpu >> run.cluster.gpus >> run.cluster.nodes >>
      run.cluster.gpus_per_node >> run.cluster.network >> run.engine >> run.calibration >>
      run.cost_model_version >> memory.capacity >> memory.allocated >> memory.peak >>
      memory.peak_op >> memory.fits >> memory.headroom >> memory.runtime_source >> time.step >>
      time.compute >> time.communication >> time.exposed_communication >> time.idle >>
      time.contention >> time.overlap_fraction >> time.tokens_per_second_per_gpu >>
      time.tflops_per_gpu >> time.mfu >> run.traffic.all_gather >> run.traffic.reduce_scatter >>
      run.traffic.all_reduce >> texts.status >> resumed_step >> resumed_run_id;
  if (resumed_step) run.resumed = {.step = *resumed_step, .run_id = resumed_run_id};
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

Result<void> read_summaries(SQLite::Database& database, std::int64_t run, RunResult& result,
                            const std::string& file) {
  auto categories = select(database, run, columns::kMemoryCategories, "memory_categories", "");
  while (categories.executeStep()) {
    std::string name;
    Bytes bytes;
    Row(categories) >> name >> bytes;
    MFSDP_LET(index, category_index(name, file));
    result.memory.categories.at(index) = bytes;
  }
  auto exposed = select(database, run, columns::kExposedUnits, "exposed_units", "position");
  while (exposed.executeStep()) {
    ExposedUnit& unit = result.exposed_units.emplace_back();
    Row(exposed) >> unit.unit >> unit.exposed;
  }
  auto steps = select(database, run, columns::kSteps, "steps", "position");
  while (steps.executeStep()) {
    StepResult& step = result.steps.emplace_back();
    Row(steps) >> step.step >> step.duration >> step.loss >> step.grad_norm >> step.tokens >>
        step.learning_rate >> step.skipped;
  }
  auto evaluations = select(database, run, columns::kEvaluations, "evaluations", "position");
  while (evaluations.executeStep()) {
    EvaluationResult& evaluation = result.evaluations.emplace_back();
    Row(evaluations) >> evaluation.step >> evaluation.loss >> evaluation.tokens;
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

}  // namespace

Result<RunResult> read_run(SQLite::Database& database, std::int64_t id, const std::string& file) {
  RunResult result;
  Texts texts;
  if (!read_head(database, id, result, texts)) return fail(file, fmt::format("no run {}", id));
  const std::string where = fmt::format("{}: run {}", file, id);
  MFSDP_LET(config, config_from_json(texts.model, texts.config, where));
  result.config = std::move(config);
  MFSDP_LET(status, named<RunStatus>(texts.status, "runs.status", where));
  result.status = status;
  MFSDP_TRY(read_plan(database, id, result.plan, where));
  MFSDP_TRY(read_summaries(database, id, result, where));
  read_timeline(database, id, result.timeline);
  MFSDP_TRY(read_memory(database, id, result.memory_timeline, where));
  read_launches(database, id, result.launches);
  return result;
}

}  // namespace mfsdp
