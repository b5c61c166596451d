#include "sim/engines/latent_ops.hpp"

#include <utility>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {

LatentOps::LatentOps(EagerTape& tape, EagerOps& ops, const PlanConfig& config)
    : tape_(tape),
      ops_(ops),
      model_(config.model),
      tokens_(config.tokens_per_microbatch()),
      rotated_(model_.rotary_dim),
      heads_(model_.heads * model_.head_dim),
      values_(model_.heads * model_.value_head_dim()) {}

LatentOps::Value LatentOps::run(const Value& x, const Sinks& sinks) {
  const std::int64_t turning = model_.heads * rotated_;
  const std::vector<Value> queries =
      ops_.views("query_part", query(x, sinks), {bf16(heads_ - turning), bf16(turning)});
  const std::vector<Value> latent = ops_.views(
      "kv_latent_part",
      ops_.linear("kv_down", x, model_.kv_latent + rotated_, model_.hidden, sinks("kv_down")),
      {bf16(model_.kv_latent), bf16(rotated_)});
  const Value turned_query = ops_.rotate("rotated_query", queries[1], RopeCode::complex);
  const Value turned_key = ops_.rotate("rotated_key", latent[1], RopeCode::complex);
  const Value all_queries = joined("query_joined", queries[0], turned_query);
  // The norm's kernel needs contiguous rows.
  tape_.step().scratch("kv_latent_rows", bf16(model_.kv_latent));
  tape_.kernel(KernelKind::cast, "kv_latent_rows",
               {2 * bf16(model_.kv_latent), AccessPattern::strided});
  const Value rows = ops_.linear("kv",
                                 ops_.norm("kv_latent_norm", latent[0], model_.kv_latent,
                                           NormCode::fused, sinks("kv_latent_norm")),
                                 heads_ - turning + values_, model_.kv_latent, sinks("kv"));
  const std::vector<Value> parts =
      ops_.views("kv_part", rows, {bf16(heads_ - turning), bf16(values_)});
  const Value all_keys = joined("key_joined", parts[0], turned_key);
  const Value mixed = mix(all_queries, all_keys, parts[1]);
  return ops_.linear("out", mixed, model_.hidden, values_, sinks("out"));
}

LatentOps::Value LatentOps::query(const Value& x, const Sinks& sinks) {
  if (model_.query_latent == 0)
    return ops_.linear("query", x, heads_, model_.hidden, sinks("query"));
  const std::int64_t columns = model_.query_latent;
  const Value latent = ops_.linear("query_down", x, columns, model_.hidden, sinks("query_down"));
  return ops_.linear(
      "query",
      ops_.norm("query_latent_norm", latent, columns, NormCode::fused, sinks("query_latent_norm")),
      heads_, columns, sinks("query"));
}

/// Heads from both parts. A rotated part that all heads share is repeated, and its gradient is summed
/// over heads.
LatentOps::Value LatentOps::joined(std::string_view name, const Value& still,
                                   const Value& rotated) {
  const std::string own(name);
  Ref made = make(own, bf16(heads_));
  tape_.kernel(KernelKind::cast, own, {2 * bf16(heads_), AccessPattern::pieces});
  const bool is_shared = rotated.bytes != bf16(model_.heads * rotated_);
  return tape_.output(
      std::move(made), bf16(heads_), {still.node, rotated.node}, {},
      [this, own, is_shared, few = rotated.bytes](const Ref& gradient, const EagerTape::Refs&) {
        if (!is_shared) return EagerTape::Refs{gradient, gradient};
        Ref sum = make("d_" + own + "_sum", few);
        tape_.kernel(KernelKind::accumulate, "d_" + own + "_sum",
                     {model_.heads * few + few, AccessPattern::strided});
        return EagerTape::Refs{gradient, std::move(sum)};
      });
}

LatentOps::Value LatentOps::mix(const Value& query, const Value& key, const Value& value) {
  constexpr std::int64_t kRandomState = 8;
  const AttentionKind kind{.value_dim = model_.value_head_dim()};
  const std::int64_t statistic = checked_mul(checked_mul(tokens_, model_.heads), kFull);
  EagerTape::Saved saved;
  for (const Value* one : {&query, &key, &value}) tape_.save(one->ref, saved);
  const EagerTape::Refs made{make("attention_seed", kRandomState),
                             make("attention_offset", kRandomState),
                             make("attention", bf16(values_)), make("attention_lse", statistic)};
  tape_.step().scratch("attention_workspace", kAttentionWorkspaceBytes);
  tape_.step().attention(KernelKind::attention_forward, kind);
  for (const Ref& one : made) tape_.save(one, saved);
  return tape_.output(
      made[2], bf16(values_), {query.node, key.node, value.node}, std::move(saved),
      [this, kind, statistic](Ref gradient, EagerTape::Refs kept) {
        EagerTape::Refs gradients{make("d_query", bf16(heads_)), make("d_key", bf16(heads_)),
                                  make("d_value", bf16(values_))};
        // Sums of dQ in fp32, a sum for each row, and 256 bytes, as with equal widths.
        tape_.step().scratch("attention_backward_workspace",
                             2 * bf16(heads_) + statistic + kAttentionWorkspaceBytes);
        tape_.step().attention(KernelKind::attention_backward, kind);
        gradient.reset();
        kept.clear();
        return gradients;
      });
}

}  // namespace mfsdp
