// Whether a program hangs together as data: ids, bounds, boundaries. No schedule is judged here.
#pragma once

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// Checks that ids are unique and resolve, buffers lie in their pools, operands (of every rank) in
/// their buffers, ranks, communicators, parameters and microbatches are the configured ones,
/// bindings name records of their event, groups nest, segment boundaries agree and ops are
/// well-formed, and that there is no horde of streams or segments. The error names the place as a
/// path into the JSON.
[[nodiscard]] Result<void> check_structure(const Program& program);

}  // namespace mfsdp
