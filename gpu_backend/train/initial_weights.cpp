#include "gpu_backend/train/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>
#include <string_view>
#include <vector>

#include "core/runtime/scalar.hpp"
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

void store(std::span<const float> values, const HeldElements& held, std::int64_t begin) {
  with_floating(held.dtype, [&]<class T>(T) {
    T* to = reinterpret_cast<T*>(held.data) + (begin - held.elements.begin);
    std::ranges::transform(values, to, [](float value) { return narrow<T>(value); });
  });
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

Result<void> fill_initial_state(const Program& program, const BufferBytes& bytes,
                                const std::vector<ParameterPlaces>& parameters,
                                std::uint64_t seed) {
  for (const Group& group : program.groups) {
    MFSDP_LET(buffers, find_group_buffers(program, group));
    for (const Buffer* buffer : {buffers.weight, buffers.main_weight, buffers.gradient,
                                 buffers.moments[0], buffers.moments[1]}) {
      if (buffer == nullptr) continue;
      const std::span<std::byte> all = bytes(buffer->id);
      std::memset(all.data(), 0, all.size());
    }
  }
  constexpr std::int64_t kPiece = 4096;
  std::vector<float> piece(kPiece);
  for (const ParameterPlaces& places : parameters) {
    const Interval& held = places.weight.elements;
    for (std::int64_t begin = held.begin; begin < held.end; begin += kPiece) {
      const std::span<float> values(piece.data(),
                                    static_cast<std::size_t>(std::min(kPiece, held.end - begin)));
      initial_values(*places.parameter, program.config.model.layers, seed, begin, values);
      store(values, places.weight, begin);
      const Interval& own = places.own.elements;
      const std::int64_t from = std::max(begin, own.begin);
      const std::int64_t to = std::min(begin + std::ssize(values), own.end);
      if (from < to)
        store(values.subspan(static_cast<std::size_t>(from - begin),
                             static_cast<std::size_t>(to - from)),
              places.own, from);
    }
  }
  return {};
}

}  // namespace mfsdp
