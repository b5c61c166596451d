#include "verify/proof/prove.hpp"

namespace mfsdp {

Result<Proof> prove(const Program& program, const ProofSettings& settings) {
  static_cast<void>(settings);
  Proof proof;
  for (const Plan& plan : program.plans)
    for (const Segment& segment : plan.segments) proof.ops += std::ssize(segment.ops);
  return proof;
}

}  // namespace mfsdp
