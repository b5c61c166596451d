// The weights before the first step: equal for any world size, mesh and strategy.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "core/plan/plan.hpp"
#include "core/runtime/backend.hpp"
#include "gpu_backend/train/parameter_places.hpp"

namespace mfsdp {

/// A source of weights. Several threads read at once.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  /// Elements [begin, begin + out.size()) of a parameter.
  [[nodiscard]] virtual Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                          std::span<double> out) const = 0;
};

/// Standard deviation of matrices and embeddings: `initializer_range` of Hugging Face's Llama.
inline constexpr double kInitialDeviation = 0.02;

/// Elements [begin, begin + out.size()) of a parameter: a pure function of seed, parameter name and
/// element:
///   norm weights `norm_weight`, biases 0, all others normal(0, deviation);
///   deviation 0.02, and 0.02 / sqrt(2 layers) for the two matrices of a block that write into the
///   residual stream, as in GPT-2 and Megatron-LM, so that its variance does not grow with depth;
///   of adapters (LoRA) B 0, and A uniform within 1 / sqrt(inputs), as PEFT has it: Kaiming's rule
///   with a = sqrt(5).
/// Random numbers: philox4x32 with the seed as key and (element / 4, hash of the name) as counter;
/// each block gives four normals by Box and Muller's method.
void initial_values(const PlacedParameter& parameter, std::int64_t layers, std::uint64_t seed,
                    std::int64_t begin, std::span<float> out, double norm_weight = 1);

/// initial_values of a model with this number of layers. Norm weights begin with 0 if they multiply
/// by 1 + weight.
class RandomWeights final : public WeightSource {
 public:
  RandomWeights(std::int64_t layers, std::uint64_t seed, bool zero_centered_norms = false)
      : layers_(layers), seed_(seed), norm_weight_(zero_centered_norms ? 0 : 1) {}
  [[nodiscard]] Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                  std::span<double> out) const override;

 private:
  std::int64_t layers_;
  std::uint64_t seed_;
  double norm_weight_;
};

/// `model` gives the model's own parameters, `adapters` those of adapters. Both outlive this
/// object.
class WeightsWithAdapters final : public WeightSource {
 public:
  WeightsWithAdapters(const WeightSource& model, const WeightSource& adapters)
      : model_(model), adapters_(adapters) {}
  [[nodiscard]] Result<void> read(const PlacedParameter& parameter, std::int64_t begin,
                                  std::span<double> out) const override;

 private:
  const WeightSource& model_;
  const WeightSource& adapters_;
};

/// Writes zeros to weights, main weights, main gradients and optimizer states, padding included.
[[nodiscard]] Result<void> clear_state(Backend& backend, const Program& program,
                                       const BufferBytes& bytes);

/// Fills the elements of every parameter that the rank holds: main weights with the source's
/// values, compute weights with their rounding. A plan without main weights has only the latter.
[[nodiscard]] Result<void> fill_initial_weights(Backend& backend,
                                                const std::vector<ParameterPlaces>& parameters,
                                                const WeightSource& weights);

}  // namespace mfsdp
