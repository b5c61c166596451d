// How long offsets take, and how far above the lower bound they end.
#include <benchmark/benchmark.h>

#include "core/memory/allocation.hpp"
#include "tests/core/memory/training_pattern.hpp"

namespace mfsdp {
namespace {

void report(benchmark::State& state, const AllocationProblem& problem, AllocatorPolicy policy) {
  Allocation allocation;
  for (auto _ : state) {
    allocation = allocate(problem, policy);
    benchmark::DoNotOptimize(allocation);
  }
  state.counters["items"] = static_cast<double>(problem.items.size());
  state.counters["over_bound"] = static_cast<double>(allocation.height.value) /
                                 static_cast<double>(allocation.lower_bound.value);
}

/// Arguments: layers, policy.
void activations(benchmark::State& state) {
  report(state, test::activations(state.range(0)), static_cast<AllocatorPolicy>(state.range(1)));
}
BENCHMARK(activations)->ArgsProduct({{32, 126}, {0, 1, 2, 3}})->Unit(benchmark::kMicrosecond);

void weights(benchmark::State& state) {
  report(state, test::gathered(state.range(0), 2, 4202692608, 6375407616, 4202725376),
         static_cast<AllocatorPolicy>(state.range(1)));
}
BENCHMARK(weights)->ArgsProduct({{32, 126}, {0, 1, 2, 3}})->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace mfsdp
