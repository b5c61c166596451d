// How much of a sample is looked at.
#pragma once

namespace mfsdp::test {

/// Sanitizers make code ten to forty times slower, and look for faults that every case of a sample
/// can show: there it is so many times smaller. Release builds look at all of it.
#ifdef MFSDP_SANITIZED
inline constexpr int kThinner = 8;
#else
inline constexpr int kThinner = 1;
#endif

/// How many of so many cases.
constexpr int thinned(int cases) { return (cases + kThinner - 1) / kThinner; }

}  // namespace mfsdp::test
