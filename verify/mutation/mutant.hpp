// Small deliberate faults in a plan. A fault that the proofs do not find here would also go
// unnoticed in a real plan.
//
// A mutant is a few numbers; apply() makes its plan. This code does not know which mutants are
// wrong: the proofs decide that (mutate.hpp).
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/plan/plan.hpp"

namespace mfsdp {

enum class MutantKind {
  drop_wait,    ///< a wait or host wait
  drop_record,  ///< its waits are bound to the previous record
  drop_collective,
  drop_copy,
  drop_kernel,
  drop_acquire,
  drop_release,
  double_collective,  ///< runs twice, consecutively
  double_kernel,
  swap_neighbours,      ///< with the next op in host order, which is on another stream
  swap_on_stream,       ///< with the next op on its stream
  reorder_collectives,  ///< with the next one (part 0), or the next of its communicator (1)
  change_stream,        ///< runs on the next stream
  shift_buffer,         ///< offset in its pool, by the pool's alignment
  shift_operand,        ///< offset in its buffer, by one element
  shift_rank,           ///< an operand's distance between two ranks, by one element
  shift_parameter,      ///< offset in its group, by one element
  shift_group,          ///< offset in a buffer that holds it (part: which), by one element
  release_early,        ///< before the last op that touches the buffer
  acquire_late,         ///< after the first op that touches the buffer
  change_count,         ///< of only the collective (part 0), or also of its operands (1)
  change_shape,         ///< one dim of an operand; of a copy, of both
  change_attribute,     ///< an integer of a kernel: rows, beta, ...
  change_repeat,        ///< of a segment
  change_scale,         ///< an update, or the norm, loses 1/T or the clip factor
  change_dtype,         ///< of an operand; of only a collective (part 2), or also its operands (3)
  change_buffer_dtype,
  change_group_dtype,
  change_reduction,     ///< none to sum and back
  change_collective,    ///< all_gather to all_reduce to reduce_scatter to all_to_all
  change_communicator,  ///< to the next one of the same size
  change_contents,      ///< what a buffer holds: see ContentsPart
  change_placement,     ///< of a group: see PlacementPart
  change_op_group,      ///< an op names the next group
  change_microbatches,  ///< that a segment begins
  change_lag,           ///< of an op that has one
  change_instances,     ///< of a buffer (part 0) or event (1) that has several
  change_distance,      ///< of a wait's binding (part: which) to an event that has several
  change_peer,          ///< of a send or recv: distance plus or minus one
  change_call_lag       ///< of a segment's call (part: which)
};

constexpr auto value_names(MutantKind) {
  return name_array("drop_wait", "drop_record", "drop_collective", "drop_copy", "drop_kernel",
                    "drop_acquire", "drop_release", "double_collective", "double_kernel",
                    "swap_neighbours", "swap_on_stream", "reorder_collectives", "change_stream",
                    "shift_buffer", "shift_operand", "shift_rank", "shift_parameter", "shift_group",
                    "release_early", "acquire_late", "change_count", "change_shape",
                    "change_attribute", "change_repeat", "change_scale", "change_dtype",
                    "change_buffer_dtype", "change_group_dtype", "change_reduction",
                    "change_collective", "change_communicator", "change_contents",
                    "change_placement", "change_op_group", "change_microbatches", "change_lag",
                    "change_instances", "change_distance", "change_peer", "change_call_lag");
}

/// The part of a buffer's contents that is changed.
enum class ContentsPart : std::uint32_t { group, placement, kind, port };
/// The part of a group that is sharded differently, or reduced over one axis less.
enum class PlacementPart : std::uint32_t { weight, gradient, state, reduce };

/// Contains positions, not ids. Positions of buffers and groups are those in the program's lists.
struct Mutant {
  MutantKind kind = MutantKind::drop_wait;
  std::uint32_t plan = 0;
  std::uint32_t list = 0;   ///< of ops (core/plan/instances.hpp); below the segments, a segment
  std::uint32_t index = 0;  ///< of the op in its list, or of the buffer or group
  std::uint32_t part = 0;   ///< operand, attribute, parameter, ...; see the kinds
  std::uint32_t dim = 0;    ///< of the operand, or rank stride
  std::int64_t by = 0;      ///< the added amount, or the new value of an enumeration

  friend bool operator==(const Mutant&, const Mutant&) = default;
};

/// Calls `visit` with every mutant of the program until it returns false. The order depends only on
/// the program. Some mutants do not apply (apply()).
void for_each_mutant(const Program& program, const std::function<bool(const Mutant&)>& visit);

/// The program with that fault. None if the program would be unchanged, or has no such op or part.
/// Waits are bound to the records that they get in the new order.
[[nodiscard]] std::optional<Program> apply(const Program& program, const Mutant& mutant);

/// "shift_operand +2: train/first op 17 kernel layers.0.qkv (compute), operand 2 output"
[[nodiscard]] std::string describe(const Program& program, const Mutant& mutant);

}  // namespace mfsdp
