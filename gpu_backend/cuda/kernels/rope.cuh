// Device code of rotary position embedding: heads in pairs of elements, and how those turn.
#pragma once

#include "core/plan/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

/// Turns N elements of a head's first half with those of its second. `angles`: the position's
/// cosines, its sines `half` behind.
template <int N>
__device__ void turn(const float* angles, std::int64_t half, bool backwards, float (&first)[N],
                     float (&second)[N]) {
  float cosine[N];
  float sine[N];
  load_widened<N>(angles, cosine);
  load_widened<N>(angles + half, sine);
#pragma unroll
  for (int i = 0; i < N; ++i) {
    const float s = backwards ? -sine[i] : sine[i];
    const float turned = first[i] * cosine[i] - second[i] * s;
    second[i] = second[i] * cosine[i] + first[i] * s;
    first[i] = turned;
  }
}

/// A head in pairs of elements: those that turn with each other, then, where a part of it stays,
/// the two halves of that part.
struct HeadPairs {
  int turning;  ///< pairs
  int all;

  __device__ explicit HeadPairs(const kernels::RopeShape& s)
      : turning(static_cast<int>(s.turned / 2)), all(static_cast<int>(s.head_dim / 2)) {}
};
/// Where a pair is, or a pack of pairs that all turn or all stay.
struct PairPlace {
  bool turns;
  int angle;  ///< in the position's cosines
  int first;  ///< element of the head
  int second;

  __device__ PairPlace(const HeadPairs& pairs, int pair)
      : turns(pair < pairs.turning),
        angle(pair),
        first(turns ? pair : pair + pairs.turning),
        second(turns ? pair + pairs.turning : pair + pairs.all) {}
};

}  // namespace mfsdp::cuda
