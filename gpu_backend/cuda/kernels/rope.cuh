// Device code of rotary position embedding: heads as pairs of elements, and their rotation.
#pragma once

#include "core/plan/kernels/rope.hpp"
#include "gpu_backend/cuda/kernels/device.cuh"

namespace mfsdp::cuda {

/// Rotates N elements of a head's first half with those of its second. `angles`: the position's
/// cosines, and `half` elements later its sines.
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

/// A head as pairs of elements: first those that RoPE rotates, then the two halves of the part that
/// it does not rotate, if any.
struct HeadPairs {
  int turning;  ///< rotated pairs
  int all;

  __device__ explicit HeadPairs(const kernels::RopeShape& s)
      : turning(static_cast<int>(s.turned / 2)), all(static_cast<int>(s.head_dim / 2)) {}
};
/// The place of a pair, or of a pack of pairs that are either all rotated or all not.
struct PairPlace {
  bool turns;
  int angle;  ///< index into the position's cosines
  int first;  ///< element of the head
  int second;

  __device__ PairPlace(const HeadPairs& pairs, int pair)
      : turns(pair < pairs.turning),
        angle(pair),
        first(turns ? pair : pair + pairs.turning),
        second(turns ? pair + pairs.turning : pair + pairs.all) {}
};

}  // namespace mfsdp::cuda
