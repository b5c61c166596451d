// Rows of heads in groups (core/plan/kernels/head_groups.hpp) on the CPU.
#pragma once

#include "core/plan/kernels/head_groups.hpp"

namespace mfsdp::kernels {

template <class T>
void split_heads(const SplitHeads<T>& k) {
  const HeadGroups& g = k.groups;
  T* to = k.output;
  for (std::int64_t group = 0; group < g.groups; ++group)
    for (std::int64_t row = 0; row < g.rows; ++row)
      for (std::int64_t col = 0; col < g.cols / g.groups; ++col)
        *to++ = k.input[row * g.cols + g.column(group, col)];
}

template <class T>
void join_heads(const JoinHeads<T>& k) {
  const HeadGroups& g = k.groups;
  const T* from = k.input;
  for (std::int64_t group = 0; group < g.groups; ++group)
    for (std::int64_t row = 0; row < g.rows; ++row)
      for (std::int64_t col = 0; col < g.cols / g.groups; ++col)
        k.output[row * g.cols + g.column(group, col)] = *from++;
}

}  // namespace mfsdp::kernels
