// Steps of models with expert parallelism (axis ep) that differ from those of ranks that have all
// experts: rows move to the ranks of their experts, and back.
//
//   sent = normed2 by row_order, in blocks for ranks      received: rows from all ranks
//   dispatched = received by received_order                leaving = expert_out by received_places
//   returned: rows that came back                              mlp_out = sums of returned by row_places
#pragma once

#include <array>
#include <optional>
#include <utility>

#include "verify/proof/values/model_steps.hpp"

namespace mfsdp::expert_parallel {

constexpr Flow reads(std::string_view role, Value value) {
  return {.role = role, .reads = {.value = value}};
}
constexpr Flow makes(std::string_view role, Value value) {
  return {.role = role, .writes = {.value = value}};
}
/// permute_rows, of that variant.
constexpr ModelStep moves(std::int64_t variant, Value from, Value order, Value to) {
  return {KernelKind::permute_rows,
          variant,
          {},
          {reads("input", from), reads("order", order), makes("output", to)}};
}
/// With a weight of each row.
constexpr ModelStep moves(std::int64_t variant, std::array<Value, 2> from, Value order,
                          std::array<Value, 2> to) {
  return {KernelKind::permute_rows,
          variant,
          {},
          {reads("input", from[0]), reads("order", order), reads("weights", from[1]),
           makes("row_weights", to[1]), makes("output", to[0])}};
}

using enum Value;

inline constexpr std::array kSteps{
    model_step(KernelKind::expert_order, 0, reads("indices", expert_indices),
               makes("ends", chosen_ends), makes("order", chosen_order),
               makes("places", chosen_places)),
    model_step(KernelKind::peer_order, 0, reads("ends", chosen_ends),
               reads("row_order", chosen_order), makes("counts", sent_counts),
               makes("order", row_order), makes("places", row_places)),
    moves(0, {normed2, expert_weights}, row_order, {sent, sent_weights}),
    moves(1, normed2, row_order, sent),
    model_step(KernelKind::arrival_order, 0, reads("counts", received_counts),
               makes("ends", row_ends), makes("order", received_order),
               makes("places", received_places)),
    moves(3, {received, received_weights}, received_order, {dispatched, row_weights}),
    moves(6, received, received_order, dispatched),
    moves(5, expert_out, received_places, leaving),
    model_step(KernelKind::combine_rows, 0, reads("input", returned), reads("places", row_places),
               makes("output", mlp_out)),
    moves(2, d_output, row_order, d_returned),
    moves(7, d_leaving, received_order, d_expert_out),
    moves(4, {d_dispatched, d_row_weights}, received_places, {d_received, d_received_weights}),
    model_step(KernelKind::combine_rows, 1, reads("input", d_sent), reads("places", row_places),
               reads("row_weights", d_sent_weights), makes("weights", d_expert_weights),
               makes("output", d_normed2_experts)),
};

/// Beside an expert that all tokens share.
inline constexpr std::array kSharedSteps{
    model_step(
        KernelKind::combine_rows, 0, reads("input", returned), reads("places", row_places),
        Flow{.role = "output", .reads = {.value = mlp_out_shared}, .writes = {.value = mlp_out}}),
};

/// Values that an all_to_all over ep moves: as they are sent, and as they are received.
inline constexpr std::array kExchanged{
    std::pair{sent_counts, received_counts},
    std::pair{sent, received},
    std::pair{sent_weights, received_weights},
    std::pair{leaving, returned},
    std::pair{d_returned, d_leaving},
    std::pair{d_received, d_sent},
    std::pair{d_received_weights, d_sent_weights},
};

/// Nothing where the model sends no such value.
[[nodiscard]] constexpr std::optional<Value> received_of(Value value) {
  for (const auto& [out, in] : kExchanged)
    if (out == value) return in;
  return std::nullopt;
}

}  // namespace mfsdp::expert_parallel
