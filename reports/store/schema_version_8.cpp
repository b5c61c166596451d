// Version 8: the step whose op times are stored, and the median of all steps.
#include "reports/store/schema_version_8.hpp"

namespace mfsdp {

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

std::string_view store_version_8() { return kVersion8; }

}  // namespace mfsdp
