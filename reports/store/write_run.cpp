#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "core/plan/result_json.hpp"
#include "reports/store/run_rows.hpp"

namespace mfsdp {

namespace {

/// A prepared INSERT whose values are always bound, never part of the text.
class Insert {
 public:
  Insert(SQLite::Database& database, std::string_view table, std::string_view columns)
      : statement_(database, sql(table, columns)) {}

  template <class... Values>
  void operator()(const Values&... values) {
    int index = 0;
    (bind(++index, values), ...);
    statement_.exec();
    statement_.reset();
  }

 private:
  static std::string sql(std::string_view table, std::string_view columns) {
    std::string marks = "?";
    for (auto commas = std::ranges::count(columns, ','); commas > 0; --commas) marks += ", ?";
    return fmt::format("INSERT INTO {} ({}) VALUES ({})", table, columns, marks);
  }
  // The text outlives exec(), so SQLite need not copy it.
  void bind(int index, const std::string& value) { statement_.bindNoCopy(index, value); }
  void bind(int index, std::int64_t value) { statement_.bind(index, value); }
  void bind(int index, bool value) { statement_.bind(index, value ? 1 : 0); }
  void bind(int index, double value) { statement_.bind(index, value); }
  void bind(int index, Bytes value) { statement_.bind(index, value.value); }
  void bind(int index, Nanos value) { statement_.bind(index, value.value); }
  void bind(int index, const std::optional<double>& value) {
    if (value)
      statement_.bind(index, *value);
    else
      statement_.bind(index);
  }

  SQLite::Statement statement_;
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
    find_.reset();
    find_.bind(1, text);
    if (find_.executeStep()) return ids_.emplace(text, find_.getColumn(0).getInt64()).first->second;
    insert_(text);
    return ids_.emplace(text, database_.getLastInsertRowid()).first->second;
  }

 private:
  SQLite::Database& database_;
  SQLite::Statement find_;
  Insert insert_;
  std::unordered_map<std::string, std::int64_t> ids_;
};

std::string with_keys(std::string_view keys, std::string_view rest) {
  return fmt::format("{}, {}", keys, rest);
}

std::int64_t write_head(SQLite::Database& database, const RunResult& run) {
  const MemorySummary& memory = run.memory;
  const TimeSummary& time = run.time;
  Insert insert(database, "runs", columns::kRuns);
  insert(run.run_id, run.name, run.tool, run.version, run.created_unix_ns, run.source,
         run.plan_hash, run.model_name, run.parameters, model_json(run), config_json(run.config),
         run.cluster.gpu, run.cluster.gpus, run.cluster.nodes, run.cluster.gpus_per_node,
         run.cluster.network, run.engine, run.calibration, run.cost_model_version, memory.capacity,
         memory.allocated, memory.peak, memory.peak_op, memory.fits, memory.headroom,
         memory.runtime_source, time.step, time.compute, time.communication,
         time.exposed_communication, time.idle, time.contention, time.overlap_fraction,
         time.tokens_per_second_per_gpu, time.tflops_per_gpu, time.mfu, run.traffic.all_gather,
         run.traffic.reduce_scatter, run.traffic.all_reduce);
  return database.getLastInsertRowid();
}

void write_plan(SQLite::Database& database, std::int64_t run, const PlanSummary& plan) {
  Insert summary(database, "plan_summaries", with_keys("run", columns::kPlanSummaries));
  summary(run, plan.units, plan.groups, plan.ops, plan.events, plan.waits, plan.buffers,
          plan.collectives, plan.segments, plan.max_live_full_weights, plan.max_live_full_gradients,
          std::string(to_string(plan.allocator)), plan.padding);
  Insert pools(database, "pools", with_keys("run, position", columns::kPools));
  std::int64_t position = 0;
  for (const PoolSummary& pool : plan.pools)
    pools(run, position++, pool.name, pool.height, pool.lower_bound);
}

void write_summaries(SQLite::Database& database, std::int64_t run, const RunResult& result) {
  Insert categories(database, "memory_categories", with_keys("run", columns::kMemoryCategories));
  for (std::size_t i = 0; i < result.memory.categories.size(); ++i)
    categories(run, std::string(Names<Category>::values.at(i)), result.memory.categories.at(i));

  Insert exposed(database, "exposed_units", with_keys("run, position", columns::kExposedUnits));
  std::int64_t position = 0;
  for (const ExposedUnit& unit : result.exposed_units)
    exposed(run, position++, unit.unit, unit.exposed);

  Insert steps(database, "steps", with_keys("run, position", columns::kSteps));
  position = 0;
  for (const StepResult& step : result.steps)
    steps(run, position++, step.step, step.duration, step.loss, step.grad_norm);
}

void write_timeline(SQLite::Database& database, NameTable& names, std::int64_t run,
                    const std::vector<OpTime>& timeline) {
  Insert insert(database, "op_time_rows", with_keys("run, position", columns::kOpTimes));
  std::int64_t position = 0;
  for (const OpTime& op : timeline)
    insert(run, position++, std::int64_t{op.op.value}, names.id_of(op.name), names.id_of(op.stream),
           names.id_of(op.kind), names.id_of(op.segment), op.instance, op.start, op.end);
}

void write_memory(SQLite::Database& database, NameTable& names, std::int64_t run,
                  const std::vector<MemoryPoint>& points) {
  decltype(MemoryPoint::categories) previous{};
  std::array<std::int64_t, previous.size()> ids{};
  for (std::size_t i = 0; i < ids.size(); ++i)
    ids.at(i) = names.id_of(std::string(Names<Category>::values.at(i)));
  Insert insert(database, "memory_changes", "run, point, at_ns, category, bytes");
  std::int64_t number = 0;
  for (const MemoryPoint& point : points) {
    const bool changed = point.categories != previous;
    for (std::size_t i = 0; i < ids.size(); ++i)
      if (point.categories.at(i) != previous.at(i) || (!changed && i == 0))
        insert(run, number, point.at, ids.at(i), point.categories.at(i));
    previous = point.categories;
    ++number;
  }
}

}  // namespace

std::int64_t write_run(SQLite::Database& database, const RunResult& result) {
  const std::int64_t run = write_head(database, result);
  write_plan(database, run, result.plan);
  write_summaries(database, run, result);
  NameTable names(database);
  write_timeline(database, names, run, result.timeline);
  write_memory(database, names, run, result.memory_timeline);
  return run;
}

}  // namespace mfsdp
