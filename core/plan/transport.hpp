// What each transport of collectives can do: one row for each, so that code asks for the trait and
// not for the transport. What it costs is in sim/cost/transport_prices.hpp, how NCCL is told of it
// in gpu_backend/cuda/transport_check.cpp; proofs and checker have rules of their own.
#pragma once

#include <array>
#include <cstddef>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

struct TransportTraits {
  Transport transport;
  /// Its operands lie in windows: memory that all members see, at equal offsets.
  bool uses_windows = true;
  bool holds_sms = true;  ///< kernels move the bytes
  bool adds = true;       ///< reductions; otherwise it deals them out, and a kernel of ours adds
  bool adds_fp64 = true;  ///< itself, or that kernel
};

/// In the order of Transport.
inline constexpr std::array kTransports{
    TransportTraits{.transport = Transport::nccl, .uses_windows = false},
    TransportTraits{.transport = Transport::symmetric, .adds_fp64 = false},
    TransportTraits{.transport = Transport::copy_engine, .holds_sms = false, .adds = false}};

static_assert([] {
  for (std::size_t i = 0; i < kTransports.size(); ++i)
    if (static_cast<std::size_t>(kTransports[i].transport) != i) return false;
  return kTransports.size() == Names<Transport>::values.size();
}());

[[nodiscard]] constexpr const TransportTraits& traits_of(Transport transport) {
  return kTransports.at(static_cast<std::size_t>(transport));
}

}  // namespace mfsdp
