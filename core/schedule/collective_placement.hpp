// When gathers and reductions begin: what --placement asks of the order that was emitted.
#pragma once

#include "core/schedule/emitter.hpp"

namespace mfsdp::schedule {

/// Reorders the ops of all plans, before their waits are bound. Ops of the streams that move
/// weights and gradients are held back, in their order, until the next attention kernel: its stream
/// records that it begins (or has ended), and the streams of what was held back wait for that.
/// Whatever waits for one of them before has them issued at once. A gather is issued before a
/// reduction: NCCL makes a launch wait until the one before it has its SMs.
///
///   compute          qkv | [record] attention | o_proj | ...
///   all_gather                [wait] gather of the next unit
///   reduce_scatter            [wait] reduction of the last one
///
/// Does nothing where collectives begin as early as they can.
void place_collectives(Emitter& emitter);

}  // namespace mfsdp::schedule
