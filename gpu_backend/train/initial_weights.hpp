// The weights before the first step: equal for any world size, mesh and strategy.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp {

/// Standard deviation of matrices and embeddings: `initializer_range` of Hugging Face's Llama.
inline constexpr double kInitialDeviation = 0.02;

/// Elements [begin, begin + out.size()) of a parameter, a pure function of seed, parameter name
/// and element:
///   norm weights 1, biases 0, all others normal(0, deviation);
///   deviation 0.02, and 0.02 / sqrt(2 layers) for the two matrices of a block that write into the
///   residual stream, as in GPT-2 and Megatron-LM, so that its variance does not grow with depth.
/// Random numbers: philox4x32 with the seed as key and (element / 4, hash of the name) as counter;
/// each block gives four normals by Box and Muller's method.
void initial_values(const PlacedParameter& parameter, std::int64_t layers, std::uint64_t seed,
                    std::int64_t begin, std::span<float> out);

/// Fills what the rank holds of every parameter: main weights with the fp32 values, compute
/// weights with their rounding (which is all there is in a plan without main weights). Clears
/// moments, main gradients and padding.
[[nodiscard]] Result<void> fill_initial_state(Backend& backend, const Program& program,
                                              const BufferBytes& bytes,
                                              const std::vector<ParameterPlaces>& parameters,
                                              std::uint64_t seed);

}  // namespace mfsdp
