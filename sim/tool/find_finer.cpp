#include "sim/tool/find_finer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ranges>
#include <utility>

#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

constexpr std::string_view kExpertStrategy = "--expert-strategy";

/// Some are of some combinations alone.
std::vector<SweepAxis> axes_of(FinerKind kind) {
  if (kind == FinerKind::transports)
    return {{.flag = "--placement", .values = {"earliest", "attention", "gathers"}},
            {.flag = "--gather", .values = {"nccl", "copy_engine"}},
            {.flag = "--reduce", .values = {"nccl", "symmetric"}}};
  return {{.flag = "--prefetch", .values = {"1", "2", "3"}},
          {.flag = "--grad-slots", .values = {"2", "3", "4"}},
          {.flag = std::string(kExpertStrategy),
           .values = {"optim_grads_params", "optim_grads", "optim", "no_shard"}}};
}

bool is_ours(const SweepRow& row) {
  return row.run && row.question && traits_of(row.question->engine).runs_plans;
}

/// Whether a combination that was predicted may have another value: collectives to place, windows
/// of a node's GPUs to carry them, ranks that have the same experts and may share them otherwise.
bool has_choice(const std::string& flag, const SweepRow& row) {
  const PlanConfig& config = row.run->config;
  const Cluster& cluster = row.question->costs->cluster();
  if (flag == "--placement") return cluster.gpus > 1;
  if (flag == "--gather" || flag == "--reduce")
    return cluster.gpus > 1 && cluster.gpu.link == LinkKind::nvlink;
  return flag != kExpertStrategy ||
         (config.deals_experts() && config.mesh.size(Axis::expt_dp) > 1 &&
          config.outer_strategy != Strategy::optim);
}

/// What a combination has where the flag is not given; nothing where it has no such choice.
std::string usual_of(const std::string& flag, const SweepRow& row) {
  if (!is_ours(row) || !has_choice(flag, row)) return {};
  const PlanConfig& config = row.run->config;
  if (flag == kExpertStrategy) return std::string(to_string(config.strategy_of_experts()));
  std::string text;
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    if (field.flag == flag) text = flag_text(value);
  });
  return text;
}

/// One combination with every choice of a value for each axis; what is as usual is not said.
Sweep varied(const std::vector<std::string>& arguments, const std::vector<SweepAxis>& axes,
             const std::vector<std::string>& usual) {
  Sweep sweep{.axes = axes, .arguments = {}};
  std::size_t choices = 1;
  for (const SweepAxis& axis : axes) choices *= axis.values.size();
  sweep.arguments.resize(choices, arguments);
  for (std::size_t i = 0; i < choices; ++i) {
    const std::vector<std::string> values = sweep.values(i);
    for (std::size_t a = 0; a < axes.size(); ++a)
      if (values[a] != usual[a])
        sweep.arguments[i].insert(sweep.arguments[i].end(), {axes[a].flag, values[a]});
  }
  return sweep;
}

/// Positions of the combinations that are varied, best first.
std::vector<std::size_t> varied_rows(FinerKind kind, const std::vector<SweepRow>& rows,
                                     const std::vector<std::size_t>& best) {
  std::vector<std::size_t> places;
  std::vector<Strategy> seen;
  for (const std::size_t place : best) {
    if (!is_ours(rows[place])) continue;
    if (kind == FinerKind::order) {
      if (places.size() < kVaried) places.push_back(place);
      continue;
    }
    const Strategy strategy = rows[place].run->config.strategy;
    if (std::ranges::find(seen, strategy) != seen.end()) continue;
    seen.push_back(strategy);
    places.push_back(place);
  }
  return places;
}

}  // namespace

Result<Finer> finer_rows(FinerKind kind, const Sweep& sweep, const std::vector<SweepRow>& rows,
                         const std::vector<std::size_t>& best, std::optional<std::int64_t> batch,
                         const SimOptions& options, const Session& session) {
  Finer finer;
  finer.kind = kind;
  const std::vector<std::size_t> places = varied_rows(kind, rows, best);
  finer.varied = places.size();
  for (SweepAxis& axis : axes_of(kind))
    if (!contains(options.given, axis.flag) &&
        std::ranges::any_of(places, [&](std::size_t i) { return has_choice(axis.flag, rows[i]); }))
      finer.axes.push_back(std::move(axis));
  if (finer.axes.empty()) return finer;
  for (const std::size_t place : places) {
    std::vector<SweepAxis> axes;
    std::vector<std::string> usual;
    for (const SweepAxis& axis : finer.axes) {
      if (!has_choice(axis.flag, rows[place])) continue;
      axes.push_back(axis);
      usual.push_back(usual_of(axis.flag, rows[place]));
    }
    if (axes.empty()) continue;
    std::vector<std::string> arguments = sweep.arguments[place];
    if (batch) arguments.insert(arguments.end(), {"--global-batch", std::to_string(*batch)});
    const Sweep choices = varied(arguments, axes, usual);
    MFSDP_LET(made, sweep_rows(choices, session));
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i].values == usual) continue;  // the combination itself
      std::vector<std::string> values = rows[place].values;
      values.insert(values.end(), made[i].values.begin(), made[i].values.end());
      values.resize(rows[place].values.size() + finer.axes.size());
      made[i].values = std::move(values);
      finer.rows.push_back(std::move(made[i]));
      finer.arguments.push_back(choices.arguments[i]);
      finer.bases.push_back(place);
    }
  }
  return finer;
}

void take(Sweep& sweep, std::vector<SweepRow>& rows, Finer& finer,
          const std::vector<std::size_t>& places) {
  const std::size_t before = sweep.axes.size();
  std::vector<std::size_t> said;  // the kind's flags in which a row taken is not as its combination
  for (std::size_t a = 0; a < finer.axes.size(); ++a) {
    const auto is_otherwise = [&](std::size_t place) {
      return finer.rows[place].values[before + a] !=
             usual_of(finer.axes[a].flag, rows[finer.bases[place]]);
    };
    if (std::ranges::any_of(places, is_otherwise)) said.push_back(a);
  }
  for (SweepRow& row : rows)
    for (const std::size_t a : said) row.values.push_back(usual_of(finer.axes[a].flag, row));
  for (const std::size_t place : places) {
    SweepRow& row = finer.rows[place];
    const std::vector<std::string> all = row.values;
    row.values.resize(before);
    for (const std::size_t a : said) row.values.push_back(all[before + a]);
    rows.push_back(std::move(row));
    sweep.arguments.push_back(std::move(finer.arguments[place]));
  }
  for (const std::size_t a : said) sweep.axes.push_back(finer.axes[a]);
}

std::string finer_text(const Finer& finer) {
  if (finer.rows.empty()) return {};
  std::vector<std::string> flags;
  for (const SweepAxis& axis : finer.axes)
    flags.push_back(fmt::format("{} {}", axis.flag, fmt::join(axis.values, ",")));
  const std::string last = flags.back();
  flags.pop_back();
  const std::string which = finer.varied == 1 ? "The best"
                            : finer.kind == FinerKind::transports
                                ? "The best of each strategy"
                                : fmt::format("The {} best", finer.varied);
  return fmt::format("{} also with {}{}.\n", which,
                     flags.empty() ? "" : fmt::format("{} and ", fmt::join(flags, ", ")), last);
}

}  // namespace mfsdp
