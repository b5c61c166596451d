// Built apart from the other sources of its folder, which define what it refers to.
#include "verify/cpu/kernels/run_kernel.hpp"

#include <array>
#include <utility>

#include "verify/cpu/kernels/run_kind.hpp"

namespace mfsdp {
namespace {

using Run = Result<void> (*)(const KernelCall&, const KernelSettings&);

template <KernelKind kind>
Result<void> run_one(const KernelCall& call, const KernelSettings& settings) {
  return kernels::run_kind(kernels::KernelRun<kind>{.call = call, .settings = settings});
}

template <std::size_t... kinds>
constexpr std::array<Run, sizeof...(kinds)> all_kinds(std::index_sequence<kinds...> /*all*/) {
  return {&run_one<static_cast<KernelKind>(kinds)>...};
}

constexpr std::array kRuns = all_kinds(std::make_index_sequence<kKernelKinds>());

}  // namespace

Result<void> run_kernel(const KernelCall& call, const KernelSettings& settings) {
  const auto kind = static_cast<std::size_t>(call.kernel->kind);
  if (kind >= kRuns.size())
    return fail("kernel", "expected one of the kinds of the plan", Fault::environment);
  return kRuns[kind](call, settings);
}

}  // namespace mfsdp
