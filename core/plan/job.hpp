// Programs that run together: one for each class of ranks.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// All programs share configuration, streams, communicators, events, units and groups; ids of
/// pools, buffers and ops are each program's own. Where there are several, each has the one class
/// that runs it in its `classes`.
struct Job {
  std::vector<Program> programs;

  friend bool operator==(const Job&, const Job&) = default;
};

/// As of a program (core/plan/plan_json.hpp): the same text where there is one.
[[nodiscard]] std::string to_canonical_json(const Job& job);
[[nodiscard]] std::string plan_hash(const Job& job);

/// Reads a plan file of one class or several. Errors as of program_from_json().
[[nodiscard]] Result<Job> job_from_json(std::string_view text, const std::string& where);

/// The same without the check of the structure.
[[nodiscard]] Result<Job> unchecked_job_from_json(std::string_view text, const std::string& where);

/// As check_structure() of a program (core/plan/check.hpp). Beside it: each rank of the mesh is of
/// exactly one class, and all classes have plans of the same names.
[[nodiscard]] Result<void> check_structure(const Job& job);

/// The number of the class of every rank. Requires a job that was checked.
[[nodiscard]] std::vector<std::uint32_t> class_of_ranks(const Job& job);

/// Whether a program states what only proofs know so far: instances that take turns, lags, sends.
[[nodiscard]] bool is_pipelined(const Program& program);

/// The program of a job of one class that is not pipelined. The error says that the plan is for
/// mfsdp-verify alone.
[[nodiscard]] Result<Program> only_program(Job job);

}  // namespace mfsdp
