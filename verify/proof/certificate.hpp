// The certificate of a proof: verify/checker re-checks it with the plan's JSON alone.
#pragma once

#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"

namespace mfsdp {

inline constexpr std::string_view kCertificateSchema = "mfsdp.certificate/1";

/// The certificate of a program that proves without errors, as JSON on one line with sorted keys:
///
///   schema      kCertificateSchema
///   checksum    128 bits (XXH3) of the claims, as written here
///   claims
///     plan      the plan's hash
///     plans[]   one for each plan of the program, in its order
///     clocks[]  [instance, chain, count, chain, count...]: from this instance on, its chain knows
///               that the given number of instances of other chains have ended. Instances are numbered from 0
///               in host order over two steps, repeated segments twice; chains are streams in the
///               program's order, then the host. What a clock does not name stays as it was.
///     collectives    128 bits over the list, by communicator, of the [kind, count, dtype] that it
///               issues in a step; equal where plans of several classes meet
///
/// Errors: those of prove(), the first finding that is an error, or a plan with several
/// microbatches in flight (is_pipelined() of core/plan/job.hpp).
[[nodiscard]] Result<std::string> certificate_of(const Program& program);

/// The same without a proof: of a program that was proved before, or of a wrong one, which the
/// checker has to refuse. Requires that its ids resolve.
[[nodiscard]] std::string unproved_certificate(const Program& program);

/// A wrong certificate, for tests: that of another program, whose ids resolve, with this plan's hash.
[[nodiscard]] std::string forged_certificate(const Program& program, const Program& other);

}  // namespace mfsdp
