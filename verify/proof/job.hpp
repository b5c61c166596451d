// Classes of ranks that run together, proved as one: each class by itself, then what passes between
// them.
//
// Each class's plan is written out in full, as classes have segments of their own and their
// repetitions need not be alike. Every rank of the mesh then runs its collectives, sends and recvs
// (rank_sequences.hpp). If all reach the end, contents are followed through all classes together,
// each until it waits for a message: values of the model, 1/T and the norm. Weights
// and gradients are each class's own affair.
#pragma once

#include <vector>

#include "core/plan/job.hpp"
#include "verify/proof/prove.hpp"

namespace mfsdp {

struct JobProof {
  std::vector<Proof> classes;     ///< in the job's order; their findings are in the list below
  std::vector<Finding> findings;  ///< by rule; of several classes, streams begin with the role

  friend bool operator==(const JobProof&, const JobProof&) = default;
};

/// Proves a job whose classes are sound (core/plan/job.hpp). For one class without sends, this
/// is prove(). Errors: those of prove().
[[nodiscard]] Result<JobProof> prove_job(const Job& job, const ProofSettings& settings = {});

}  // namespace mfsdp
