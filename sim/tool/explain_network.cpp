#include "sim/tool/explain_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <optional>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/predict/prediction_request.hpp"

namespace mfsdp {
namespace {

constexpr std::array kGbits{25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0};
constexpr double kNearEnough = 1.01;  // of bandwidths between which the fastest changes

/// One way to shard, its plan built: the network changes prices alone.
struct Sharding {
  std::int64_t outer_dp = 1;
  PredictionRequest request;
};

Result<std::vector<Sharding>> shardings(const SimOptions& options, PredictionRequests& requests) {
  MFSDP_LET(given, requests.read(options));
  const Cluster& cluster = given.costs->cluster();
  if (cluster.gpus <= cluster.domain)
    return fail("--explain", "network: the GPUs are one NVLink domain, which no network joins");
  // The fewest groups of which each fits into a domain.
  std::int64_t domains = ceil_div(cluster.gpus, cluster.domain);
  while (cluster.gpus % domains != 0) ++domains;
  std::vector<std::int64_t> groups{1, domains, options.common.outer_dp};
  std::ranges::sort(groups);
  groups.erase(std::unique(groups.begin(), groups.end()), groups.end());
  std::vector<Sharding> all;
  for (const std::int64_t outer_dp : groups) {
    // Experts are distributed inside a group.
    const std::int64_t ep = std::max<std::int64_t>(options.common.config.expert_parallel, 1);
    if (cluster.gpus / outer_dp % ep != 0) continue;
    SimOptions one = options;
    one.common.outer_dp = outer_dp;
    if (outer_dp == 1) one.common.config.outer_strategy = Strategy::no_shard;
    MFSDP_LET(request, requests.read(one));
    MFSDP_LET(ready, with_program(std::move(request)));
    all.push_back({.outer_dp = outer_dp, .request = std::move(ready)});
  }
  return all;
}

Result<std::vector<Nanos>> steps_at(const std::vector<Sharding>& all, double gbits) {
  MFSDP_LET(cluster, with_network(all.front().request.costs->cluster(), gbits));
  MFSDP_LET(costs, make_cost_model(cluster));
  if (const auto& anchor = all.front().request.anchor)
    costs = costs.scaled(anchor->kernel_factor, anchor->collective_factor);
  const auto shared = std::make_shared<const CostModel>(std::move(costs));
  std::vector<Nanos> steps;
  for (const Sharding& sharding : all) {
    PredictionRequest request = sharding.request;
    request.costs = shared;
    MFSDP_LET(prediction, predict(request));
    steps.push_back(prediction.run.time.step);
  }
  return steps;
}

std::size_t fastest(const std::vector<Nanos>& steps) {
  return static_cast<std::size_t>(std::ranges::min_element(steps) - steps.begin());
}

/// The fastest sharding from one bandwidth on, up to where the next range begins.
struct FastestRange {
  double from = 0;  ///< Gbit/s a node; 0 for the first
  std::size_t sharding = 0;
};

struct Point {
  double gbits = 0;
  std::size_t best = 0;  ///< position of the fastest sharding
};

/// Appends the ranges that begin between two points; bisects until they are near enough.
Result<void> add_ranges(const std::vector<Sharding>& all, const Point& low, const Point& high,
                        std::vector<FastestRange>& ranges) {
  if (low.best == high.best) return {};
  if (high.gbits / low.gbits <= kNearEnough) {
    ranges.push_back({.from = high.gbits, .sharding = high.best});
    return {};
  }
  const double gbits = low.gbits + (high.gbits - low.gbits) / 2;
  MFSDP_LET(steps, steps_at(all, gbits));
  const Point middle{.gbits = gbits, .best = fastest(steps)};
  MFSDP_TRY(add_ranges(all, low, middle, ranges));
  return add_ranges(all, middle, high, ranges);
}

std::string name_of(const Sharding& sharding) {
  return fmt::format("outer-dp {}", sharding.outer_dp);
}

/// Gbit/s of a node's NICs together, per direction.
double gbits_of(const Cluster& cluster) {
  constexpr double kBitsPerByte = 8;
  return cluster.nic_bandwidth * static_cast<double>(cluster.nics_per_node) * kBitsPerByte;
}

/// The steps on the machine itself, as they are predicted without --explain.
Result<std::vector<Nanos>> own_steps(const std::vector<Sharding>& all) {
  std::vector<Nanos> steps;
  for (const Sharding& sharding : all) {
    MFSDP_LET(prediction, predict(sharding.request));
    steps.push_back(prediction.run.time.step);
  }
  return steps;
}

std::string ranges_text(const std::vector<Sharding>& all, const std::vector<FastestRange>& ranges,
                        const TextStyle& style) {
  Table table{.columns = {{"Gbit/s a node"}, {"fastest"}}, .rows = {}};
  for (std::size_t i = 0; i < ranges.size(); ++i) {
    const bool last = i + 1 == ranges.size();
    const std::string from = format_real(ranges[i].from, 0);
    const std::string to = last ? "" : format_real(ranges[i + 1].from, 0);
    const std::string range = i == 0 ? (last ? "all" : "below " + to)
                              : last ? "from " + from
                                     : from + " to " + to;
    table.rows.push_back({range, name_of(all[ranges[i].sharding])});
  }
  return render_table(table, style);
}

}  // namespace

Result<std::string> explain_network(const SimOptions& options, PredictionRequests& requests,
                                    const TextStyle& style) {
  if (options.common.plan)
    return fail("--explain", "network: contradicts --plan, which is sharded one way");
  MFSDP_LET(all, shardings(options, requests));
  Table table{.columns = {{"Gbit/s a node", Align::right}}, .rows = {}};
  for (const Sharding& sharding : all) table.columns.push_back({name_of(sharding), Align::right});
  table.columns.push_back({"fastest"});
  table.columns.push_back({""});
  const Cluster& machine = all.front().request.costs->cluster();
  const double own = gbits_of(machine);
  std::vector<double> bandwidths(kGbits.begin(), kGbits.end());
  std::erase(bandwidths, own);
  bandwidths.insert(std::ranges::upper_bound(bandwidths, own), own);
  // Where the network was measured, only its own row is: the others are modelled, and ranges too.
  const bool measured = !machine.gpu.tables.network.empty();

  std::vector<FastestRange> ranges;
  std::optional<Point> before;
  for (const double gbits : bandwidths) {
    const bool is_own = gbits == own;
    MFSDP_LET(steps, is_own ? own_steps(all) : steps_at(all, gbits));
    const Point point{.gbits = gbits, .best = fastest(steps)};
    std::vector<std::string> row{format_real(gbits, 0)};
    for (const Nanos step : steps) row.push_back(format_duration(step));
    row.push_back(name_of(all[point.best]));
    row.emplace_back(is_own ? "this machine" : "");
    table.rows.push_back(std::move(row));
    if (is_own && measured) continue;
    if (before)
      MFSDP_TRY(add_ranges(all, *before, point, ranges));
    else
      ranges.push_back({.from = 0, .sharding = point.best});
    before = point;
  }
  return "Step by the network (outer-dp 1 shards over all GPUs; more shard inside their "
         "groups):\n\n" +
         render_table(table, style) + "\n" + ranges_text(all, ranges, style) +
         (measured
              ? "This machine's network is fitted to measurements, other bandwidths are modelled.\n"
              : "");
}

}  // namespace mfsdp
