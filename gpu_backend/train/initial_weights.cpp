#include "gpu_backend/train/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <vector>

#include "gpu_backend/train/held_values.hpp"
#include "gpu_backend/train/philox.hpp"

namespace mfsdp {
namespace {

/// FNV-1a, 64 bits (RFC 9923).
std::uint64_t hash_of(std::string_view name) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  return hash;
}

std::uint32_t low(std::uint64_t value) { return static_cast<std::uint32_t>(value); }
std::uint32_t high(std::uint64_t value) { return static_cast<std::uint32_t>(value >> 32U); }

/// Elements 4 * block to 4 * block + 3 of the parameter whose name has this hash.
std::array<double, 4> four_normals(std::uint64_t seed, std::uint64_t name, std::uint64_t block) {
  const auto words =
      philox4x32({low(block), high(block), low(name), high(name)}, {low(seed), high(seed)});
  const auto uniform = [](std::uint32_t word) { return (word + 0.5) * 0x1p-32; };  // never 0
  std::array<double, 4> normals{};
  for (std::size_t i = 0; i < 4; i += 2) {
    const double radius = std::sqrt(-2 * std::log(uniform(words[i])));
    const double angle = 2 * std::numbers::pi * uniform(words[i + 1]);
    normals[i] = radius * std::cos(angle);
    normals[i + 1] = radius * std::sin(angle);
  }
  return normals;
}

/// What every element has, or the deviation of random ones.
struct Start {
  bool random = false;
  double value = 0;
};

Start start_of(ParameterRole role, std::int64_t layers) {
  switch (role) {
    case ParameterRole::input_norm:
    case ParameterRole::q_norm:
    case ParameterRole::k_norm:
    case ParameterRole::post_norm:
    case ParameterRole::final_norm: return {.random = false, .value = 1};
    case ParameterRole::qkv_bias: return {.random = false, .value = 0};
    case ParameterRole::attention_out:
    case ParameterRole::down:
      return {.random = true,
              .value = kInitialDeviation / std::sqrt(2 * static_cast<double>(layers))};
    case ParameterRole::embedding:
    case ParameterRole::qkv:
    case ParameterRole::gate_up:
    case ParameterRole::head: break;
  }
  return {.random = true, .value = kInitialDeviation};
}

/// Values of `piece`, to the weights that are computed with and to the rank's own.
Result<void> upload_both(Backend& backend, const ParameterPlaces& places, const Interval& piece,
                         std::span<const double> values) {
  MFSDP_TRY(upload_values(backend, places.weight, piece.begin, values));
  const std::int64_t from = std::max(piece.begin, places.own.elements.begin);
  const std::int64_t to = std::min(piece.end, places.own.elements.end);
  if (from >= to) return {};
  return upload_values(backend, places.own, from,
                       values.subspan(static_cast<std::size_t>(from - piece.begin),
                                      static_cast<std::size_t>(to - from)));
}

}  // namespace

void initial_values(const PlacedParameter& parameter, std::int64_t layers, std::uint64_t seed,
                    std::int64_t begin, std::span<float> out) {
  const Start start = start_of(parameter.role, layers);
  if (!start.random) {
    std::ranges::fill(out, static_cast<float>(start.value));
    return;
  }
  const std::uint64_t name = hash_of(parameter.name);
  const auto first = static_cast<std::uint64_t>(begin);
  std::array<double, 4> normals{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = first + i;
    if (i == 0 || element % 4 == 0) normals = four_normals(seed, name, element / 4);
    out[i] = static_cast<float>(start.value * normals.at(element % 4));
  }
}

Result<void> RandomWeights::read(const PlacedParameter& parameter, std::int64_t begin,
                                 std::span<double> out) const {
  std::vector<float> values(out.size());
  initial_values(parameter, layers_, seed_, begin, values);
  std::ranges::copy(values, out.begin());
  return {};
}

Result<void> clear_state(Backend& backend, const Program& program, const BufferBytes& bytes) {
  for (const Group& group : program.groups) {
    MFSDP_LET(buffers, find_group_buffers(program, group));
    for (const Buffer* buffer : {buffers.weight, buffers.main_weight, buffers.gradient,
                                 buffers.moments[0], buffers.moments[1]})
      if (buffer != nullptr) MFSDP_TRY(clear(backend, bytes(buffer->id)));
  }
  return {};
}

Result<void> fill_initial_weights(Backend& backend, const std::vector<ParameterPlaces>& parameters,
                                  const WeightSource& weights) {
  std::vector<double> room;
  for (const ParameterPlaces& places : parameters) {
    const auto filled =
        for_each_piece(places.weight.elements, [&](const Interval& piece) -> Result<void> {
          room.resize(static_cast<std::size_t>(piece.size()));
          MFSDP_TRY(weights.read(*places.parameter, piece.begin, room));
          return upload_both(backend, places, piece, room);
        });
    MFSDP_TRY(filled);
  }
  return {};
}

}  // namespace mfsdp
