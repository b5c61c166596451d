// Kernels of weights that are stored in fewer bits than they are computed with.
#pragma once

#include <cstdint>

#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/element_types.hpp"

namespace mfsdp::kernels {

/// Weights of 4 bits in the compute dtype (core/plan/nf4.hpp). No executor has it: it is planned and
/// priced by its bytes.
template <class T>
struct Dequantise {
  const std::uint8_t* stored = nullptr;  ///< [bytes]
  const float* means = nullptr;          ///< [parameters], of their scales
  T* output = nullptr;                   ///< [elements]

  void state(auto& op) {
    op.reads("input", stored, {"bytes"});
    op.reads("mean", means, {"parameters"});
    op.writes("output", output, {"elements"});
  }
};

}  // namespace mfsdp::kernels
