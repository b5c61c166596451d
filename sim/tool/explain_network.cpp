#include "sim/tool/explain_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "core/cli/format.hpp"
#include "core/cli/table.hpp"
#include "sim/hardware/cluster.hpp"
#include "sim/search/question.hpp"

namespace mfsdp {
namespace {

constexpr std::array kGbits{25.0, 50.0, 100.0, 200.0, 400.0, 800.0, 1600.0, 3200.0, 6400.0};
constexpr double kNearEnough = 1.01;  // of bandwidths between which the fastest changes

/// One way to shard, its plan built: the network changes prices alone.
struct Sharding {
  std::int64_t outer_dp = 1;
  Question question;
};

Result<std::vector<Sharding>> shardings(const SimOptions& options, Asker& asker) {
  MFSDP_LET(given, asker.question(options));
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
    SimOptions one = options;
    one.common.outer_dp = outer_dp;
    if (outer_dp == 1) one.common.outer_strategy = Strategy::no_shard;
    MFSDP_LET(question, asker.question(one));
    MFSDP_LET(program, program_of(question));
    question.program = program;
    all.push_back({.outer_dp = outer_dp, .question = std::move(question)});
  }
  return all;
}

Result<std::vector<Nanos>> steps_at(const std::vector<Sharding>& all, double gbits) {
  MFSDP_LET(cluster, with_network(all.front().question.costs->cluster(), gbits));
  MFSDP_LET(costs, make_cost_model(cluster));
  if (const auto& anchor = all.front().question.anchor)
    costs = costs.scaled(anchor->kernel_factor, anchor->collective_factor);
  const auto shared = std::make_shared<const CostModel>(std::move(costs));
  std::vector<Nanos> steps;
  for (const Sharding& sharding : all) {
    Question question = sharding.question;
    question.costs = shared;
    MFSDP_LET(prediction, answer(question));
    steps.push_back(prediction.run.time.step);
  }
  return steps;
}

std::size_t fastest(const std::vector<Nanos>& steps) {
  return static_cast<std::size_t>(std::ranges::min_element(steps) - steps.begin());
}

/// A bandwidth between the two, at which the fastest is not that of `low` any more.
Result<double> crossover(const std::vector<Sharding>& all, double low, double high,
                         std::size_t best) {
  while (high / low > kNearEnough) {
    const double middle = low + (high - low) / 2;
    MFSDP_LET(steps, steps_at(all, middle));
    (fastest(steps) == best ? low : high) = middle;
  }
  return high;
}

std::string name_of(const Sharding& sharding) {
  return fmt::format("outer-dp {}", sharding.outer_dp);
}

}  // namespace

Result<std::string> explain_network(const SimOptions& options, Asker& asker) {
  if (options.common.plan)
    return fail("--explain", "network: contradicts --plan, which is sharded one way");
  MFSDP_LET(all, shardings(options, asker));
  Table table{.columns = {{"Gbit/s a node", Align::right}}, .rows = {}};
  for (const Sharding& sharding : all) table.columns.push_back({name_of(sharding), Align::right});
  table.columns.push_back({"fastest"});

  std::string changes;
  std::size_t before = 0;
  for (std::size_t i = 0; i < kGbits.size(); ++i) {
    MFSDP_LET(steps, steps_at(all, kGbits[i]));
    const std::size_t best = fastest(steps);
    std::vector<std::string> row{format_real(kGbits[i], 0)};
    for (const Nanos step : steps) row.push_back(format_duration(step));
    row.push_back(name_of(all[best]));
    table.rows.push_back(std::move(row));
    if (i > 0 && best != before) {
      MFSDP_LET(at, crossover(all, kGbits[i - 1], kGbits[i], before));
      changes += fmt::format("{} is fastest below about {} Gbit/s a node, and {} up from there.\n",
                             name_of(all[before]), format_real(at, 0), name_of(all[best]));
    }
    before = best;
  }
  if (changes.empty())
    changes = fmt::format("{} is the fastest at all of them.\n", name_of(all[before]));
  return "Step by the network (outer-dp 1 shards over all GPUs; more shard inside their "
         "groups):\n\n" +
         render_table(table) + "\n" + changes;
}

}  // namespace mfsdp
