// What the orthogonalisation of a matrix takes: core/plan/newton_schulz.hpp says what it makes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/runtime/calls/take_workspace.hpp"

namespace mfsdp::kernels {

template <class T>
struct NewtonSchulz {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* matrix = nullptr;  ///< [rows, cols], overwritten
  std::span<std::byte> workspace;
};

/// Errors name the operand and what was expected.
template <class T>
[[nodiscard]] Result<NewtonSchulz<T>> take_newton_schulz(const KernelCall& call) {
  OperandReader in(call);
  const std::int64_t rows = in.attribute("rows");
  const std::int64_t cols = in.attribute("cols");
  const NewtonSchulz<T> k{.rows = rows,
                          .cols = cols,
                          .matrix = in.take<T>("matrix", {rows, cols}),
                          .workspace = take_workspace_if_any(in)};
  MFSDP_TRY(in.result());
  return k;
}

}  // namespace mfsdp::kernels
