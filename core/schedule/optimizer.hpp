// The end of a step: loss, norm, update, refresh, readback.
#pragma once

#include "core/schedule/emitter.hpp"
#include "core/schedule/state.hpp"

namespace mfsdp::schedule {

/// Sums loss and valid tokens over all ranks, after the last microbatch's head:
///   outer     AG sums, loss_finish -> report (mean loss, 1/T)
/// `trains`: gradients were computed too, scaled as the loss.
void emit_loss(Emitter& emitter, const State& state, const std::string& event_prefix, bool trains);

/// The segment's ops after the loss:
///   outer     AG norm partials, norm_finish -> report (norm, clip factor)
///   h2d       step block
///   compute   update of every group, in the order in which the next step needs it; without the
///             norm, in the order in which gradients arrive
///             (with Muon in rounds of blocks: orthogonal.hpp)
///   refresh   all_gather (whole weights) or outer (HFSDP), group by group after the update
///   d2h       report; the host stays at most two steps ahead of it
/// Stages of a pipeline send their norm partials to the last one, which finishes loss and norm and
/// has the report sent back from stage to stage.
void emit_optimizer(Emitter& emitter, const State& state);

/// Copies the report to the host after `event`.
void emit_readback(Emitter& emitter, const State& state, const std::string& event,
                   const std::string& event_prefix);

}  // namespace mfsdp::schedule
