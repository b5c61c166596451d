#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "reports/record/result_json.hpp"
#include "reports/record/step_figures.hpp"
#include "reports/store/compress.hpp"
#include "reports/store/number_lists.hpp"
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
  template <class Value>
  Row& operator>>(std::optional<Value>& value) {
    if (is_null()) {
      ++index_;
      value.reset();
      return *this;
    }
    return *this >> value.emplace();
  }

  /// The next column; where it is NULL, the value stays and the figure is absent.
  template <class Value>
  Row& known(ResultFigure figure, Value& value, FigureSet& absent) {
    std::optional<Value> found;
    *this >> found;
    if (found)
      value = std::move(*found);
    else
      absent.add(figure);
    return *this;
  }

 private:
  [[nodiscard]] bool is_null() { return statement_.getColumn(index_).isNull(); }
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

/// The enumeration's value of that name. `what` is the name of the column.
template <class Enum>
Result<Enum> named(const std::string& name, std::string_view what, const std::string& file) {
  if (const auto value = parse<Enum>(name)) return *value;
  return fail(file, fmt::format("{}: expected {}, found \"{}\"", what, name_list<Enum>(), name));
}

/// Columns of a row that are parsed further, or that only one kind of run has.
struct Texts {
  std::string source;
  std::string model;
  std::string config;
  std::string facts;
  std::string status;
  std::string calibration;
  std::string cost_model_version;
  std::string peak_op;
  std::optional<ResumedFrom> resumed;
};

/// NaN is stored as NULL, as unknown figures are: a fraction of a peak that is not stated.
void read_rate(Row& row, ResultFigure figure, double& value, FigureSet& absent) {
  value = std::numeric_limits<double>::quiet_NaN();
  row.known(figure, value, absent);
}

void read_figures(Row& row, RunFigures& run) {
  const auto read = [&](ResultFigure figure, auto& value) { row.known(figure, value, run.absent); };
  MemorySummary& memory = run.memory;
  TimeSummary& time = run.time;
  read(ResultFigure::parameters, run.parameters);
  read(ResultFigure::gpus, run.cluster.gpus);
  read(ResultFigure::nodes, run.cluster.nodes);
  read(ResultFigure::gpus_per_node, run.cluster.gpus_per_node);
  read(ResultFigure::capacity_bytes, memory.capacity);
  read(ResultFigure::allocated_bytes, memory.allocated);
  read(ResultFigure::peak_bytes, memory.peak);
  read(ResultFigure::fits, memory.fits);
  read(ResultFigure::reserve_bytes, memory.reserve);
  read(ResultFigure::headroom_bytes, memory.headroom);
  read(ResultFigure::step_ns, time.step);
  read(ResultFigure::compute_ns, time.compute);
  read(ResultFigure::communication_ns, time.communication);
  read(ResultFigure::exposed_communication_ns, time.exposed_communication);
  read(ResultFigure::idle_ns, time.idle);
  read(ResultFigure::contention_ns, time.contention);
  read_rate(row, ResultFigure::overlap_fraction, time.overlap_fraction, run.absent);
  read(ResultFigure::median_step_ns, time.median_step);
  read_rate(row, ResultFigure::tokens_per_second_per_gpu, time.tokens_per_second_per_gpu,
            run.absent);
  read_rate(row, ResultFigure::tflops_per_gpu, time.tflops_per_gpu, run.absent);
  read_rate(row, ResultFigure::mfu, time.mfu, run.absent);
  read(ResultFigure::all_gather_bytes, run.traffic.all_gather);
  read(ResultFigure::reduce_scatter_bytes, run.traffic.reduce_scatter);
  read(ResultFigure::all_reduce_bytes, run.traffic.all_reduce);
}

/// False if there is no such run.
bool read_head(SQLite::Database& database, std::int64_t id, RunFigures& run, Texts& texts) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM run_rows WHERE id = ?", columns::kRuns));
  statement.bind(1, id);
  if (!statement.executeStep()) return false;
  std::optional<std::int64_t> resumed_step;
  std::optional<std::string> resumed_run_id;
  Row row(statement);
  row >> run.run_id >> run.name >> run.tool >> run.version >> run.commit >> run.created_unix_ns >>
      texts.source >> texts.status >> run.engine >> run.plan_hash >> run.model_name >>
      run.cluster.gpu >> run.cluster.network >> texts.calibration >> texts.cost_model_version >>
      texts.peak_op >> run.memory.runtime_source;
  read_figures(row, run);
  row >> resumed_step >> resumed_run_id;
  row.known(ResultFigure::model, texts.model, run.absent);
  row.known(ResultFigure::config, texts.config, run.absent);
  row >> texts.facts;
  if (texts.source == "measured") forget_unmeasured(run);  // earlier versions stored zeros
  if (resumed_step) texts.resumed = {.step = *resumed_step, .run_id = resumed_run_id.value_or("")};
  return true;
}

Result<void> read_plan(SQLite::Database& database, std::int64_t run, PlanSummary& plan,
                       FigureSet& absent, const std::string& file) {
  auto summary = select(database, run, columns::kPlanSummaries, "plan_summaries", "");
  if (!summary.executeStep()) {
    absent.add(ResultFigure::plan);
    return {};
  }
  std::string allocator;
  std::optional<double> model_flops;
  Row(summary) >> plan.units >> plan.groups >> plan.ops >> plan.events >> plan.waits >>
      plan.buffers >> plan.collectives >> plan.segments >> plan.max_live_full_weights >>
      plan.max_live_full_gradients >> allocator >> plan.padding >> model_flops;
  plan.model_flops = model_flops.value_or(0);
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

void read_cached(SQLite::Database& database, std::int64_t run, MemorySummary& memory) {
  auto cached = select(database, run, columns::kCachedMemory, "cached_memory", "");
  if (!cached.executeStep()) return;
  CachedMemory& read = memory.cached.emplace();
  Row(cached) >> read.reserved >> read.device >> read.retries >> read.certain >> read.fits_certain;
  auto errors = select(database, run, columns::kMemoryErrors, "memory_errors", "");
  if (!errors.executeStep()) return;
  MemoryErrors& known = read.errors.emplace();
  Row(errors) >> known.allocated >> known.reserved >> known.device >> known.source;
}

void read_host(SQLite::Database& database, std::int64_t run, TimeSummary& time) {
  auto host = select(database, run, columns::kHostTimes, "host_times", "");
  if (!host.executeStep()) return;
  HostTime& read = time.host.emplace();
  Row(host) >> read.issue >> read.bound;
}

Result<void> read_categories(SQLite::Database& database, std::int64_t run, MemorySummary& memory,
                             FigureSet& absent, const std::string& file) {
  auto categories = select(database, run, columns::kMemoryCategories, "memory_categories", "");
  bool found = false;
  while (categories.executeStep()) {
    std::string name;
    Bytes bytes;
    Row(categories) >> name >> bytes;
    MFSDP_LET(index, category_index(name, file));
    memory.categories.at(index) = bytes;
    found = true;
  }
  if (!found) absent.add(ResultFigure::categories);
  return {};
}

std::vector<InstanceCopy> read_copies(SQLite::Database& database, std::int64_t run) {
  std::vector<InstanceCopy> copies;
  auto rows = select(database, run, "n.text, instance, copy, shift_ns, omitted",
                     "op_copies LEFT JOIN names AS n ON n.id = segment", "segment, instance, copy");
  while (rows.executeStep()) {
    InstanceCopy& copy = copies.emplace_back();
    Row(rows) >> copy.segment >> copy.instance >> copy.copy >> copy.shift >> copy.omitted;
  }
  return copies;
}

/// Instances without times of their own, from the copies that represent them.
void read_omitted(const std::vector<InstanceCopy>& copies, RunFigures& run) {
  for (const InstanceCopy& copy : copies) {
    if (!copy.omitted) continue;
    std::vector<OmittedInstances>& all = run.omitted;
    const bool goes_on = !all.empty() && all.back().segment == copy.segment &&
                         all.back().first + all.back().count == copy.copy;
    if (goes_on) {
      ++all.back().count;
      continue;
    }
    Nanos begin;
    for (const OpTime& op : run.timeline)
      if (op.segment == copy.segment && op.instance == copy.instance) {
        begin = op.start;
        break;
      }
    all.push_back({.segment = copy.segment,
                   .first = copy.copy,
                   .count = 1,
                   .begin = begin + copy.shift,
                   .period = copy.shift});
  }
}

/// The texts that numbers of `names` stand for; an unknown number for none.
class NameTexts {
 public:
  explicit NameTexts(SQLite::Database& database)
      : find_(database, "SELECT text FROM names WHERE id = ?") {}

  const std::string& of(std::int64_t id) {
    const auto [place, is_new] = texts_.try_emplace(id);
    if (is_new) {
      find_.bind(1, id);
      if (find_.executeStep()) place->second = find_.getColumn(0).getString();
      find_.reset();
    }
    return place->second;
  }

 private:
  SQLite::Statement find_;
  std::unordered_map<std::int64_t, std::string> texts_;
};

/// Hands each list of a column of the run's timelines to `take`.
template <std::size_t count, class Take>
Result<void> read_lists(SQLite::Database& database, std::int64_t run, std::string_view column,
                        const std::string& file, Take take) {
  auto row = select(database, run, column, "timelines", "");
  if (!row.executeStep()) return {};
  const SQLite::Column text = row.getColumn(0);
  NumberLists lists({text.getText(), static_cast<std::size_t>(text.getBytes())});
  std::array<std::int64_t, count> numbers{};
  while (lists.next(numbers)) MFSDP_TRY(take(numbers));
  if (lists.is_whole()) return {};
  return fail(file, fmt::format("timelines.{}: expected lists of {} integers, found none at byte "
                                "{}",
                                column, count, lists.at()));
}

Result<void> read_timeline(SQLite::Database& database, std::int64_t id, RunFigures& run,
                           const std::string& file) {
  NameTexts names(database);
  MFSDP_TRY(read_lists<8>(database, id, "ops", file, [&](const auto& numbers) -> Result<void> {
    const auto [op, name, stream, kind, segment, instance, start, end] = numbers;
    run.timeline.push_back({.op = OpId(static_cast<std::size_t>(op)),
                            .name = names.of(name),
                            .stream = names.of(stream),
                            .kind = names.of(kind),
                            .segment = names.of(segment),
                            .instance = instance,
                            .start = Nanos(start),
                            .end = Nanos(end)});
    return {};
  }));
  const std::vector<InstanceCopy> copies = read_copies(database, id);
  read_omitted(copies, run);
  add_copies(run.timeline, copies);
  return {};
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

using NumberedPoints = std::map<std::int64_t, MemoryPoint>;

/// A point holds what the previous one did, except the categories that have a row.
Result<NumberedPoints> read_points(SQLite::Database& database, std::int64_t run,
                                   const std::string& file) {
  NameTexts names(database);
  NumberedPoints points;
  MFSDP_TRY(read_lists<4>(database, run, "memory", file, [&](const auto& numbers) -> Result<void> {
    const auto [number, at, category, bytes] = numbers;
    if (points.empty() || points.rbegin()->first != number)
      points.emplace_hint(points.end(), number,
                          points.empty() ? MemoryPoint{} : points.rbegin()->second);
    MFSDP_LET(index, category_index(names.of(category), file));
    MemoryPoint& point = points.rbegin()->second;
    point.at = Nanos(at);
    point.categories.at(index) = Bytes(bytes);
    return {};
  }));
  return points;
}

Result<void> read_memory(SQLite::Database& database, std::int64_t run,
                         std::vector<MemoryPoint>& points, const std::string& file) {
  MFSDP_LET(numbered, read_points(database, run, file));
  auto copies = select(database, run, columns::kMemoryCopies, "memory_copies", "point, copy");
  NumberedPoints copied;
  while (copies.executeStep()) {
    std::int64_t first = 0;
    std::int64_t count = 0;
    std::int64_t copy = 0;
    Nanos shift;
    Row(copies) >> first >> count >> copy >> shift;
    const auto end = numbered.lower_bound(first + count);
    for (auto at = numbered.lower_bound(first); at != end; ++at) {
      MemoryPoint point = at->second;
      point.at += shift;
      copied.emplace(at->first + copy * count, point);
    }
  }
  numbered.merge(copied);
  for (auto& [number, point] : numbered) points.push_back(point);
  return {};
}

void read_prediction(SQLite::Database& database, std::int64_t run, Predicted& predicted) {
  auto row = select(database, run, columns::kPredictions, "predictions", "");
  if (!row.executeStep()) return;  // of versions before 7
  RankReport ranks;
  TrainingEstimate training;
  std::optional<std::int64_t> rank_count;
  std::optional<std::int64_t> tokens;
  std::optional<std::string> variation;
  FigureSet unused;
  Row fields(row);
  const auto part = [&](auto& value) { fields.known(ResultFigure::plan, value, unused); };
  fields >> predicted.live_peak >> predicted.trust.trust_level >> predicted.trust.step_error >>
      predicted.trust.text >> rank_count;
  part(ranks.simulated);
  part(ranks.slowest);
  part(ranks.compute_mean);
  part(ranks.compute_most);
  part(ranks.waiting_mean);
  fields >> variation >> tokens;
  part(training.seconds);
  part(training.gpu_hours);
  fields >> training.cost;
  if (rank_count) {
    ranks.ranks = *rank_count;
    ranks.variation = variation.value_or("");
    predicted.ranks = std::move(ranks);
  }
  if (tokens) {
    training.tokens = *tokens;
    predicted.training = training;
  }
}

Result<Predicted> read_predicted(SQLite::Database& database, std::int64_t run,
                                 const LoadedParts& parts, Texts& texts, const std::string& file) {
  Predicted predicted;
  predicted.calibration = std::move(texts.calibration);
  predicted.cost_model_version = std::move(texts.cost_model_version);
  predicted.peak_op = std::move(texts.peak_op);
  read_prediction(database, run, predicted);
  auto routing = select(database, run, "routing", "routings", "");
  if (routing.executeStep()) {
    std::string text;
    Row(routing) >> text;
    MFSDP_LET(report, routing_from_json(text, fmt::format("{}: routing", file)));
    predicted.routing = std::move(report);
  }
  auto exposed = select(database, run, columns::kExposedUnits, "exposed_units", "position");
  while (exposed.executeStep()) {
    ExposedUnit& unit = predicted.exposed_units.emplace_back();
    Row(exposed) >> unit.unit >> unit.exposed;
  }
  if (parts.timeline) MFSDP_TRY(read_memory(database, run, predicted.memory_timeline, file));
  return predicted;
}

std::vector<EvaluationResult> read_evaluations(SQLite::Database& database, std::int64_t run) {
  std::vector<EvaluationResult> list;
  auto evaluations = select(database, run, columns::kEvaluations, "evaluations", "position");
  while (evaluations.executeStep()) {
    EvaluationResult& evaluation = list.emplace_back();
    Row(evaluations) >> evaluation.step >> evaluation.loss >> evaluation.tokens;
  }
  return list;
}

Measured read_measured(SQLite::Database& database, std::int64_t run, const LoadedParts& parts,
                       Texts& texts) {
  Measured measured;
  measured.resumed = std::move(texts.resumed);
  if (parts.steps) {
    measured.steps = read_steps(database, run);
    measured.evaluations = read_evaluations(database, run);
  }
  if (parts.launches) read_launches(database, run, measured.launches);
  return measured;
}

}  // namespace

std::vector<StepResult> read_steps(SQLite::Database& database, std::int64_t id) {
  std::vector<StepResult> list;
  auto steps = select(database, id, columns::kSteps, "steps", "position");
  while (steps.executeStep()) {
    StepResult& step = list.emplace_back();
    std::optional<Nanos> duration;
    Row(steps) >> step.step >> duration >> step.loss >> step.grad_norm >> step.tokens >>
        step.learning_rate >> step.skipped >> step.loss_scale;
    step.duration = duration.value_or(Nanos(0));
    step.timed = duration.has_value();
  }
  return list;
}

Result<RunResult> read_run(SQLite::Database& database, std::int64_t id, const LoadedParts& parts,
                           const std::string& file) {
  RunFigures result;
  Texts texts;
  if (!read_head(database, id, result, texts)) return fail(file, fmt::format("no run {}", id));
  const std::string where = fmt::format("{}: run {}", file, id);
  if (!result.absent.has(ResultFigure::config) && !result.absent.has(ResultFigure::model)) {
    MFSDP_LET(config, config_from_json(texts.model, texts.config, where));
    result.config = std::move(config);
  }
  MFSDP_LET(facts, facts_from_json(texts.facts, where + ": facts"));
  result.facts = std::move(facts);
  MFSDP_LET(status, named<RunStatus>(texts.status, "runs.status", where));
  result.status = status;
  MFSDP_TRY(read_plan(database, id, result.plan, result.absent, where));
  MFSDP_TRY(read_categories(database, id, result.memory, result.absent, where));
  read_cached(database, id, result.memory);
  read_host(database, id, result.time);
  if (parts.timeline) MFSDP_TRY(read_timeline(database, id, result, where));
  if (texts.source == "measured")
    return RunResult(std::move(result), read_measured(database, id, parts, texts));
  if (texts.source != "simulated")
    return fail(where, fmt::format("runs.source: expected simulated or measured, found \"{}\"",
                                   texts.source));
  MFSDP_LET(predicted, read_predicted(database, id, parts, texts, where));
  return RunResult(std::move(result), std::move(predicted));
}

}  // namespace mfsdp
