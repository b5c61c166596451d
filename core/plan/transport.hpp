// The traits of each transport of collectives, one row each: code asks for the trait and not for the
// transport. sim/cost/transport_prices.hpp has the prices; gpu_backend/cuda (communicators.cpp,
// transport_check.cpp) sets NCCL up and checks the kernels that it queues. Proofs and checker have
// rules of their own.
#pragma once

#include <array>
#include <cstddef>

#include "core/base/vocabulary.hpp"

namespace mfsdp {

struct TransportTraits {
  Transport transport = Transport::nccl;
  /// Its operands lie in symmetric memory: all members see it, at equal offsets.
  bool uses_windows = true;
  bool holds_sms = true;  ///< kernels move the bytes
  bool adds = true;  ///< it sums; otherwise gradients go through an all-to-all, and a kernel of
                     ///< mfsdp sums them
  bool adds_fp64 = true;  ///< it, or that kernel, sums fp64
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
