#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

#include "reports/record/result_json.hpp"
#include "reports/store/compress.hpp"
#include "reports/store/run_rows.hpp"

namespace mfsdp {
namespace {

/// As many question marks as there are columns.
std::string marks_for(std::string_view columns) {
  std::string marks = "?";
  for (auto commas = std::ranges::count(columns, ','); commas > 0; --commas) marks += ", ?";
  return marks;
}

/// Binds values to the marks of a statement, in order: structs by their fields. Unknown figures are
/// NULL.
class Binder : public RowIo<Binder> {
 public:
  Binder(SQLite::Statement& statement, const FigureSet& absent)
      : statement_(statement), absent_(absent) {}

  template <class T, class... Range>
  void operator()(std::string_view /*column*/, const T& value, Range... /*range*/) {
    if constexpr (!kHasTable<T>) put(value);
  }
  void figure(ResultFigure figure, const auto& value, auto... /*range*/) {
    if (absent_.has(figure))
      put_null();
    else
      put(value);
  }
  void real(std::string_view /*column*/, double value) { put(value); }
  void known(std::string_view /*column*/, Nanos value, bool is_known) {
    if (is_known)
      put(value);
    else
      put_null();
  }
  void positive(std::string_view /*column*/, double value) {
    put(value > 0 ? std::optional(value) : std::nullopt);
  }

  // The text outlives exec(), so SQLite need not copy it.
  void put(const std::string& value) { statement_.bindNoCopy(++index_, value); }
  void put(std::int64_t value) { statement_.bind(++index_, value); }
  void put(bool value) { statement_.bind(++index_, value ? 1 : 0); }
  void put(double value) { statement_.bind(++index_, value); }
  template <class Dimension>
  void put(Quantity<Dimension> value) {
    put(value.value);
  }
  template <class Enum>
    requires std::is_enum_v<Enum>
  void put(Enum value) {
    statement_.bind(++index_, std::string(to_string(value)));
  }
  template <class T>
    requires Described<T>
  void put(const T& value) {
    result_fields(*this, value);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    if (value)
      put(*value);
    else if constexpr (Described<T>)
      put_nulls(std::ranges::count(columns_of<T>(), ',') + 1);
    else
      put_null();
  }

 private:
  void put_null() { statement_.bind(++index_); }
  void put_nulls(std::ptrdiff_t count) {
    for (; count > 0; --count) put_null();
  }

  SQLite::Statement& statement_;
  const FigureSet& absent_;
  int index_ = 0;
};

/// A prepared statement whose values are always bound, never part of the text.
class Write {
 public:
  Write(SQLite::Database& database, const std::string& sql) : statement_(database, sql) {}

  void operator()(const auto&... values) {
    write(FigureSet(), [&](Binder& bind) { (bind.put(values), ...); });
  }

  /// Writes the values that bind(Binder&) binds.
  void write(const FigureSet& absent, auto bind) {
    Binder binder(statement_, absent);
    bind(binder);
    statement_.exec();
    statement_.reset();
  }

 private:
  SQLite::Statement statement_;
};

struct Insert : Write {
  Insert(SQLite::Database& database, std::string_view table, std::string_view columns)
      : Write(database,
              fmt::format("INSERT INTO {} ({}) VALUES ({})", table, columns, marks_for(columns))) {}
};

/// Numbers for texts that repeat, shared by all runs of the store.
class NameTable {
 public:
  explicit NameTable(SQLite::Database& database)
      : database_(database),
        find_(database, "SELECT id FROM names WHERE text = ?"),
        insert_(database, "names", "text") {}

  std::int64_t id_of(const std::string& text) {
    if (const auto known = ids_.find(text); known != ids_.end()) return known->second;
    return ids_.emplace(text, stored_id(text)).first->second;
  }

 private:
  std::int64_t stored_id(const std::string& text) {
    find_.bindNoCopy(1, text);
    const bool found = find_.executeStep();
    const std::int64_t id = found ? find_.getColumn(0).getInt64() : 0;
    find_.reset();  // else it would hold the transaction open
    if (found) return id;
    insert_(text);
    return database_.getLastInsertRowid();
  }

  SQLite::Database& database_;
  SQLite::Statement find_;
  Insert insert_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

std::string with_keys(std::string_view keys, std::string_view rest) {
  return fmt::format("{}, {}", keys, rest);
}

/// A JSON array of arrays of integers, as text.
class Lists {
 public:
  void add(auto... values) {
    text_ += text_.size() > 1 ? ",[" : "[";
    (put(values), ...);
    text_.back() = ']';
  }
  std::string finish() && {
    text_ += ']';
    return std::move(text_);
  }

 private:
  void put(std::int64_t value) {
    std::array<char, 24> digits{};
    text_.append(digits.begin(), std::to_chars(digits.begin(), digits.end(), value).ptr);
    text_ += ',';
  }
  void put(Bytes value) { put(value.value); }
  void put(Nanos value) { put(value.value); }
  void put(const std::optional<StreamId>& id) {
    if (id) return put(std::int64_t{id->value});
    text_ += "null,";
  }

  std::string text_ = "[";
};

std::string ops_text(const std::vector<OpTime>& timeline, std::span<const std::size_t> kept,
                     NameTable& names) {
  Lists ops;
  for (const std::size_t i : kept) {
    const OpTime& op = timeline[i];
    ops.add(std::int64_t{op.op.value}, names.id_of(op.name), names.id_of(op.stream),
            names.id_of(op.kind), names.id_of(op.segment), op.instance, op.start, op.end);
  }
  return std::move(ops).finish();
}

/// The launches of one rank.
std::string launches_text(std::span<const OpLaunch> launches) {
  Lists list;
  for (const OpLaunch& launch : launches)
    list.add(std::int64_t{launch.op.value}, launch.step, launch.stream, launch.drains,
             launch.issued, launch.begin, launch.end);
  return std::move(list).finish();
}

const std::vector<MemoryPoint> kNoPoints;

/// Whether one of the stretches holds the point as a copy.
bool is_copied(std::size_t point, std::span<const PointCopies> copies) {
  return std::ranges::any_of(copies, [&](const PointCopies& stretch) {
    const std::size_t begin = stretch.first + stretch.points;
    return point >= begin &&
           point < begin + stretch.points * static_cast<std::size_t>(stretch.copies);
  });
}

std::string memory_text(const std::vector<MemoryPoint>& points, std::span<const PointCopies> copies,
                        NameTable& names) {
  decltype(MemoryPoint::categories) previous{};
  std::array<std::int64_t, previous.size()> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids.at(i) = names.id_of(std::string(Names<Category>::values.at(i)));
  Lists changes;
  for (std::size_t number = 0; number < points.size(); ++number) {
    const MemoryPoint& point = points[number];
    if (is_copied(number, copies)) continue;
    const bool changed = point.categories != previous;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (point.categories.at(i) != previous.at(i) || (!changed && i == 0))
        changes.add(static_cast<std::int64_t>(number), point.at, ids.at(i), point.categories.at(i));
    previous = point.categories;
  }
  return std::move(changes).finish();
}

}  // namespace

struct RunWriter::Statements {
  explicit Statements(SQLite::Database& file) : database(file) {}

  SQLite::Database& database;
  NameTable names{database};
  Insert head{database, "run_rows", run_columns()};
  Insert plan{database, "plan_summaries", with_keys("run", columns_of<PlanSummary>())};
  Insert predictions{database, "predictions", with_keys("run", columns::kPredictions)};
  Insert pools{database, "pools", with_keys("run, position", columns_of<PoolSummary>())};
  Insert categories{database, "memory_categories", with_keys("run", columns::kMemoryCategories)};
  Insert cached{database, "cached_memory", with_keys("run", columns_of<CachedMemory>())};
  Insert memory_errors{database, "memory_errors", with_keys("run", columns::kMemoryErrors)};
  Insert host_times{database, "host_times", with_keys("run", columns_of<HostTime>())};
  Insert routings{database, "routings", "run, routing"};
  Insert classes{database, "rank_classes", with_keys("run, position", columns_of<ClassReport>())};
  Insert exposed{database, "exposed_units", with_keys("run, position", columns_of<ExposedUnit>())};
  Insert steps{database, "steps", with_keys("run, position", columns_of<StepResult>())};
  Insert evaluations{database, "evaluations",
                     with_keys("run, position", columns_of<EvaluationResult>())};
  Insert timelines{database, "timelines", "run, ops, memory"};
  Insert op_copies{database, "op_copies", with_keys("run", columns::kOpCopies)};
  Insert memory_copies{database, "memory_copies", with_keys("run", columns::kMemoryCopies)};
  Insert launch_lists{database, "launch_lists", "run, rank, launches"};

  /// `row`: of the run that is written anew; nothing for a new one.
  static void write_head(Write& head, const RunResult& run, const auto&... row) {
    // Every row has every column: empty where the run is of the other kind.
    RunRow columns;
    columns.source = run.source();
    columns.facts = facts_json(run.facts);
    if (const Predicted* predicted = run.predicted()) {
      columns.predicted.calibration = predicted->calibration;
      columns.predicted.cost_model_version = predicted->cost_model_version;
      columns.predicted.peak_op = predicted->peak_op;
    } else if (const auto& resumed = run.measured()->resumed) {
      columns.resumed_step = resumed->step;
      columns.resumed_run_id = resumed->run_id;
    }
    if (!run.absent.has(ResultFigure::model)) columns.model = model_json(run);
    if (!run.absent.has(ResultFigure::config)) columns.config = config_json(run.config);
    head.write(run.absent, [&](Binder& bind) {
      run_fields(bind, static_cast<const RunFigures&>(run), columns);
      (bind.put(row), ...);
    });
  }

  template <class T>
  void write_list(Write& list, std::int64_t run, const std::vector<T>& items,
                  std::int64_t position = 0) {
    for (const T& item : items) list(run, position++, item);
  }

  void write_categories(std::int64_t run, const MemorySummary& memory) {
    for (std::size_t i = 0; i < memory.categories.size(); ++i)
      categories(run, std::string(Names<Category>::values.at(i)), memory.categories.at(i));
  }

  void write_prediction(std::int64_t run, const Predicted& predicted) {
    predictions(run, predicted.live_peak, predicted.trust, predicted.ranks, predicted.training);
    if (predicted.routing) routings(run, routing_json(*predicted.routing));
    write_list(exposed, run, predicted.exposed_units);
  }

  void write_progress(std::int64_t run, const std::vector<StepResult>& new_steps,
                      const std::vector<EvaluationResult>& new_evaluations) {
    if (!new_steps.empty()) write_list(steps, run, new_steps, next_position(run, "steps"));
    if (!new_evaluations.empty())
      write_list(evaluations, run, new_evaluations, next_position(run, "evaluations"));
  }

  [[nodiscard]] std::int64_t next_position(std::int64_t run, std::string_view table) const {
    SQLite::Statement next(
        database,
        fmt::format("SELECT coalesce(max(position) + 1, 0) FROM {} WHERE run = ?", table));
    next.bind(1, run);
    next.executeStep();
    return next.getColumn(0).getInt64();
  }

  /// All but the head, steps and evaluations.
  void write_parts(std::int64_t row, const RunResult& run) {
    if (!run.absent.has(ResultFigure::plan)) {
      plan(row, run.plan);
      write_list(pools, row, run.plan.pools);
    }
    if (!run.absent.has(ResultFigure::categories)) write_categories(row, run.memory);
    if (const auto& memory = run.memory.cached) {
      cached(row, *memory);
      if (memory->errors) memory_errors(row, *memory->errors);
    }
    if (run.time.host) host_times(row, *run.time.host);
    if (const Predicted* predicted = run.predicted()) write_prediction(row, *predicted);
    write_list(classes, row, run.classes());
    write_timelines(row, run);
    if (run.measured() != nullptr) write_launches(row, run.measured()->launches);
  }

  void write_timelines(std::int64_t row, const RunResult& run) {
    const auto& points = run.predicted() != nullptr ? run.predicted()->memory_timeline : kNoPoints;
    const CompressedOps compressed = compress_ops(run.timeline, run.omitted);
    const auto stretches = find_point_copies(points, run.timeline, compressed.copies);
    // Names get their numbers in this order.
    const std::string ops = ops_text(run.timeline, compressed.kept, names);
    timelines(row, ops, memory_text(points, stretches, names));
    for (const InstanceCopy& copy : compressed.copies)
      op_copies(row, names.id_of(copy.segment), copy.instance, copy.copy, copy.shift, copy.omitted);
    for (const PointCopies& stretch : stretches)
      for (std::int64_t i = 1; i <= stretch.copies; ++i)
        memory_copies(row, static_cast<std::int64_t>(stretch.first),
                      static_cast<std::int64_t>(stretch.points), i, stretch.period * i);
  }

  void write_launches(std::int64_t row, std::span<const OpLaunch> launches) {
    while (!launches.empty()) {
      const auto end = std::ranges::find_if(
          launches, [&](const OpLaunch& launch) { return launch.rank != launches.front().rank; });
      const auto count = static_cast<std::size_t>(end - launches.begin());
      launch_lists(row, launches.front().rank, launches_text(launches.first(count)));
      launches = launches.subspan(count);
    }
  }
};

RunWriter::RunWriter(SQLite::Database& database)
    : statements_(std::make_unique<Statements>(database)) {}
RunWriter::~RunWriter() = default;

std::int64_t RunWriter::write(const RunResult& run) {
  Statements::write_head(statements_->head, run);
  const std::int64_t row = statements_->database.getLastInsertRowid();
  statements_->write_parts(row, run);
  if (const Measured* measured = run.measured())
    statements_->write_progress(row, measured->steps, measured->evaluations);
  return row;
}

bool RunWriter::rewrite(std::int64_t row, const RunResult& run) {
  if (!has(row, run.run_id)) return false;
  SQLite::Database& database = statements_->database;
  const std::string columns = run_columns();
  Write head(database, fmt::format("UPDATE run_rows SET ({}) = ({}) WHERE id = ?", columns,
                                   marks_for(columns)));
  Statements::write_head(head, run, row);
  for (const char* part :
       {"plan_summaries", "predictions", "pools", "memory_categories", "cached_memory",
        "memory_errors", "host_times", "routings", "rank_classes", "exposed_units", "timelines",
        "op_copies", "memory_copies", "launch_lists"})
    Write(database, fmt::format("DELETE FROM {} WHERE run = ?", part))(row);
  statements_->write_parts(row, run);
  return true;
}

bool RunWriter::append(std::int64_t row, const std::string& run_id, const RunProgress& progress) {
  if (!has(row, run_id)) return false;
  statements_->write_progress(row, progress.steps, progress.evaluations);
  return true;
}

bool RunWriter::has(std::int64_t row, const std::string& run_id) const {
  SQLite::Statement there(statements_->database,
                          "SELECT 1 FROM run_rows WHERE id = ? AND run_id = ?");
  there.bind(1, row);
  there.bind(2, run_id);
  return there.executeStep();
}

}  // namespace mfsdp
