// Version 7: the store contains everything that shaped a result.
#include "reports/store/schema_version_7.hpp"

namespace mfsdp {

// - Unknown figures are NULL: runs of other systems have some. NOT NULL columns do not allow that,
//   so the tables are built anew, as sqlite.org/lang_altertable.html describes, with foreign keys
//   off.
// - `runs` is a view now: of the table run_rows and the run's configuration. The columns of a list
//   of runs are stored, because the list would otherwise parse each configuration.
// - `facts` of a run is a JSON object of topics: {"recipe": {"learning_rate": 0.0003}}. The view
//   `facts` has a row for each.
// - Data of a prediction beside its times is in `predictions`.
// - Microbatches that run alike are stored once. In a row of op_copies, the ops of a segment's
//   instance ran again as the instance `copy`, shift_ns later. With omitted = 1 the times of that
//   copy were not kept, and the shift is approximate. In a row of memory_copies, `count` points of
//   memory from `point` on are repeated for the copy-th time. Numbers of points count all of them.
//   Both are rows, not JSON: the views join them by their keys.
constexpr std::string_view kSql = R"sql(
ALTER TABLE runs RENAME TO run_rows;  -- so that other tables refer to that name
CREATE TABLE new_run_rows (
  id INTEGER PRIMARY KEY,
  run_id TEXT NOT NULL UNIQUE,
  name TEXT NOT NULL,
  tool TEXT NOT NULL,
  version TEXT NOT NULL,
  git_commit TEXT NOT NULL,
  created_unix_ns INTEGER NOT NULL,
  source TEXT NOT NULL,
  status TEXT NOT NULL,
  engine TEXT NOT NULL,
  plan_hash TEXT NOT NULL,
  model_name TEXT NOT NULL,
  parameters INTEGER,
  gpu TEXT NOT NULL,
  gpus INTEGER,
  nodes INTEGER,
  gpus_per_node INTEGER,
  network TEXT NOT NULL,
  calibration TEXT NOT NULL,
  cost_model_version TEXT NOT NULL,
  capacity_bytes INTEGER,
  allocated_bytes INTEGER,
  peak_bytes INTEGER,
  peak_op TEXT NOT NULL,
  fits INTEGER CHECK (fits IN (0, 1)),
  reserve_bytes INTEGER,
  headroom_bytes INTEGER,
  runtime_source TEXT NOT NULL,
  step_ns INTEGER,
  compute_ns INTEGER,
  communication_ns INTEGER,
  exposed_communication_ns INTEGER,
  idle_ns INTEGER,
  contention_ns INTEGER,
  overlap_fraction REAL,
  tokens_per_second_per_gpu REAL,
  tflops_per_gpu REAL,
  mfu REAL,
  all_gather_bytes INTEGER,
  reduce_scatter_bytes INTEGER,
  all_reduce_bytes INTEGER,
  resumed_step INTEGER,
  resumed_run_id TEXT,
  strategy TEXT AS (config ->> 'strategy') STORED,
  micro_batch INTEGER AS (config ->> 'micro_batch') STORED,
  seq_len INTEGER AS (config ->> 'seq_len') STORED,
  global_batch INTEGER AS (config ->> 'global_batch') STORED,
  model TEXT CHECK (model IS NULL OR json_valid(model)),
  config TEXT CHECK (config IS NULL OR json_valid(config)),
  facts TEXT NOT NULL
) STRICT;
INSERT INTO new_run_rows
    (id, run_id, name, tool, version, git_commit, created_unix_ns, source, status, engine,
     plan_hash, model_name, parameters, gpu, gpus, nodes, gpus_per_node, network, calibration,
     cost_model_version, capacity_bytes, allocated_bytes, peak_bytes, peak_op, fits, reserve_bytes,
     headroom_bytes, runtime_source, step_ns, compute_ns, communication_ns,
     exposed_communication_ns, idle_ns, contention_ns, overlap_fraction,
     tokens_per_second_per_gpu, tflops_per_gpu, mfu, all_gather_bytes, reduce_scatter_bytes,
     all_reduce_bytes, resumed_step, resumed_run_id, model, config, facts)
  -- Predictions alone had a reserve: what capacity leaves and was not free.
  SELECT id, run_id, name, tool, version, '', created_unix_ns, source, status, engine,
     plan_hash, model_name, parameters, gpu, gpus, nodes, gpus_per_node, network, calibration,
     cost_model_version, capacity_bytes, allocated_bytes, peak_bytes, peak_op, fits,
     iif(source = 'simulated', capacity_bytes - allocated_bytes - headroom_bytes, 0),
     headroom_bytes, runtime_source, step_ns, compute_ns, communication_ns,
     exposed_communication_ns, idle_ns, contention_ns, overlap_fraction,
     tokens_per_second_per_gpu, tflops_per_gpu, mfu, all_gather_bytes, reduce_scatter_bytes,
     all_reduce_bytes, resumed_step, resumed_run_id, model, config, '{}'
  FROM run_rows;
DROP TABLE run_rows;
ALTER TABLE new_run_rows RENAME TO run_rows;
CREATE INDEX runs_by_plan ON run_rows (plan_hash);
CREATE INDEX runs_by_name ON run_rows (name);
CREATE INDEX runs_by_speed
  ON run_rows (model_name, gpu, gpus, source, tokens_per_second_per_gpu, status, fits);
CREATE INDEX runs_listed
  ON run_rows (id, run_id, name, tool, source, model_name, plan_hash, gpu, network, gpus,
               created_unix_ns, engine, status, git_commit, strategy, micro_batch, seq_len,
               global_batch, step_ns, tokens_per_second_per_gpu, mfu, peak_bytes, fits);

CREATE TABLE new_steps (
  run INTEGER NOT NULL REFERENCES run_rows ON DELETE CASCADE,
  position INTEGER NOT NULL,
  step INTEGER NOT NULL,
  step_ns INTEGER,
  loss REAL,
  grad_norm REAL,
  tokens INTEGER,
  learning_rate REAL,
  skipped INTEGER NOT NULL,
  PRIMARY KEY (run, position)
) STRICT, WITHOUT ROWID;
INSERT INTO new_steps
  SELECT run, position, step, step_ns, loss, grad_norm, tokens, learning_rate, skipped FROM steps;
DROP TABLE steps;
ALTER TABLE new_steps RENAME TO steps;

ALTER TABLE plan_summaries ADD COLUMN model_flops REAL;

CREATE TABLE predictions (
  run INTEGER PRIMARY KEY REFERENCES run_rows ON DELETE CASCADE,
  live_peak_bytes INTEGER,
  trust_tier TEXT NOT NULL,
  trust_step_error REAL,
  trust_text TEXT NOT NULL,
  ranks INTEGER,
  simulated_ranks INTEGER,
  slowest_rank INTEGER,
  compute_mean_ns INTEGER,
  compute_most_ns INTEGER,
  waiting_mean_ns INTEGER,
  variation TEXT,
  training_tokens INTEGER,
  training_seconds REAL,
  training_gpu_hours REAL,
  training_cost REAL
) STRICT;

CREATE TABLE marks (
  mark TEXT NOT NULL,
  run INTEGER NOT NULL REFERENCES run_rows ON DELETE CASCADE,
  marked_unix_ns INTEGER NOT NULL,
  PRIMARY KEY (mark, run)
) STRICT, WITHOUT ROWID;
CREATE INDEX marks_by_run ON marks (run);

CREATE TABLE op_copies (
  run INTEGER NOT NULL REFERENCES run_rows ON DELETE CASCADE,
  segment INTEGER NOT NULL,
  instance INTEGER NOT NULL,
  copy INTEGER NOT NULL,
  shift_ns INTEGER NOT NULL,
  omitted INTEGER NOT NULL CHECK (omitted IN (0, 1)),
  PRIMARY KEY (run, segment, instance, copy)
) STRICT, WITHOUT ROWID;

CREATE TABLE memory_copies (
  run INTEGER NOT NULL REFERENCES run_rows ON DELETE CASCADE,
  point INTEGER NOT NULL,
  points INTEGER NOT NULL,
  copy INTEGER NOT NULL,
  shift_ns INTEGER NOT NULL,
  PRIMARY KEY (run, point, copy)
) STRICT, WITHOUT ROWID;

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
         r.overlap_fraction, r.tokens_per_second_per_gpu, r.tflops_per_gpu, r.mfu,
         r.all_gather_bytes, r.reduce_scatter_bytes, r.all_reduce_bytes, s.model_flops,
         p.trust_tier, p.trust_step_error, p.trust_text, p.ranks, p.simulated_ranks,
         p.slowest_rank, p.compute_mean_ns, p.compute_most_ns, p.waiting_mean_ns, p.variation,
         p.training_tokens, p.training_seconds, p.training_gpu_hours, p.training_cost,
         r.resumed_step, r.resumed_run_id, r.model, r.config, r.facts
  FROM run_rows AS r
  LEFT JOIN plan_summaries AS s ON s.run = r.id
  LEFT JOIN predictions AS p ON p.run = r.id;

CREATE VIEW facts AS
  SELECT r.id AS run, t.key AS topic, f.key AS name, f.value AS value
  FROM run_rows AS r JOIN json_each(r.facts) AS t JOIN json_each(t.value) AS f;

CREATE VIEW memory_at_peak AS
  SELECT run, category, bytes FROM memory_categories WHERE bytes > 0;

DROP VIEW op_times;
CREATE VIEW op_time_rows AS
  SELECT run, o.key AS position, o.value ->> 0 AS op, o.value ->> 1 AS name,
         o.value ->> 2 AS stream, o.value ->> 3 AS kind, o.value ->> 4 AS segment,
         o.value ->> 5 AS instance, o.value ->> 6 AS start_ns, o.value ->> 7 AS end_ns
  FROM timelines JOIN json_each(ops) AS o;
CREATE VIEW op_times AS
  SELECT run, op, n.text AS name, s.text AS stream, k.text AS kind, g.text AS segment, instance,
         start_ns, end_ns, 0 AS omitted
  FROM op_time_rows AS o
  LEFT JOIN names AS n ON n.id = o.name
  LEFT JOIN names AS s ON s.id = o.stream
  LEFT JOIN names AS k ON k.id = o.kind
  LEFT JOIN names AS g ON g.id = o.segment
  UNION ALL
  SELECT o.run, op, n.text, s.text, k.text, g.text, c.copy, start_ns + c.shift_ns,
         end_ns + c.shift_ns, c.omitted
  FROM op_time_rows AS o
  JOIN op_copies AS c
    ON c.run = o.run AND c.segment = o.segment AND c.instance = o.instance
  LEFT JOIN names AS n ON n.id = o.name
  LEFT JOIN names AS s ON s.id = o.stream
  LEFT JOIN names AS k ON k.id = o.kind
  LEFT JOIN names AS g ON g.id = o.segment;

DROP VIEW memory_timeline;
CREATE VIEW memory_changes AS
  SELECT run, m.value ->> 0 AS point, m.value ->> 1 AS at_ns, m.value ->> 2 AS category,
         m.value ->> 3 AS bytes
  FROM timelines JOIN json_each(memory) AS m;
CREATE VIEW memory_timeline AS
  SELECT run, point, at_ns, n.text AS category, bytes
  FROM memory_changes AS c LEFT JOIN names AS n ON n.id = c.category
  UNION ALL
  SELECT m.run, m.point + c.copy * c.points, m.at_ns + c.shift_ns, n.text, bytes
  FROM memory_changes AS m
  JOIN memory_copies AS c
    ON c.run = m.run AND m.point >= c.point AND m.point < c.point + c.points
  LEFT JOIN names AS n ON n.id = m.category;
)sql";

std::string_view store_version_7() { return kSql; }

}  // namespace mfsdp
