// Ranks of cp that have the keys and values of one rank at a time.
#pragma once

#include "verify/checker/step_state.hpp"

namespace mfsdp::checker {

/// The op adds values that are made with the keys of some ranks to those made with the keys of
/// others.
void add_ring_parts(StepState& state, const Op& op);

}  // namespace mfsdp::checker
