// A program as JSON text and back, and its hash.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

inline constexpr std::string_view kPlanSchema = "mfsdp.plan/2";
/// The schema of earlier versions, in which readers inferred some fields.
inline constexpr std::string_view kFirstPlanSchema = "mfsdp.plan/1";

/// Canonical JSON: one line, sorted keys, integers and exact rationals only; fields that are null,
/// false or empty are left out. `meta.hash` is the program's hash at the time of writing.
[[nodiscard]] std::string to_canonical_json(const Program& program);

/// Reads such text, in any formatting. Every error names the file and the place
/// ("plan.json: plans[0].segments[1].ops[17].stream: expected ..."). The structure is checked
/// (core/plan/check.hpp); a stored hash that differs is kept in meta and is not an error.
/// Plans of several classes of ranks or microbatches are refused: job_from_json() of
/// core/plan/job.hpp reads these.
[[nodiscard]] Result<Program> program_from_json(std::string_view text, const std::string& where);

/// Reads a plan of one class without checking its structure, for proofs of wrong plans.
[[nodiscard]] Result<Program> unchecked_program_from_json(std::string_view text,
                                                          const std::string& where);

/// 128 bits (XXH3) over the canonical JSON without `meta`, as 32 hexadecimal digits.
[[nodiscard]] std::string plan_hash(const Program& program);

}  // namespace mfsdp
