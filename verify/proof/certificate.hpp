// The certificate of a proof: verify/checker re-checks it with the plan's JSON alone.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/job.hpp"

namespace mfsdp {

inline constexpr std::string_view kCertificateSchema = "mfsdp.certificate/1";

/// The certificate of a job that proves without errors, as JSON on one line with sorted keys:
///
///   schema      kCertificateSchema
///   checksum    128 bits (XXH3) of the claims, as written here
///   claims
///     plan      the plan's hash
///     plans[]   one for each plan of the program, in its order. A job of several classes has
///               classes[] instead, each with its plans[]
///     clocks[]  [instance, chain, count, chain, count...]: from this instance on, its chain knows
///               that the given number of instances of other chains have ended. Instances are
///               numbered from 0 in host order over two steps, repeated segments twice; all their
///               repetitions where these use other instances of buffers or events, work on earlier
///               microbatches, or are of a job of several classes. Chains are streams in the
///               program's order, then the host. What a clock does not name stays as it was.
///     collectives    128 bits over the list, by communicator, of the [kind, count, dtype] that it
///               issues in a step
///
/// Errors: those of prove_job(), the first finding that is an error, or too many repetitions.
[[nodiscard]] Result<std::string> certificate_of(const Job& job);

/// The same without a proof: of a job that was proved before, or of a wrong one, which the checker
/// has to refuse. Requires that its ids resolve.
[[nodiscard]] Result<std::string> unproved_certificate(const Job& job);

/// A wrong certificate, for tests: that of another job, whose ids resolve, with this plan's hash.
[[nodiscard]] Result<std::string> forged_certificate(const Job& job, const Job& other);

/// The same of a job of one program.
[[nodiscard]] inline Result<std::string> certificate_of(const Program& program) {
  return certificate_of(Job{.programs = {program}});
}
[[nodiscard]] inline Result<std::string> unproved_certificate(const Program& program) {
  return unproved_certificate(Job{.programs = {program}});
}

}  // namespace mfsdp
