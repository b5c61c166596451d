// The judgements of mfsdp-verify, one for each kind of subject.
#pragma once

#include <functional>
#include <map>
#include <string>

#include "core/base/error.hpp"
#include "core/cli/exit_code.hpp"
#include "core/plan/job.hpp"
#include "reports/session/session.hpp"
#include "verify/conformance/conformance.hpp"
#include "verify/mutation/mutate_fields.hpp"
#include "verify/tool/verify_options.hpp"

namespace mfsdp {

/// Judges the plan, the traces or the configurations that the options name, and prints the
/// findings. Returns `negative` if a finding is an error; notes are not. `machines` run the mutants
/// of --mutate-fields in which the proofs find nothing.
[[nodiscard]] Result<ExitCode> judge(const VerifyOptions& options, const Session& session,
                                     const Machines& machines);

/// Proves a plan, writes or re-checks its certificate, or judges its mutants.
/// Returns `negative` if the plan is wrong, its certificate is refused, a mutant is neither found
/// nor certified, or the change of a field is not found.
[[nodiscard]] Result<ExitCode> judge_plan(const VerifyOptions& options, const Session& session,
                                          const Machines& machines);

/// The variables of --env by name.
[[nodiscard]] std::map<std::string, std::string, std::less<>> environment_of(
    const VerifyOptions& options);

/// Judges a plan in which several classes of ranks run together, or several microbatches are in
/// flight, as judge_plan() does. Writes the job to --plan-out if given. Every rank is checked, with
/// or without --expand. --mutate and --mutate-pairs need plans without these: else the error names
/// the flag.
[[nodiscard]] Result<ExitCode> judge_job(const Job& job, const VerifyOptions& options,
                                         const Session& session, const Machines& machines);

// Parts of these.

/// Writes the certificate of a job that was proved.
[[nodiscard]] Result<void> write_certificate(const std::string& path, const Job& job);
/// --check: has the checker judge the plan's text and the certificate.
[[nodiscard]] Result<ExitCode> check_plan(const Job& job, const VerifyOptions& options,
                                          const Session& session);
/// --mutate
[[nodiscard]] Result<ExitCode> mutate_plan(const Program& program, const VerifyOptions& options,
                                           const Session& session);
/// --mutate-fields, and --mutate-pairs, which needs a job of one program.
[[nodiscard]] Result<ExitCode> mutate_plan_fields(const Job& job, const VerifyOptions& options,
                                                  const Session& session, const Machines& machines);

// Records of collectives from ranks of other trainers.

/// --flight-recorder: dumps of PyTorch, one for each rank.
[[nodiscard]] Result<ExitCode> judge_flight_dumps(const VerifyOptions& options,
                                                  const Session& session);
/// --nccl-inspector: logs of NCCL's profiler plugin, one for each process.
[[nodiscard]] Result<ExitCode> judge_inspector_logs(const VerifyOptions& options,
                                                    const Session& session);

struct RunConformance {
  std::string subject;  ///< "mfsdp.sqlite: run 0123..."
  std::string plan_hash;
  Conformance conformance;
};

/// Compares a run of the store with the plan that it followed.
/// Uses the plan of --plan, or builds it anew from the stored configuration. The plan must have the
/// hash that the run stored. Errors: no such store or run, a run without launches, another plan.
[[nodiscard]] Result<RunConformance> conform(const VerifyOptions& options, const Session& session);

}  // namespace mfsdp
