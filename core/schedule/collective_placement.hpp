// Delays gathers and reductions as --placement asks.
#pragma once

#include "core/schedule/emitter.hpp"

namespace mfsdp::schedule {

/// Reorders the ops of all plans, before their waits are bound. Ops of the streams that move
/// weights and gradients are delayed, in their order, until the next attention kernel: its stream
/// records its beginning (or end), and the streams of the delayed ops wait for that. An earlier op
/// that waits for one of them ends the delay. A gather is issued before a reduction: an NCCL launch
/// waits until the one before it has its SMs.
///
///   compute          qkv | [record] attention | o_proj | ...
///   all_gather                [wait] gather of the next unit
///   reduce_scatter            [wait] reduction of the last one
///
/// Does nothing for placement `earliest`.
void place_collectives(Emitter& emitter);

}  // namespace mfsdp::schedule
