#include "reports/store/list_runs.hpp"

#include <SQLiteCpp/SQLiteCpp.h>
#include <fmt/format.h>

#include <map>
#include <utility>
#include <variant>

namespace mfsdp {
namespace {

/// Conditions that grow, with the values that their question marks stand for.
class Conditions {
 public:
  using Value = std::variant<std::int64_t, std::string>;

  void add(std::string_view condition, std::vector<Value> values) {
    text_ += fmt::format("{} ({})", text_.empty() ? " WHERE" : " AND", condition);
    for (Value& value : values) values_.push_back(std::move(value));
  }
  [[nodiscard]] const std::string& text() const { return text_; }
  void bind(SQLite::Statement& statement) const {
    int index = 0;
    for (const Value& value : values_)
      std::visit([&](const auto& each) { statement.bind(++index, each); }, value);
  }

 private:
  std::string text_;
  std::vector<Value> values_;
};

/// A whole text, or a pattern.
std::string_view match_of(const std::string& text) {
  return text.find_first_of("*?") == std::string::npos ? "=" : "GLOB";
}

void add_filter(Conditions& where, const RunFilter& filter) {
  const auto match = [&](const char* column, const std::optional<std::string>& text) {
    if (text) where.add(fmt::format("{} {} ?", column, match_of(*text)), {*text});
  };
  match("model_name", filter.model);
  match("name", filter.name);
  if (const auto& cluster = filter.cluster)
    where.add(fmt::format("gpu {0} ? OR network {0} ?", match_of(*cluster)), {*cluster, *cluster});
  if (filter.gpus) where.add("gpus = ?", {*filter.gpus});
  if (filter.kind) where.add("source = ?", {std::string(to_string(*filter.kind))});
  if (filter.commit && match_of(*filter.commit) == "GLOB")
    where.add("git_commit GLOB ?", {*filter.commit});
  else if (filter.commit)
    where.add("substr(git_commit, 1, length(?)) = ?", {*filter.commit, *filter.commit});
  if (filter.since_ns) where.add("created_unix_ns >= ?", {*filter.since_ns});
  if (filter.until_ns) where.add("created_unix_ns < ?", {*filter.until_ns});
}

void add_group(Conditions& where, const RunGroup& group, std::string_view pattern) {
  where.add(fmt::format(fmt::runtime(pattern),
                        "model_name = ? AND gpu = ? AND gpus = ? AND "
                        "source = ?"),
            {group.model_name, group.gpu, group.gpus, group.source});
}

Conditions conditions_of(const RunQuery& query) {
  Conditions where;
  if (query.row) where.add("id = ?", {*query.row});
  if (const auto& prefix = query.id_prefix)  // by the index; no id holds a byte as high as DEL
    where.add("run_id >= ? AND run_id < ?", {*prefix, *prefix + "\x7f"});
  if (query.exact_name) where.add("name = ?", {*query.exact_name});
  if (query.mark) where.add("id IN (SELECT run FROM marks WHERE mark = ?)", {*query.mark});
  add_filter(where, query.filter);
  if (query.like) add_group(where, *query.like, "{}");
  if (query.unlike) add_group(where, *query.unlike, "NOT ({})");
  if (query.order == RunOrder::fastest)
    where.add("tokens_per_second_per_gpu > 0 AND fits IS NOT 0 AND status = 'complete'", {});
  return where;
}

std::string_view order_of(RunOrder order) {
  switch (order) {
    case RunOrder::stored: return "id";
    case RunOrder::newest: return "id DESC";
    case RunOrder::fastest: return "tokens_per_second_per_gpu DESC, id DESC";
  }
  return "id";
}

constexpr std::string_view kListedColumns =
    "id, run_id, name, tool, source, model_name, plan_hash, gpu, gpus, created_unix_ns, engine, "
    "status, git_commit, strategy, micro_batch, seq_len, global_batch, median_step_ns, "
    "tokens_per_second_per_gpu, mfu, peak_bytes, fits";

template <class Value, class Get>
std::optional<Value> optional_of(const SQLite::Column& column, Get get) {
  if (column.isNull()) return std::nullopt;
  return Value(get(column));
}

/// For runs that have not ended, for which earlier versions stored zeros (forget_unmeasured).
void forget_zeros(StoredRun& run) {
  if (run.peak == Bytes(0)) {
    run.peak.reset();
    run.fits.reset();
  }
  if (run.median_step == Nanos(0)) {
    run.median_step.reset();
    run.tokens_per_second_per_gpu.reset();
    run.mfu.reset();
  }
}

StoredRun listed_run(SQLite::Statement& row) {
  int index = 0;
  const auto text = [&] { return row.getColumn(index++).getString(); };
  const auto integer = [&] { return row.getColumn(index++).getInt64(); };
  const auto maybe_integer = [&] {
    return optional_of<std::int64_t>(row.getColumn(index++),
                                     [](const SQLite::Column& c) { return c.getInt64(); });
  };
  const auto maybe_real = [&] {
    return optional_of<double>(row.getColumn(index++),
                               [](const SQLite::Column& c) { return c.getDouble(); });
  };
  StoredRun run;
  run.id = integer();
  run.run_id = text();
  run.name = text();
  run.tool = text();
  run.source = text();
  run.model_name = text();
  run.plan_hash = text();
  run.gpu = text();
  run.gpus = integer();
  run.created_unix_ns = integer();
  run.engine = text();
  run.status = text();
  run.commit = text();
  run.strategy = optional_of<std::string>(row.getColumn(index++),
                                          [](const SQLite::Column& c) { return c.getString(); });
  run.micro_batch = maybe_integer();
  run.seq_len = maybe_integer();
  run.global_batch = maybe_integer();
  if (const auto step = maybe_integer()) run.median_step = Nanos(*step);
  run.tokens_per_second_per_gpu = maybe_real();
  run.mfu = maybe_real();
  if (const auto peak = maybe_integer()) run.peak = Bytes(*peak);
  if (const auto fits = maybe_integer()) run.fits = *fits != 0;
  if (run.source == "measured") forget_zeros(run);
  return run;
}

/// There are few marks: they are read once, not joined to every run.
void add_marks(SQLite::Database& database, std::vector<StoredRun>& runs) {
  std::map<std::int64_t, std::vector<std::string>> marks;
  SQLite::Statement query(database, "SELECT run, mark FROM marks ORDER BY mark");
  while (query.executeStep())
    marks[query.getColumn(0).getInt64()].push_back(query.getColumn(1).getString());
  if (marks.empty()) return;
  for (StoredRun& run : runs)
    if (const auto found = marks.find(run.id); found != marks.end()) run.marks = found->second;
}

}  // namespace

namespace {

/// Whether all runs are looked at: then by the index that holds what is shown and little else.
/// SQLite would read the whole rows, ten times as much.
bool looks_at_all(const RunQuery& query) {
  return !query.row && !query.id_prefix && !query.exact_name && !query.mark &&
         query.order != RunOrder::fastest;
}

}  // namespace

std::vector<StoredRun> list_runs(SQLite::Database& database, const RunQuery& query) {
  const Conditions where = conditions_of(query);
  SQLite::Statement rows(
      database, fmt::format("SELECT {} FROM run_rows{}{} ORDER BY {}{}", kListedColumns,
                            looks_at_all(query) ? " INDEXED BY runs_listed" : "", where.text(),
                            order_of(query.order),
                            query.limit ? fmt::format(" LIMIT {}", *query.limit) : ""));
  where.bind(rows);
  std::vector<StoredRun> runs;
  while (rows.executeStep()) runs.push_back(listed_run(rows));
  add_marks(database, runs);
  return runs;
}

bool mark_run(SQLite::Database& database, std::int64_t id, const std::string& mark) {
  const std::vector<StoredRun> runs = list_runs(database, {.row = id});
  if (runs.empty()) return false;
  for (const StoredRun& run : list_runs(database, {.mark = mark, .like = group_of(runs.front())}))
    static_cast<void>(unmark_run(database, run.id, mark));
  SQLite::Statement insert(database,
                           "INSERT INTO marks (mark, run, marked_unix_ns) "
                           "VALUES (?, ?, unixepoch() * 1000000000)");
  insert.bind(1, mark);
  insert.bind(2, id);
  insert.exec();
  return true;
}

bool unmark_run(SQLite::Database& database, std::int64_t id, const std::string& mark) {
  SQLite::Statement remove(database, "DELETE FROM marks WHERE mark = ? AND run = ?");
  remove.bind(1, mark);
  remove.bind(2, id);
  return remove.exec() > 0;
}

}  // namespace mfsdp
