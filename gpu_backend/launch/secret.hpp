// The secret that the ranks of a run share, and functions that use it.
#pragma once

#include <array>
#include <cstddef>
#include <span>

#include "core/base/error.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

/// 256 bits: an HMAC-SHA256 or a nonce.
using Bits256 = std::array<std::byte, 32>;

/// HMAC with SHA-256 (RFC 2104, FIPS 198-1) of the message. The key has any length, 0 included.
[[nodiscard]] Bits256 hmac_sha256(std::span<const std::byte> key,
                                  std::span<const std::byte> message);

/// Compares in a time that does not depend on where the two differ.
[[nodiscard]] bool equal_in_constant_time(const Bits256& a, const Bits256& b);

/// From the operating system's generator.
[[nodiscard]] Bits256 random_bits();

/// Fills in launch.secret, before any rank is started:
///
///   MFSDP_SECRET, or the content of the file that MFSDP_SECRET_FILE names
///   all ranks are started by this process      a random secret
///   another launcher's ranks, all on one host  none; they meet on the loopback interface
///   ranks on several hosts                     none with `insecure`, else an error
///
/// Errors name the variable: both are set; fewer than 16 bytes or more than 4096; a file that
/// cannot be read, is no regular file, or may be read by users other than its owner; `insecure`
/// together with a secret.
[[nodiscard]] Result<void> settle_secret(const Environment& environment, bool insecure,
                                         RankLaunch& launch);

}  // namespace mfsdp
