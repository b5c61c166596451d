#include "sim/engines/mcore_context.hpp"

#include <string>

#include "core/plan/kernel_spec.hpp"

namespace mfsdp {
namespace {

using enum StreamRole;

std::string joined(std::string_view name, std::string_view ending) {
  return std::string(name) + std::string(ending);
}

}  // namespace

void McoreContext::free_all(const std::vector<Tensor>& tensors) {
  for (const Tensor tensor : tensors) step_.free(tensor);
}

void McoreContext::pass(KernelKind kind, std::int64_t squares) {
  const bool is_forward = kind == KernelKind::attention_forward;
  step_.scratch(is_forward ? "attention_workspace" : "attention_backward_workspace",
                is_forward ? kAttentionWorkspaceBytes : sizes_.attention_workspace);
  step_.attention(kind, {.heads = config_.model.heads,
                         .tokens = own_tokens(),
                         .batch = config_.micro_batch * squares});
}

Mark McoreContext::send(std::string_view name, std::int64_t bytes) {
  return step_.collective_beside(CollectiveKind::all_gather, name,
                                 ceil_div(bytes / kHalf, ranks() - 1), DType::bf16,
                                 RankGroup::context);
}

McoreContext::Saved McoreContext::forward(const Heads& own, bool keep) {
  switch (parallel_.comm) {
    case ContextComm::p2p: return ring(own, keep);
    case ContextComm::all_gather: return with_all_keys(own, keep);
    case ContextComm::a2a: break;
  }
  return by_heads(own, keep);
}

void McoreContext::free_inputs(const Heads& own, bool keep) {
  const bool keeps_query = keep && parallel_.comm != ContextComm::a2a;
  const bool keeps_keys = keep && parallel_.comm == ContextComm::all_gather;
  if (!keeps_query) step_.free(own.query);
  if (!keeps_keys) step_.free({own.key, own.value});
}

McoreContext::Heads McoreContext::backward(const Saved& saved, Tensor output) {
  switch (parallel_.comm) {
    case ContextComm::p2p: return ring_backward(saved, output);
    case ContextComm::all_gather: return with_all_keys_backward(saved, output);
    case ContextComm::a2a: break;
  }
  return by_heads_backward(saved, output);
}

// ---- A ring ---------------------------------------------------------------------------------

McoreContext::Saved McoreContext::ring(const Heads& own, bool keep) {
  std::vector<Tensor> pairs{allocate("keys_and_values", pair())};
  copy("keys_and_values", pair(), AccessPattern::contiguous);
  std::vector<Tensor> steps;
  std::optional<Mark> arrived;
  std::optional<Tensor> sums;
  for (std::int64_t i = 0; i < ranks(); ++i) {
    if (arrived) step_.wait(compute, *arrived);
    if (i + 1 < ranks()) {
      pairs.push_back(allocate("keys_and_values_received", pair()));
      arrived = send("send_keys_and_values", pair());
    }
    steps.push_back(allocate("attention_of_step", sizes_.query));
    steps.push_back(allocate("attention_lse_of_step", sizes_.query_statistic));
    pass(KernelKind::attention_forward, 1);
    if (!sums) {
      sums = allocate("attention_lse", sizes_.query_statistic);
      copy("attention_lse", sizes_.query_statistic, AccessPattern::contiguous);
    } else {
      add("merge_lse", sizes_.query_statistic);
    }
  }
  Saved saved{.output = allocate("attention", sizes_.query)};
  copy("attention_of_first_step", sizes_.query, AccessPattern::contiguous);
  for (std::int64_t i = 1; i < ranks(); ++i) add("merge_attention", sizes_.query);
  free_all(steps);
  saved.also = {pairs.back(), *sums};
  pairs.pop_back();
  free_all(pairs);
  if (!keep) free_all(std::exchange(saved.also, {}));
  if (keep) saved.inputs = {own.query};
  return saved;
}

McoreContext::Heads McoreContext::ring_backward(const Saved& saved, Tensor output) {
  const Heads made{.query = allocate("d_query", sizes_.query),
                   .key = allocate("keys_and_gradients", pair()),
                   .value = allocate("values_and_gradients", pair())};
  const Tensor other = allocate("received_with_gradients", 2 * pair());
  copy("keys_and_values", pair(), AccessPattern::contiguous);
  for (std::int64_t i = 0; i < ranks(); ++i) {
    const bool is_end = i == 0 || i + 1 == ranks();
    const Mark sent = send("send_keys_and_gradients", is_end ? pair() : 2 * pair());
    const std::vector<Tensor> parts{allocate("d_query_of_step", sizes_.query),
                                    allocate("d_key_of_step", sizes_.key),
                                    allocate("d_value_of_step", sizes_.key)};
    pass(KernelKind::attention_backward, 1);
    if (i == 0)
      copy("d_query", sizes_.query, AccessPattern::contiguous);
    else
      add("d_query", sizes_.query);
    step_.wait(compute, sent);
    if (i == 0)
      copy("d_keys_and_values", pair(), AccessPattern::contiguous);
    else
      add("d_keys_and_values", pair());
    free_all(parts);
  }
  step_.free(other);
  step_.free({output, saved.output});
  free_all(saved.inputs);
  free_all(saved.also);
  return made;
}

// ---- Keys of all ranks ----------------------------------------------------------------------

/// Keys or values of all ranks, in the order of the sequence.
Tensor McoreContext::gathered(std::string_view name) {
  const std::int64_t bytes = checked_mul(ranks(), sizes_.key);
  const Tensor all = allocate(joined(name, "_all"), bytes);
  step_.collective_on(compute, CollectiveKind::all_gather, joined(name, "_all"), sizes_.key / kHalf,
                      DType::bf16, RankGroup::context);
  const Tensor ordered = allocate(joined(name, "_in_order"), bytes);
  copy(joined(name, "_in_order"), bytes, AccessPattern::contiguous);
  step_.free(all);
  return ordered;
}

McoreContext::Saved McoreContext::with_all_keys(const Heads& own, bool keep) {
  const Tensor keys = gathered("key");
  const Tensor values = gathered("value");
  Saved saved{.output = allocate("attention", sizes_.query)};
  for (const std::int64_t squares : {ceil_div(ranks(), std::int64_t{2}), ranks() / 2}) {
    const Tensor half = allocate("attention_of_half", sizes_.query / 2);
    saved.also.push_back(allocate("attention_lse", sizes_.query_statistic / 2));
    pass(KernelKind::attention_forward, squares);
    copy("attention_of_half", sizes_.query / 2, AccessPattern::contiguous);
    step_.free(half);
  }
  step_.free({keys, values});
  if (!keep) free_all(std::exchange(saved.also, {}));
  if (keep) saved.inputs = {own.query, own.key, own.value};
  return saved;
}

McoreContext::Heads McoreContext::with_all_keys_backward(const Saved& saved, Tensor output) {
  const std::int64_t all = checked_mul(ranks(), sizes_.key);
  const Tensor keys = gathered("key");
  const Tensor values = gathered("value");
  Heads made{.query = allocate("d_query", sizes_.query), .key = {}, .value = {}};
  const Heads sums{
      .query = {}, .key = allocate("d_key_sum", all), .value = allocate("d_value_sum", all)};
  step_.memory_bound(KernelKind::zero_padding, "d_key_sum", all);
  step_.memory_bound(KernelKind::zero_padding, "d_value_sum", all);
  for (const std::int64_t squares : {ceil_div(ranks(), std::int64_t{2}), ranks() / 2}) {
    const std::vector<Tensor> parts{allocate("d_query_of_half", sizes_.query / 2),
                                    allocate("d_key_of_half", all),
                                    allocate("d_value_of_half", all)};
    pass(KernelKind::attention_backward, squares);
    copy("d_query", sizes_.query / 2, AccessPattern::contiguous);
    add("d_key_sum", all);
    add("d_value_sum", all);
    free_all(parts);
  }
  step_.free({keys, values});
  const auto reduced = [&](std::string_view name, Tensor sum) {
    const Tensor ordered = allocate(joined(name, "_by_rank"), all);
    copy(joined(name, "_by_rank"), all, AccessPattern::contiguous);
    step_.free(sum);
    const Tensor own = allocate(name, sizes_.key);
    step_.collective_on(compute, CollectiveKind::reduce_scatter, name, sizes_.key / kHalf,
                        DType::bf16, RankGroup::context);
    step_.free(ordered);
    return own;
  };
  made.key = reduced("d_key", sums.key);
  made.value = reduced("d_value", sums.value);
  step_.free({output, saved.output});
  free_all(saved.inputs);
  free_all(saved.also);
  return made;
}

// ---- Heads for tokens -----------------------------------------------------------------------

std::vector<Tensor> McoreContext::exchanged(const std::vector<Moved>& tensors) {
  std::vector<Tensor> permuted;
  std::vector<Tensor> received;
  std::vector<Mark> arrived;
  for (const auto& [name, bytes] : tensors) {
    permuted.push_back(allocate(joined(name, "_by_rank"), bytes));
    copy(joined(name, "_by_rank"), bytes);
    received.push_back(allocate(joined(name, "_received"), bytes));
    arrived.push_back(step_.collective_beside(CollectiveKind::all_to_all, joined(name, "_exchange"),
                                              bytes / kHalf / ranks(), DType::bf16,
                                              RankGroup::context));
  }
  std::vector<Tensor> made;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const auto& [name, bytes] = tensors[i];
    step_.wait(compute, arrived[i]);
    made.push_back(allocate(joined(name, "_exchanged"), bytes));
    copy(joined(name, "_exchanged"), bytes);
    step_.free(received[i]);
  }
  free_all(permuted);
  return made;
}

McoreContext::Saved McoreContext::by_heads(const Heads& /*own*/, bool keep) {
  Saved saved{.output = {}};
  saved.also = exchanged({{.name = "query", .bytes = sizes_.query},
                          {.name = "key", .bytes = sizes_.key},
                          {.name = "value", .bytes = sizes_.key}});
  saved.also.push_back(allocate("attention_of_heads", sizes_.query));
  saved.also.push_back(allocate("attention_lse", sizes_.query_statistic));
  step_.scratch("attention_workspace", kAttentionWorkspaceBytes);
  const AttentionKind whole{.heads = config_.model.heads / ranks(), .tokens = config_.seq_len};
  step_.attention(KernelKind::attention_forward, whole);
  saved.output = exchanged({{.name = "attention", .bytes = sizes_.query}}).front();
  if (!keep) free_all(std::exchange(saved.also, {}));
  return saved;
}

McoreContext::Heads McoreContext::by_heads_backward(const Saved& saved, Tensor output) {
  const Tensor gradient = exchanged({{.name = "d_attention", .bytes = sizes_.query}}).front();
  const std::vector<Tensor> of_heads{allocate("d_query_of_heads", sizes_.query),
                                     allocate("d_key_of_heads", sizes_.key),
                                     allocate("d_value_of_heads", sizes_.key)};
  step_.scratch("attention_backward_workspace", sizes_.attention_workspace);
  const AttentionKind whole{.heads = config_.model.heads / ranks(), .tokens = config_.seq_len};
  step_.attention(KernelKind::attention_backward, whole);
  const std::vector<Tensor> made = exchanged({{.name = "d_query", .bytes = sizes_.query},
                                              {.name = "d_key", .bytes = sizes_.key},
                                              {.name = "d_value", .bytes = sizes_.key}});
  free_all(of_heads);
  step_.free({gradient, output, saved.output});
  free_all(saved.also);
  return {.query = made[0], .key = made[1], .value = made[2]};
}

}  // namespace mfsdp
