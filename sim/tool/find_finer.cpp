#include "sim/tool/find_finer.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <utility>

#include "core/plan/config_fields.hpp"

namespace mfsdp {
namespace {

std::vector<SweepAxis> all_axes() {
  return {{.flag = "--prefetch", .values = {"1", "2", "3"}},
          {.flag = "--grad-slots", .values = {"2", "3", "4"}}};
}

/// What a field has where its flag is not given.
std::string default_of(const std::string& flag, const PlanConfig& config) {
  std::string text;
  for_each_field(config, [&](const ConfigField& field, const auto& value) {
    if (field.flag == flag) text = flag_text(value);
  });
  return text;
}

/// One combination with every choice of a value for each axis.
Sweep varied(const std::vector<std::string>& arguments, const std::vector<SweepAxis>& axes) {
  Sweep sweep{.axes = axes, .arguments = {}};
  std::size_t choices = 1;
  for (const SweepAxis& axis : axes) choices *= axis.values.size();
  sweep.arguments.resize(choices, arguments);
  for (std::size_t i = 0; i < choices; ++i) {
    const std::vector<std::string> values = sweep.values(i);
    for (std::size_t a = 0; a < axes.size(); ++a)
      sweep.arguments[i].insert(sweep.arguments[i].end(), {axes[a].flag, values[a]});
  }
  return sweep;
}

}  // namespace

Result<Finer> finer_rows(const Sweep& sweep, const std::vector<SweepRow>& rows,
                         const std::vector<std::size_t>& best, std::optional<std::int64_t> batch,
                         const SimOptions& options, const Session& session) {
  Finer finer;
  if (options.engine != EngineKind::mfsdp) return finer;  // others have no such choices
  std::vector<std::string> usual;
  for (const SweepAxis& axis : all_axes()) {
    if (contains(options.given, axis.flag)) continue;
    finer.axes.push_back(axis);
    usual.push_back(default_of(axis.flag, options.common.config));
  }
  if (finer.axes.empty()) return finer;
  finer.varied = std::min(best.size(), kVaried);
  for (std::size_t b = 0; b < finer.varied; ++b) {
    if (rows[best[b]].run->engine != to_string(EngineKind::mfsdp)) continue;
    std::vector<std::string> arguments = sweep.arguments[best[b]];
    if (batch) arguments.insert(arguments.end(), {"--global-batch", std::to_string(*batch)});
    const Sweep choices = varied(arguments, finer.axes);
    MFSDP_LET(made, sweep_rows(choices, session));
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (made[i].values == usual) continue;  // the combination itself
      std::vector<std::string> values = rows[best[b]].values;
      values.insert(values.end(), made[i].values.begin(), made[i].values.end());
      made[i].values = std::move(values);
      finer.rows.push_back(std::move(made[i]));
      finer.arguments.push_back(choices.arguments[i]);
    }
  }
  return finer;
}

void take(Sweep& sweep, std::vector<SweepRow>& rows, Finer& finer, std::size_t place,
          const SimOptions& options) {
  for (const SweepAxis& axis : finer.axes) {
    sweep.axes.push_back(axis);
    for (SweepRow& row : rows) row.values.push_back(default_of(axis.flag, options.common.config));
  }
  sweep.arguments.push_back(std::move(finer.arguments[place]));
  rows.push_back(std::move(finer.rows[place]));
}

std::string finer_text(const Finer& finer) {
  if (finer.rows.empty()) return {};
  std::vector<std::string> flags;
  for (const SweepAxis& axis : finer.axes)
    flags.push_back(fmt::format("{} {}", axis.flag, fmt::join(axis.values, ",")));
  return fmt::format("{} best also with {}.\n",
                     finer.varied == 1 ? "The" : fmt::format("The {}", finer.varied),
                     fmt::join(flags, " and "));
}

}  // namespace mfsdp
