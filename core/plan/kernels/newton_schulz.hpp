// The orthogonalisation of a matrix; core/plan/newton_schulz.hpp has its formula.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"

namespace mfsdp::kernels {

template <class T>
struct NewtonSchulz {
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  T* matrix = nullptr;  ///< overwritten
  std::span<std::byte> workspace;

  void state(auto& op) {
    op.unread("bytes");
    op.attribute("cols", cols);
    op.attribute("rows", rows);
    op.updates("matrix", matrix, {"rows", "cols"});
    op.workspace(workspace, costs::newton_schulz_workspace);
    op.flops(costs::newton_schulz, {.num = 0});  // a model's FLOPs have none of its optimizer's
  }
};

}  // namespace mfsdp::kernels
