// A job: programs that run together, one for each class of ranks.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

/// All programs share configuration, streams, communicators, events, units and groups; each has its
/// own ids of pools, buffers and ops. If there are several, `classes` of each has the class that
/// runs it.
struct Job {
  std::vector<Program> programs;

  friend bool operator==(const Job&, const Job&) = default;
};

/// As for a program (core/plan/plan_json.hpp), with equal text if there is only one.
[[nodiscard]] std::string to_canonical_json(const Job& job);
[[nodiscard]] std::string plan_hash(const Job& job);

/// Reads a plan file of one class or several. Errors as in program_from_json().
[[nodiscard]] Result<Job> job_from_json(std::string_view text, const std::string& where);

/// As job_from_json(), without checking the structure.
[[nodiscard]] Result<Job> unchecked_job_from_json(std::string_view text, const std::string& where);

/// As check_structure() of a program (core/plan/check.hpp). In addition, each rank of the mesh is
/// in exactly one class, and all classes have plans with the same names.
[[nodiscard]] Result<void> check_structure(const Job& job);

/// The index of the class of every rank. Requires the programs of a checked job.
[[nodiscard]] std::vector<std::uint32_t> class_of_ranks(std::span<const Program> programs);
[[nodiscard]] inline std::vector<std::uint32_t> class_of_ranks(const Job& job) {
  return class_of_ranks(job.programs);
}

/// Whether the rank is in the class that runs a program of a job.
[[nodiscard]] bool runs_on(const Program& program, std::int64_t rank);

/// The program that the rank runs. Likewise.
[[nodiscard]] const Program& program_of(std::span<const Program> programs, std::int64_t rank);

/// The rank whose host reads the reports of steps: the lowest one whose class has the port `report`;
/// 0 if none has.
[[nodiscard]] std::int64_t reporting_rank(std::span<const Program> programs);

/// Whether a program has several instances, lags, passes or sends.
[[nodiscard]] bool is_pipelined(const Program& program);

/// Refuses jobs of several classes or with pipelined programs, which not every tool accepts.
[[nodiscard]] Result<void> check_plain(const Job& job);

/// The program of a job that check_plain() accepts, or its error.
[[nodiscard]] Result<Program> only_program(Job job);

}  // namespace mfsdp
