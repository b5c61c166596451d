#include "reports/store/schema.hpp"

#include <array>

#include "reports/store/schema_version_7.hpp"

namespace mfsdp {
namespace {

// All times are integer nanoseconds (_ns), all sizes integer bytes (_bytes). Every row belongs to a
// run and goes with it. `position` keeps the order of a list.
//
// The two long lists, op times and memory points, are stored narrow and read through views (as rows
// in version 1, as JSON since):
// - texts that repeat (op, stream, kind, segment, category) are numbers into `names`, which all
//   runs share. These numbers carry no foreign key: they are looked up in the same transaction,
//   names are never deleted, and the check would cost more than the insert.
// - of a memory point only the categories that changed since the previous point are kept. The first
//   point counts as a change from zero. A point that changes nothing keeps one row of any category.
constexpr std::string_view kVersion1 = R"sql(
CREATE TABLE schema_versions (
  version INTEGER PRIMARY KEY,
  migrated_unix_ns INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  tool TEXT NOT NULL,
  version TEXT NOT NULL,
  created_unix_ns INTEGER NOT NULL,
  source TEXT NOT NULL,
  plan_hash TEXT NOT NULL,
  model_name TEXT NOT NULL,
  parameters INTEGER NOT NULL,
  model TEXT NOT NULL CHECK (json_valid(model)),
  config TEXT NOT NULL CHECK (json_valid(config)),
  gpu TEXT NOT NULL,
  gpus INTEGER NOT NULL,
  nodes INTEGER NOT NULL,
  gpus_per_node INTEGER NOT NULL,
  network TEXT NOT NULL,
  engine TEXT NOT NULL,
  calibration TEXT NOT NULL,
  cost_model_version TEXT NOT NULL,
  capacity_bytes INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  peak_op TEXT NOT NULL,
  fits INTEGER NOT NULL CHECK (fits IN (0, 1)),
  headroom_bytes INTEGER NOT NULL,
  runtime_source TEXT NOT NULL,
  step_ns INTEGER NOT NULL,
  compute_ns INTEGER NOT NULL,
  communication_ns INTEGER NOT NULL,
  exposed_communication_ns INTEGER NOT NULL,
  idle_ns INTEGER NOT NULL,
  contention_ns INTEGER NOT NULL,
  overlap_fraction REAL,
  tokens_per_second_per_gpu REAL,
  tflops_per_gpu REAL,
  mfu REAL,
  all_gather_bytes INTEGER NOT NULL,
  reduce_scatter_bytes INTEGER NOT NULL,
  all_reduce_bytes INTEGER NOT NULL
) STRICT;
CREATE INDEX runs_by_plan ON runs (plan_hash);

CREATE TABLE plan_summaries (
  run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  units INTEGER NOT NULL,
  groups INTEGER NOT NULL,
  ops INTEGER NOT NULL,
  events INTEGER NOT NULL,
  waits INTEGER NOT NULL,
  buffers INTEGER NOT NULL,
  collectives INTEGER NOT NULL,
  segments INTEGER NOT NULL,
  max_live_full_weights INTEGER NOT NULL,
  max_live_full_gradients INTEGER NOT NULL,
  allocator TEXT NOT NULL,
  padding_bytes INTEGER NOT NULL
) STRICT;

CREATE TABLE pools (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  position INTEGER NOT NULL,
  name TEXT NOT NULL,
  height_bytes INTEGER NOT NULL,
  lower_bound_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_categories (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  category TEXT NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (run, category)
) STRICT, WITHOUT ROWID;

CREATE TABLE exposed_units (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  position INTEGER NOT NULL,
  unit TEXT NOT NULL,
  exposed_ns INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE steps (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  position INTEGER NOT NULL,
  step INTEGER NOT NULL,
  step_ns INTEGER NOT NULL,
  loss REAL,
  grad_norm REAL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE names (
  id INTEGER PRIMARY KEY,
  text TEXT NOT NULL UNIQUE
) STRICT;

CREATE TABLE op_time_rows (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  position INTEGER NOT NULL,
  op INTEGER NOT NULL,
  name INTEGER NOT NULL,
  stream INTEGER NOT NULL,
  kind INTEGER NOT NULL,
  segment INTEGER NOT NULL,
  instance INTEGER NOT NULL,
  start_ns INTEGER NOT NULL,
  end_ns INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_changes (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  point INTEGER NOT NULL,
  category INTEGER NOT NULL,
  at_ns INTEGER NOT NULL,
  bytes INTEGER NOT NULL,
  PRIMARY KEY (run, point, category)
) STRICT, WITHOUT ROWID;

CREATE VIEW op_times AS
  SELECT run, position, op, n.text AS name, s.text AS stream, k.text AS kind, g.text AS segment,
         instance, start_ns, end_ns
  FROM op_time_rows AS t
  LEFT JOIN names AS n ON n.id = t.name
  LEFT JOIN names AS s ON s.id = t.stream
  LEFT JOIN names AS k ON k.id = t.kind
  LEFT JOIN names AS g ON g.id = t.segment;

CREATE VIEW memory_timeline AS
  SELECT run, point, at_ns, n.text AS category, bytes
  FROM memory_changes AS c
  LEFT JOIN names AS n ON n.id = c.category;
)sql";

// A row for each op and memory change took most of the time that a sweep needs. One text for each
// list takes a tenth; its elements are what the rows were:
//   ops     [[op, name, stream, kind, segment, instance, start_ns, end_ns], ...] by position
//   memory  [[point, at_ns, category, bytes], ...] by point
// Only mfsdp writes these texts, so they carry no json_valid: it would read them all once more.
constexpr std::string_view kVersion2 = R"sql(
CREATE TABLE timelines (
  run INTEGER PRIMARY KEY REFERENCES runs ON DELETE CASCADE,
  ops TEXT NOT NULL,
  memory TEXT NOT NULL
) STRICT;

INSERT INTO timelines
  SELECT id,
         (SELECT json_group_array(json_array(op, name, stream, kind, segment, instance, start_ns,
                                             end_ns))
          FROM (SELECT * FROM op_time_rows WHERE run = runs.id ORDER BY position)),
         (SELECT json_group_array(json_array(point, at_ns, category, bytes))
          FROM (SELECT * FROM memory_changes WHERE run = runs.id ORDER BY point, category))
  FROM runs;

DROP VIEW op_times;
DROP VIEW memory_timeline;
DROP TABLE op_time_rows;
DROP TABLE memory_changes;

CREATE VIEW op_times AS
  SELECT run, o.key AS position, o.value ->> 0 AS op, n.text AS name, s.text AS stream,
         k.text AS kind, g.text AS segment, o.value ->> 5 AS instance, o.value ->> 6 AS start_ns,
         o.value ->> 7 AS end_ns
  FROM timelines JOIN json_each(ops) AS o
  LEFT JOIN names AS n ON n.id = o.value ->> 1
  LEFT JOIN names AS s ON s.id = o.value ->> 2
  LEFT JOIN names AS k ON k.id = o.value ->> 3
  LEFT JOIN names AS g ON g.id = o.value ->> 4;

CREATE VIEW memory_timeline AS
  SELECT run, m.value ->> 0 AS point, m.value ->> 1 AS at_ns, n.text AS category,
         m.value ->> 3 AS bytes
  FROM timelines JOIN json_each(memory) AS m
  LEFT JOIN names AS n ON n.id = m.value ->> 2;
)sql";

// Runs of mfsdp-exec are stored while they go on.
constexpr std::string_view kVersion3 = R"sql(
ALTER TABLE runs ADD COLUMN status TEXT NOT NULL DEFAULT 'complete';
ALTER TABLE steps ADD COLUMN tokens INTEGER;
ALTER TABLE steps ADD COLUMN learning_rate REAL;

CREATE TABLE evaluations (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  position INTEGER NOT NULL,
  step INTEGER NOT NULL,
  loss REAL,
  tokens INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
)sql";

// Launches of the ranks in a run's last steps, by rank, in the order of issue:
//   [[op, step, stream or null, drains, issued_ns, begin_ns, end_ns], ...]
constexpr std::string_view kVersion4 = R"sql(
CREATE TABLE launch_lists (
  run INTEGER NOT NULL REFERENCES runs ON DELETE CASCADE,
  rank INTEGER NOT NULL,
  launches TEXT NOT NULL,
  PRIMARY KEY (run, rank)
) STRICT, WITHOUT ROWID;

CREATE VIEW launches AS
  SELECT run, rank, l.key AS position, l.value ->> 0 AS op, l.value ->> 1 AS step,
         l.value ->> 2 AS stream, l.value ->> 3 AS drains, l.value ->> 4 AS issued_ns,
         l.value ->> 5 AS begin_ns, l.value ->> 6 AS end_ns
  FROM launch_lists JOIN json_each(launches) AS l;
)sql";

// A run may resume another run's save: the step of the save and the other run's run_id.
constexpr std::string_view kVersion5 = R"sql(
ALTER TABLE runs ADD COLUMN resumed_step INTEGER;
ALTER TABLE runs ADD COLUMN resumed_run_id TEXT;
)sql";

// A step whose gradient is not finite may be skipped: it updates nothing.
constexpr std::string_view kVersion6 = R"sql(
ALTER TABLE steps ADD COLUMN skipped INTEGER NOT NULL DEFAULT 0;
)sql";

// The step of version 7 was the median of a measured run's steps, so the column and its place in
// the index runs_listed take that name. The step is now the sum of its parts.
constexpr std::string_view kVersion8 = R"sql(
DROP VIEW runs;
ALTER TABLE run_rows RENAME COLUMN step_ns TO median_step_ns;
ALTER TABLE run_rows ADD COLUMN step_ns INTEGER;
UPDATE run_rows SET step_ns = iif(source = 'measured',
                                  compute_ns + exposed_communication_ns + idle_ns, median_step_ns);
CREATE VIEW runs AS
  SELECT r.id, r.run_id, r.name, r.tool, r.version, r.git_commit, r.created_unix_ns,
         datetime(r.created_unix_ns / 1000000000, 'unixepoch') AS created, r.source, r.status,
         r.engine, r.plan_hash, r.model_name, r.parameters, r.gpu, r.gpus, r.nodes,
         r.gpus_per_node, r.network, r.calibration, r.cost_model_version,
         r.strategy, config ->> 'outer_strategy' AS outer_strategy,
         config ->> 'dp_outer' AS dp_outer, config ->> 'dp_shard' AS dp_shard, r.seq_len,
         r.micro_batch, config ->> 'microbatches' AS microbatches, r.global_batch,
         config ->> 'recompute' AS recompute, config ->> 'prefetch' AS prefetch,
         config ->> 'grad_slots' AS grad_slots, config ->> 'allocator' AS allocator,
         config ->> 'param_dtype' AS param_dtype, config ->> 'main_dtype' AS main_dtype,
         config ->> 'grad_dtype' AS grad_dtype, config ->> 'reduce_dtype' AS reduce_dtype,
         config ->> 'optimizer' AS optimizer, config ->> 'clip' AS clip,
         config ->> 'deterministic' AS deterministic,
         r.capacity_bytes, r.allocated_bytes, r.peak_bytes, p.live_peak_bytes, r.peak_op, r.fits,
         r.reserve_bytes, r.headroom_bytes, r.runtime_source, r.step_ns, r.compute_ns,
         r.communication_ns, r.exposed_communication_ns, r.idle_ns, r.contention_ns,
         r.overlap_fraction, r.median_step_ns, r.tokens_per_second_per_gpu, r.tflops_per_gpu,
         r.mfu,
         r.all_gather_bytes, r.reduce_scatter_bytes, r.all_reduce_bytes, s.model_flops,
         p.trust_tier, p.trust_step_error, p.trust_text, p.ranks, p.simulated_ranks,
         p.slowest_rank, p.compute_mean_ns, p.compute_most_ns, p.waiting_mean_ns, p.variation,
         p.training_tokens, p.training_seconds, p.training_gpu_hours, p.training_cost,
         r.resumed_step, r.resumed_run_id, r.model, r.config, r.facts
  FROM run_rows AS r
  LEFT JOIN plan_summaries AS s ON s.run = r.id
  LEFT JOIN predictions AS p ON p.run = r.id;
)sql";

// Losses may be scaled, step by step.
constexpr std::string_view kVersion9 = R"sql(
ALTER TABLE steps ADD COLUMN loss_scale REAL;
)sql";

// Engines with a caching allocator have more than one number.
constexpr std::string_view kVersion10 = R"sql(
CREATE TABLE cached_memory (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  reserved_bytes INTEGER NOT NULL,
  device_bytes INTEGER NOT NULL,
  alloc_retries INTEGER NOT NULL,
  fits_certain INTEGER NOT NULL
) STRICT;
)sql";

// The host may limit engines whose host issues ops one by one. Predictions of their memory state
// their error.
constexpr std::string_view kVersion11 = R"sql(
CREATE TABLE host_times (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  host_issue_ns INTEGER NOT NULL,
  host_bound_ns INTEGER NOT NULL
) STRICT;
CREATE TABLE memory_errors (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  allocated_error REAL NOT NULL,
  reserved_error REAL NOT NULL,
  device_error REAL NOT NULL,
  error_source TEXT NOT NULL
) STRICT;
)sql";

// For imported runs only the allocator's reservation is known. It was stored as allocated memory;
// allocated memory is now their peak. The stated routing of a model's experts, as JSON.
constexpr std::string_view kVersion12 = R"sql(
ALTER TABLE cached_memory RENAME TO cached_memory_11;
CREATE TABLE cached_memory (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  reserved_bytes INTEGER NOT NULL,
  device_bytes INTEGER,
  alloc_retries INTEGER,
  fits_certain INTEGER NOT NULL
) STRICT;
INSERT INTO cached_memory SELECT * FROM cached_memory_11;
DROP TABLE cached_memory_11;
INSERT INTO cached_memory (run, reserved_bytes, fits_certain)
  SELECT id, allocated_bytes, 1 FROM run_rows
  WHERE runtime_source = 'what the caching allocator reserved, no context'
    AND allocated_bytes IS NOT NULL;
UPDATE run_rows SET allocated_bytes = peak_bytes
  WHERE runtime_source = 'what the caching allocator reserved, no context';
CREATE TABLE routings (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  routing TEXT NOT NULL
) STRICT;
)sql";

// A fit must hold even if the prediction is off by its error, which is known for some engines.
// Older values describe the verdict, whichever it is.
constexpr std::string_view kVersion13 = R"sql(
ALTER TABLE cached_memory RENAME COLUMN fits_certain TO verdict_certain;
ALTER TABLE cached_memory ADD COLUMN fits_certain INTEGER;
)sql";

// A plan may have several classes of ranks, such as the stages of a pipeline.
constexpr std::string_view kVersion14 = R"sql(
CREATE TABLE rank_classes (
  run INTEGER NOT NULL REFERENCES run_rows ON DELETE CASCADE,
  position INTEGER NOT NULL,
  role TEXT NOT NULL,
  ranks INTEGER NOT NULL,
  allocated_bytes INTEGER NOT NULL,
  peak_bytes INTEGER NOT NULL,
  step_ns INTEGER NOT NULL,
  compute_ns INTEGER NOT NULL,
  exposed_communication_ns INTEGER NOT NULL,
  idle_ns INTEGER NOT NULL,
  send_bytes INTEGER NOT NULL,
  fullest INTEGER NOT NULL,
  busiest INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
)sql";

// A class of ranks has memory of the host, and a measured run has classes too.
constexpr std::string_view kVersion15 = R"sql(
ALTER TABLE rank_classes ADD COLUMN host_bytes INTEGER NOT NULL DEFAULT 0;
)sql";

}  // namespace

std::span<const std::string_view> store_migrations() {
  static const std::array migrations{kVersion1,  kVersion2,  kVersion3,         kVersion4,
                                     kVersion5,  kVersion6,  store_version_7(), kVersion8,
                                     kVersion9,  kVersion10, kVersion11,        kVersion12,
                                     kVersion13, kVersion14, kVersion15};
  return migrations;
}

}  // namespace mfsdp
