#include "reports/budget/measures.hpp"

namespace mfsdp {

std::vector<BudgetMeasure> budget_measures(const RunFigures& run) {
  std::vector<BudgetMeasure> measures;
  const auto bytes = [&](const char* table, std::string name, Bytes value) {
    measures.push_back({table, std::move(name), MeasureUnit::bytes, value.value});
  };
  const auto time = [&](const char* name, Nanos value) {
    measures.push_back({"time", name, MeasureUnit::nanoseconds, value.value});
  };
  const auto count = [&](const char* name, std::int64_t value) {
    measures.push_back({"plan", name, MeasureUnit::count, value});
  };
  bytes("memory", "allocated_bytes", run.memory.allocated);
  bytes("memory", "peak_bytes", run.memory.peak);
  for (std::size_t i = 0; i < run.memory.categories.size(); ++i)
    bytes("memory.peak_categories", std::string(Names<Category>::values.at(i)) + "_bytes",
          run.memory.categories.at(i));
  time("step_ns", run.time.step);
  time("exposed_communication_ns", run.time.exposed_communication);
  const TrafficSummary& traffic = run.traffic;
  bytes("traffic", "all_gather_bytes", traffic.all_gather);
  bytes("traffic", "reduce_scatter_bytes", traffic.reduce_scatter);
  bytes("traffic", "all_reduce_bytes", traffic.all_reduce);
  bytes("traffic", "total_bytes", traffic.all_gather + traffic.reduce_scatter + traffic.all_reduce);
  count("ops", run.plan.ops);
  count("events", run.plan.events);
  count("waits", run.plan.waits);
  return measures;
}

}  // namespace mfsdp
