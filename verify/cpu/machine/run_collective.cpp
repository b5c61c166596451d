#include "verify/cpu/machine/run_collective.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "core/runtime/scalar.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kBlock = 1024;  ///< elements summed at a time

/// Sums elements [begin, begin + count) of all inputs; `store(offset, sums)` takes each block. All
/// inputs of a block are read before it is stored, so outputs may be inputs.
template <class T, class Store>
void sum_blocks(std::span<const Member> members, std::size_t begin, std::size_t count,
                Store store) {
  std::array<Real<T>, kBlock> sums;
  std::array<T, kBlock> rounded;
  for (std::size_t at = begin; at < begin + count; at += kBlock) {
    const std::size_t size = std::min(kBlock, begin + count - at);
    const auto input = [&](const Member& member) {
      return reinterpret_cast<const T*>(member.input) + at;
    };
    const T* first = input(members.front());
    for (std::size_t i = 0; i < size; ++i) sums[i] = widen(first[i]);
    for (const Member& member : members.subspan(1)) {
      const T* next = input(member);
      for (std::size_t i = 0; i < size; ++i) sums[i] += widen(next[i]);
    }
    for (std::size_t i = 0; i < size; ++i) rounded[i] = narrow<T>(sums[i]);
    store(at - begin, std::span<const T>(rounded).first(size));
  }
}

/// The largest of each element of all inputs; a NaN stays.
void all_max(std::size_t count, std::span<const Member> members) {
  std::vector<float> most(count);
  std::memcpy(most.data(), members.front().input, count * sizeof(float));
  for (const Member& member : members.subspan(1)) {
    const auto* next = reinterpret_cast<const float*>(member.input);
    for (std::size_t i = 0; i < count; ++i)
      if (!(next[i] <= most[i]) && !std::isnan(most[i])) most[i] = next[i];
  }
  for (const Member& member : members)
    std::memcpy(member.output, most.data(), count * sizeof(float));
}

/// The sum of each int32 of all inputs.
void add_counts(std::size_t count, std::span<const Member> members) {
  std::vector<std::int32_t> sums(count);
  for (const Member& member : members) {
    const auto* next = reinterpret_cast<const std::int32_t*>(member.input);
    for (std::size_t i = 0; i < count; ++i) sums[i] += next[i];
  }
  for (const Member& member : members)
    std::memcpy(member.output, sums.data(), count * sizeof(std::int32_t));
}

template <class T>
void put(std::byte* output, std::size_t at, std::span<const T> values) {
  std::memcpy(output + at * sizeof(T), values.data(), values.size_bytes());
}

template <class T>
void reduce(const Collective& collective, std::span<const Member> members) {
  const auto count = static_cast<std::size_t>(collective.count);
  if (collective.kind == CollectiveKind::all_reduce) {
    sum_blocks<T>(members, 0, count, [&](std::size_t at, std::span<const T> sums) {
      for (const Member& member : members) put(member.output, at, sums);
    });
    return;
  }
  for (std::size_t m = 0; m < members.size(); ++m)
    sum_blocks<T>(members, m * count, count, [&](std::size_t at, std::span<const T> sums) {
      put(members[m].output, at, sums);
    });
}

void gather(std::span<const Member> members, std::size_t bytes) {
  for (const Member& member : members)
    for (std::size_t from = 0; from < members.size(); ++from) {
      std::byte* to = member.output + from * bytes;
      if (to != members[from].input) std::memcpy(to, members[from].input, bytes);
    }
}

/// Sends block m of each member's input to member m.
void exchange(std::span<const Member> members, std::size_t bytes) {
  for (std::size_t to = 0; to < members.size(); ++to)
    for (std::size_t from = 0; from < members.size(); ++from)
      std::memcpy(members[to].output + from * bytes, members[from].input + to * bytes, bytes);
}

/// Sends each member's input to the next, and the last one's to the first.
void pass_on(std::span<const Member> members, std::size_t bytes) {
  for (std::size_t from = 0; from < members.size(); ++from)
    std::memcpy(members[(from + 1) % members.size()].output, members[from].input, bytes);
}

/// Overlapping operands must be in place: the smaller one is the member's part of the larger.
Result<void> check_overlap(const Collective& collective, std::span<const Member> members) {
  const auto part = static_cast<std::size_t>(bytes_of(collective.count, collective.dtype).value);
  const std::size_t whole = part * members.size();
  const bool exchanges = collective.kind == CollectiveKind::all_to_all;
  const bool passes = collective.kind == CollectiveKind::shift;
  const bool gathers = collective.kind == CollectiveKind::all_gather;
  const bool scatters = collective.kind == CollectiveKind::reduce_scatter;
  for (std::size_t m = 0; m < members.size(); ++m) {
    const std::byte* input = members[m].input;
    const std::byte* output = members[m].output;
    const bool apart = input + (scatters || exchanges ? whole : part) <= output ||
                       output + (gathers || exchanges ? whole : part) <= input;
    const bool in_place = !exchanges && !passes &&
                          input + (scatters ? m * part : 0) == output + (gathers ? m * part : 0);
    if (!apart && !in_place)
      return fail("", fmt::format("input and output of member {} overlap, but not in place", m),
                  Fault::environment);
  }
  return {};
}

}  // namespace

Result<void> run_collective(const Collective& collective, std::span<const Member> members) {
  if (collective.count == 0) return {};
  MFSDP_TRY(check_overlap(collective, members));
  const auto part = static_cast<std::size_t>(bytes_of(collective.count, collective.dtype).value);
  if (collective.kind == CollectiveKind::all_gather) {
    gather(members, part);
    return {};
  }
  if (collective.kind == CollectiveKind::all_to_all) {
    exchange(members, part);
    return {};
  }
  if (collective.kind == CollectiveKind::shift) {
    pass_on(members, part);
    return {};
  }
  if (collective.reduction == Reduction::max) {
    if (collective.kind != CollectiveKind::all_reduce || collective.dtype != DType::fp32)
      return fail("",
                  fmt::format("expected the reduction max only in an all_reduce of fp32, got {} of "
                              "{}",
                              to_string(collective.kind), to_string(collective.dtype)),
                  Fault::environment);
    all_max(static_cast<std::size_t>(collective.count), members);
    return {};
  }
  if (collective.reduction != Reduction::sum)
    return fail("", "expected the reduction sum for " + std::string(to_string(collective.kind)),
                Fault::environment);
  if (collective.dtype == DType::int32 && collective.kind == CollectiveKind::all_reduce) {
    add_counts(static_cast<std::size_t>(collective.count), members);
    return {};
  }
  switch (collective.dtype) {
    case DType::fp64: reduce<double>(collective, members); return {};
    case DType::fp32: reduce<float>(collective, members); return {};
    case DType::bf16: reduce<Bf16>(collective, members); return {};
    case DType::fp16: reduce<Fp16>(collective, members); return {};
    default: break;
  }
  return fail(
      "",
      fmt::format("expected fp64, fp32, bf16 or fp16 to sum, got {}", to_string(collective.dtype)),
      Fault::environment);
}

}  // namespace mfsdp
