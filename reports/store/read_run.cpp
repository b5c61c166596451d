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

/// Takes the columns of a row one after the other: structs by their fields. NULL leaves a value as
/// it is.
class Row : public RowIo<Row> {
 public:
  explicit Row(SQLite::Statement& statement, FigureSet* absent = nullptr)
      : statement_(statement), absent_(absent) {}

  template <class T, class... Range>
  void operator()(std::string_view column, T& value, Range... /*range*/) {
    if constexpr (std::is_enum_v<T>)
      take_name(column, value);
    else if constexpr (!kHasTable<T>)
      take(value);
  }
  /// Where it is NULL, the figure is absent, and a number is none.
  template <class T, class... Range>
  void figure(ResultFigure figure, T& value, Range... /*range*/) {
    if (is_null()) absent_->add(figure);
    if constexpr (std::is_same_v<T, double>)
      take_real(value);
    else
      take(value);
  }
  void real(std::string_view /*column*/, double& value) { take_real(value); }
  void known(std::string_view /*column*/, Nanos& value, bool& is_known) {
    is_known = !is_null();
    take(value);
  }
  void positive(std::string_view /*column*/, double& value) { take(value); }

  void take_all(auto&... values) { (take(values), ...); }
  template <class T>
  void take(T& value) {
    if constexpr (Described<T>)
      result_fields(*this, value);
    else if (const SQLite::Column column = statement_.getColumn(index_++); !column.isNull())
      read(column, value);
  }
  /// None if the first column is NULL.
  template <class T>
  void take(std::optional<T>& value) {
    const bool is_there = !is_null();
    T found{};
    take(found);
    value = is_there ? std::optional(std::move(found)) : std::nullopt;
  }

  /// An error if a column had a name that is not known; `where` is the origin of the row.
  [[nodiscard]] Result<void> outcome(const std::string& where, std::string_view table) const {
    if (wrong_name_.empty()) return {};
    return fail(where, fmt::format("{}.{}", table, wrong_name_));
  }

 private:
  static void read(const SQLite::Column& column, std::int64_t& value) { value = column.getInt64(); }
  static void read(const SQLite::Column& column, bool& value) { value = column.getInt() != 0; }
  static void read(const SQLite::Column& column, double& value) { value = column.getDouble(); }
  static void read(const SQLite::Column& column, std::string& value) { value = column.getString(); }
  static void read(const SQLite::Column& column, OpId& value) { value = OpId(column.getUInt()); }
  static void read(const SQLite::Column& column, StreamId& value) {
    value = StreamId(column.getUInt());
  }
  template <class Dimension>
  static void read(const SQLite::Column& column, Quantity<Dimension>& value) {
    value.value = column.getInt64();
  }
  void take_real(double& value) {
    value = std::numeric_limits<double>::quiet_NaN();
    take(value);
  }
  template <class Enum>
  void take_name(std::string_view column, Enum& value) {
    std::string name;
    take(name);
    if (const auto known = parse<Enum>(name))
      value = *known;
    else
      wrong_name_ = fmt::format("{}: expected {}, found \"{}\"", column, name_list<Enum>(), name);
  }
  [[nodiscard]] bool is_null() { return statement_.getColumn(index_).isNull(); }

  SQLite::Statement& statement_;
  FigureSet* absent_;
  int index_ = 0;
  std::string wrong_name_;
};

SQLite::Statement select(SQLite::Database& database, std::int64_t run, std::string_view columns,
                         std::string_view table, std::string_view order) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM {} WHERE run = ?{}{}", columns, table,
                                          order.empty() ? "" : " ORDER BY ", order));
  statement.bind(1, run);
  return statement;
}

/// One struct, in the table's only row of the run; none where there is no such row.
template <class T>
std::optional<T> read_part(SQLite::Database& database, std::int64_t run, std::string_view table,
                           std::string_view columns) {
  auto row = select(database, run, columns, table, "");
  std::optional<T> part;
  if (row.executeStep()) Row(row).take(part.emplace());
  return part;
}

/// The structs in the table's rows of the run, in order.
template <class T>
std::vector<T> read_list(SQLite::Database& database, std::int64_t run, std::string_view table) {
  std::vector<T> list;
  auto rows = select(database, run, columns_of<T>(), table, "position");
  while (rows.executeStep()) Row(rows).take(list.emplace_back());
  return list;
}

/// The head and the figures of one run; none if there is no such run.
Result<std::optional<RunRow>> read_row(SQLite::Database& database, std::int64_t id, RunFigures& run,
                                       const std::string& where) {
  SQLite::Statement statement(database,
                              fmt::format("SELECT {} FROM run_rows WHERE id = ?", run_columns()));
  statement.bind(1, id);
  if (!statement.executeStep()) return std::nullopt;
  RunRow row;
  Row columns(statement, &run.absent);
  run_fields(columns, run, row);
  if (!row.model) run.absent.add(ResultFigure::model);
  if (!row.config) run.absent.add(ResultFigure::config);
  MFSDP_TRY(columns.outcome(where, "runs"));
  return row;
}

Result<void> read_plan(SQLite::Database& database, std::int64_t run, PlanSummary& plan,
                       FigureSet& absent, const std::string& file) {
  auto summary = select(database, run, columns_of<PlanSummary>(), "plan_summaries", "");
  if (!summary.executeStep()) {
    absent.add(ResultFigure::plan);
    return {};
  }
  Row row(summary);
  row.take(plan);
  plan.pools = read_list<PoolSummary>(database, run, "pools");
  return row.outcome(file, "plan_summaries");
}

void read_cached(SQLite::Database& database, std::int64_t run, MemorySummary& memory) {
  memory.cached =
      read_part<CachedMemory>(database, run, "cached_memory", columns_of<CachedMemory>());
  if (memory.cached)
    memory.cached->errors =
        read_part<MemoryErrors>(database, run, "memory_errors", columns::kMemoryErrors);
}

Result<std::size_t> category_index(const std::string& name, const std::string& file) {
  if (const auto category = parse<Category>(name)) return static_cast<std::size_t>(*category);
  return fail(
      file, fmt::format("memory category: expected {}, found \"{}\"", name_list<Category>(), name));
}

Result<void> read_categories(SQLite::Database& database, std::int64_t run, MemorySummary& memory,
                             FigureSet& absent, const std::string& file) {
  auto categories = select(database, run, columns::kMemoryCategories, "memory_categories", "");
  bool found = false;
  while (categories.executeStep()) {
    std::string name;
    Bytes bytes;
    Row(categories).take_all(name, bytes);
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
    Row(rows).take_all(copy.segment, copy.instance, copy.copy, copy.shift, copy.omitted);
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
    Row(rows).take_all(launch.rank, launch.op, launch.step, launch.stream, launch.drains,
                       launch.issued, launch.begin, launch.end);
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
    Row(copies).take_all(first, count, copy, shift);
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

Result<Predicted> read_predicted(SQLite::Database& database, std::int64_t run,
                                 const LoadedParts& parts, Predicted predicted,
                                 const std::string& file) {
  auto row = select(database, run, columns::kPredictions, "predictions", "");
  if (row.executeStep())  // versions before 7 have none
    Row(row).take_all(predicted.live_peak, predicted.trust, predicted.ranks, predicted.training);
  auto routing = select(database, run, "routing", "routings", "");
  if (routing.executeStep()) {
    std::string text;
    Row(routing).take(text);
    MFSDP_SET(predicted.routing, routing_from_json(text, fmt::format("{}: routing", file)));
  }
  predicted.exposed_units = read_list<ExposedUnit>(database, run, "exposed_units");
  if (parts.timeline) MFSDP_TRY(read_memory(database, run, predicted.memory_timeline, file));
  return predicted;
}

Measured read_measured(SQLite::Database& database, std::int64_t run, const LoadedParts& parts,
                       const RunRow& row) {
  Measured measured;
  if (row.resumed_step)
    measured.resumed = {.step = *row.resumed_step, .run_id = row.resumed_run_id.value_or("")};
  if (parts.steps) {
    measured.steps = read_list<StepResult>(database, run, "steps");
    measured.evaluations = read_list<EvaluationResult>(database, run, "evaluations");
  }
  if (parts.launches) read_launches(database, run, measured.launches);
  return measured;
}

}  // namespace

Result<RunResult> read_run(SQLite::Database& database, std::int64_t id, const LoadedParts& parts,
                           const std::string& file) {
  RunFigures result;
  const std::string where = fmt::format("{}: run {}", file, id);
  MFSDP_LET(row, read_row(database, id, result, where));
  if (!row) return fail(file, fmt::format("no run {}", id));
  if (row->source == "measured") forget_unmeasured(result);  // earlier versions stored zeros
  if (row->model && row->config)
    MFSDP_SET(result.config, config_from_json(*row->model, *row->config, where));
  MFSDP_SET(result.facts, facts_from_json(row->facts, where + ": facts"));
  MFSDP_TRY(read_plan(database, id, result.plan, result.absent, where));
  MFSDP_TRY(read_categories(database, id, result.memory, result.absent, where));
  read_cached(database, id, result.memory);
  result.time.host = read_part<HostTime>(database, id, "host_times", columns_of<HostTime>());
  if (parts.timeline) MFSDP_TRY(read_timeline(database, id, result, where));
  auto classes = read_list<ClassReport>(database, id, "rank_classes");
  for (const ClassReport& one : classes)
    if (one.busiest) result.traffic.sends = one.sends;
  if (row->source == "measured") {
    Measured measured = read_measured(database, id, parts, *row);
    measured.classes = std::move(classes);
    return RunResult(std::move(result), std::move(measured));
  }
  if (row->source != "simulated")
    return fail(where, fmt::format("runs.source: expected simulated or measured, found \"{}\"",
                                   row->source));
  MFSDP_LET(predicted, read_predicted(database, id, parts, std::move(row->predicted), where));
  predicted.classes = std::move(classes);
  return RunResult(std::move(result), std::move(predicted));
}

}  // namespace mfsdp
