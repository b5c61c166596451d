// How findings call streams, ops, steps and repetitions. A Place counts steps and repetitions from
// 0; text for people counts them from 1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/plan/plan.hpp"
#include "verify/findings/finding.hpp"

namespace mfsdp {

/// "compute", ..., by position in Program::streams, with the id where several have that role;
/// "host" for none.
[[nodiscard]] std::string stream_name(const Program& program, std::optional<std::size_t> stream);

/// The op's name, with its kind where the name alone is ambiguous: "wait used.w".
[[nodiscard]] std::string op_label(const Op& op);

/// The place of an op of the plan where no instance of it is meant: step and repetition are 0, and
/// `segment` is the segment or the pass that has it.
[[nodiscard]] Place place_in_plan(const Plan& plan, const Op& op, std::string stream = {});

/// "name (stream)", as messages speak of a place.
[[nodiscard]] std::string to_text(const Place& place);

/// "name (stream) in step 1"
[[nodiscard]] std::string text_in_step(const Place& place);

/// "step 1" for step 0.
[[nodiscard]] std::string step_name(std::int64_t step);

/// "middle" for repetition 0 of that segment in its step, "middle repetition 2" for the next.
[[nodiscard]] std::string repetition_name(std::string_view segment, std::int64_t repetition);

}  // namespace mfsdp
