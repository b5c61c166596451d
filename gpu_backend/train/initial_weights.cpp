#include "gpu_backend/train/initial_weights.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <thread>

#include "core/model/lora.hpp"
#include "gpu_backend/train/held_values.hpp"
#include "gpu_backend/train/philox.hpp"

namespace mfsdp {
namespace {

constexpr unsigned kMostReaders = 16;  ///< threads; each holds a piece

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

/// Elements 4 * block to 4 * block + 3, uniform between -1 and 1.
std::array<double, 4> four_uniforms(std::uint64_t seed, std::uint64_t name, std::uint64_t block) {
  const auto words =
      philox4x32({low(block), high(block), low(name), high(name)}, {low(seed), high(seed)});
  std::array<double, 4> uniforms{};
  for (std::size_t i = 0; i < 4; ++i) uniforms[i] = (words[i] + 0.5) * 0x1p-31 - 1;
  return uniforms;
}

/// The value of all elements, the deviation of normal ones, or the bound of uniform ones.
struct Start {
  enum class Kind { constant, normal, uniform } kind = Kind::constant;
  double value = 0;
};

Start start_of(const PlacedParameter& parameter, std::int64_t layers, double norm_weight) {
  using enum Start::Kind;
  if (is_lora(parameter.role)) {
    if (parameter.name.find(".lora_A.") == std::string::npos) return {.kind = constant, .value = 0};
    const auto inputs = static_cast<double>(parameter.shape.back());
    return {.kind = uniform, .value = 1 / std::sqrt(inputs)};
  }
  switch (parameter.role) {
    case ParameterRole::input_norm:
    case ParameterRole::q_norm:
    case ParameterRole::k_norm:
    case ParameterRole::q_a_norm:
    case ParameterRole::kv_a_norm:
    case ParameterRole::post_norm:
    case ParameterRole::attention_output_norm:
    case ParameterRole::mlp_output_norm:
    case ParameterRole::final_norm: return {.kind = constant, .value = norm_weight};
    case ParameterRole::input_norm_bias:
    case ParameterRole::post_norm_bias:
    case ParameterRole::final_norm_bias:
    case ParameterRole::attention_out_bias:
    case ParameterRole::gate_up_bias:
    case ParameterRole::down_bias:
    case ParameterRole::router_bias:
    case ParameterRole::router_correction:
    case ParameterRole::experts_gate_up_bias:
    case ParameterRole::experts_down_bias:
    case ParameterRole::qkv_bias: return {.kind = constant, .value = 0};
    case ParameterRole::attention_out:
    case ParameterRole::down:
    case ParameterRole::experts_down:
    case ParameterRole::shared_down:
      return {.kind = normal,
              .value = kInitialDeviation / std::sqrt(2 * static_cast<double>(layers))};
    case ParameterRole::embedding:
    case ParameterRole::position_embedding:
    case ParameterRole::qkv:
    case ParameterRole::gate_up:
    case ParameterRole::router:
    case ParameterRole::experts_gate_up:
    case ParameterRole::head:
    default: break;
  }
  return {.kind = normal, .value = kInitialDeviation};
}

/// Consecutive elements of a parameter, in the format of their buffers.
struct ReadPiece {
  std::vector<std::byte> weight;  ///< all of them, rounded to the compute dtype
  Interval own;                   ///< those that the rank updates
  std::vector<std::byte> updated = {};
};

/// In the order in which the rank holds them.
Result<void> read_values_of(const WeightSource& weights, const ParameterPlaces& places,
                            const Interval& piece, std::span<double> values) {
  if (places.order == nullptr) return weights.read(*places.parameter, piece.begin, values);
  Result<void> outcome;
  places.order->in_parameter(
      piece, [&](std::int64_t begin, std::int64_t place, std::int64_t count) {
        if (!outcome) return;
        outcome = weights.read(*places.parameter, place,
                               values.subspan(static_cast<std::size_t>(begin - piece.begin),
                                              static_cast<std::size_t>(count)));
      });
  return outcome;
}

Result<ReadPiece> read_piece(const WeightSource& weights, const ParameterPlaces& places,
                             const Interval& piece) {
  std::vector<double> values(static_cast<std::size_t>(piece.size()));
  MFSDP_TRY(read_values_of(weights, places, piece, values));
  ReadPiece read{.weight = rounded(values, places.weight.dtype),
                 .own = common_part(piece, places.own.elements)};
  if (!read.own.empty())
    read.updated =
        rounded(std::span(values).subspan(static_cast<std::size_t>(read.own.begin - piece.begin),
                                          static_cast<std::size_t>(read.own.size())),
                places.own.dtype);
  return read;
}

Result<void> upload_piece(Backend& backend, const ParameterPlaces& places, const Interval& piece,
                          const ReadPiece& read) {
  MFSDP_TRY(upload_elements(backend, places.weight, piece, read.weight));
  if (read.updated.empty()) return {};
  return upload_elements(backend, places.own, read.own, read.updated);
}

/// Fills one parameter. Several threads read pieces, because generating random numbers takes far
/// longer than copying them. This thread uploads the pieces in order.
Result<void> fill_parameter(Backend& backend, const ParameterPlaces& places,
                            const WeightSource& weights) {
  std::vector<Interval> pieces;
  MFSDP_TRY(for_each_piece(places.weight.elements, [&](const Interval& piece) -> Result<void> {
    pieces.push_back(piece);
    return {};
  }));
  const std::size_t most = std::clamp(std::thread::hardware_concurrency(), 1U, kMostReaders);
  for (std::size_t first = 0; first < pieces.size(); first += most) {
    const std::size_t count = std::min(most, pieces.size() - first);
    std::vector<Result<ReadPiece>> read(count);
    {
      std::vector<std::jthread> readers;
      for (std::size_t i = 1; i < count; ++i)
        readers.emplace_back([&, i] { read[i] = read_piece(weights, places, pieces[first + i]); });
      read[0] = read_piece(weights, places, pieces[first]);
    }
    for (std::size_t i = 0; i < count; ++i) {
      if (!read[i]) return tl::unexpected<Error>(read[i].error());
      MFSDP_TRY(upload_piece(backend, places, pieces[first + i], *read[i]));
    }
  }
  return {};
}

}  // namespace

void initial_values(const PlacedParameter& parameter, std::int64_t layers, std::uint64_t seed,
                    std::int64_t begin, std::span<float> out, double norm_weight) {
  const Start start = start_of(parameter, layers, norm_weight);
  if (start.kind == Start::Kind::constant) {
    std::ranges::fill(out, static_cast<float>(start.value));
    return;
  }
  const auto four = start.kind == Start::Kind::normal ? four_normals : four_uniforms;
  const std::uint64_t name = hash_of(parameter.name);
  const auto first = static_cast<std::uint64_t>(begin);
  std::array<double, 4> values{};
  for (std::size_t i = 0; i < out.size(); ++i) {
    const std::uint64_t element = first + i;
    if (i == 0 || element % 4 == 0) values = four(seed, name, element / 4);
    out[i] = static_cast<float>(start.value * values.at(element % 4));
  }
}

Result<void> RandomWeights::read(const PlacedParameter& parameter, std::int64_t begin,
                                 std::span<double> out) const {
  std::vector<float> values(out.size());
  initial_values(parameter, layers_, seed_, begin, values, norm_weight_);
  std::ranges::copy(values, out.begin());
  return {};
}

Result<void> WeightsWithAdapters::read(const PlacedParameter& parameter, std::int64_t begin,
                                       std::span<double> out) const {
  return (is_lora(parameter.role) ? adapters_ : model_).read(parameter, begin, out);
}

Result<void> clear_state(Backend& backend, const Program& program, const BufferBytes& bytes) {
  for (const Group& group : program.groups) {
    if (!holds_group(program, group)) continue;
    MFSDP_LET(buffers, find_group_buffers(program, group));
    for (const GroupBuffer* found : buffers.all())
      if (found->buffer != nullptr) MFSDP_TRY(clear(backend, bytes(found->buffer->id)));
  }
  return {};
}

Result<void> fill_initial_weights(Backend& backend, const std::vector<ParameterPlaces>& parameters,
                                  const WeightSource& weights) {
  for (const ParameterPlaces& places : parameters)
    MFSDP_TRY(fill_parameter(backend, places, weights));
  return {};
}

}  // namespace mfsdp
