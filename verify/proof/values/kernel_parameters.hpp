// The weights or gradients that a kernel touches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>

#include "core/plan/plan.hpp"
#include "verify/proof/ledger/layouts.hpp"

namespace mfsdp {

struct KernelParameters {
  std::array<ParameterRole, 2> roles{};
  std::size_t count = 0;  ///< more than two are too many for any step
  std::uint32_t unit = 0;
  const Group* group = nullptr;                ///< of the first
  const Group* second_group = nullptr;         ///< of the second
  const PlacedParameter* parameter = nullptr;  ///< the first
  std::optional<int> shard = {};               ///< level of a shard that is cast and then gathered
  bool homeless = false;                       ///< in a buffer that does not hold such
  bool astray = false;  ///< no whole parameter of the op's unit, which others report
};

/// Those of an op's kernel.
[[nodiscard]] KernelParameters parameters_of(const Op& op, const Kernel& kernel,
                                             const Program& program, const ProgramIndex& index,
                                             const Layouts& layouts);

/// The weights that casts in a buffer, or copies of them, are of. It only shows which GEMM a kernel
/// may be: values decide whether it is.
[[nodiscard]] std::map<BufferId, ParameterRole> cast_weights_of(const Plan& plan,
                                                                const Program& program,
                                                                const ProgramIndex& index,
                                                                const Layouts& layouts);

/// Whether the cast of a shard of that group goes to the memory of gathered casts, to where its
/// shard is, and rounds to the compute dtype first; `amax` goes nowhere.
[[nodiscard]] bool is_for_gathers(const Kernel& kernel, const Group& group, const Program& program,
                                  const ProgramIndex& index, const Layouts& layouts);

}  // namespace mfsdp
