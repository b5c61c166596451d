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

/// Every choice of one value for each axis; the last axis changes fastest.
std::vector<std::vector<std::string>> choices(const std::vector<SweepAxis>& axes) {
  std::vector<std::vector<std::string>> all{{}};
  for (const SweepAxis& axis : axes) {
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& choice : all)
      for (const std::string& value : axis.values) {
        longer.push_back(choice);
        longer.back().push_back(value);
      }
    all = std::move(longer);
  }
  return all;
}

}  // namespace

Result<Finer> finer_rows(const Sweep& sweep, const std::vector<SweepRow>& rows,
                         const std::vector<std::size_t>& best, std::optional<std::int64_t> batch,
                         const SimOptions& options, const Session& session) {
  Finer finer;
  std::vector<std::string> usual;
  for (const SweepAxis& axis : all_axes()) {
    if (contains(options.given, axis.flag)) continue;
    finer.axes.push_back(axis);
    usual.push_back(default_of(axis.flag, options.common.config));
  }
  if (finer.axes.empty()) return finer;
  std::vector<std::vector<std::string>> values;
  finer.varied = std::min(best.size(), kVaried);
  for (std::size_t b = 0; b < finer.varied; ++b)
    for (const std::vector<std::string>& choice : choices(finer.axes)) {
      if (choice == usual) continue;  // the combination itself
      std::vector<std::string> arguments = sweep.arguments[best[b]];
      for (std::size_t a = 0; a < choice.size(); ++a)
        arguments.insert(arguments.end(), {finer.axes[a].flag, choice[a]});
      if (batch) arguments.insert(arguments.end(), {"--global-batch", std::to_string(*batch)});
      finer.sweep.arguments.push_back(std::move(arguments));
      values.push_back(rows[best[b]].values);
      values.back().insert(values.back().end(), choice.begin(), choice.end());
    }
  if (values.empty()) return finer;
  MFSDP_LET(made, sweep_rows(finer.sweep, session));
  finer.rows = std::move(made);
  for (std::size_t i = 0; i < finer.rows.size(); ++i) finer.rows[i].values = values[i];
  return finer;
}

void take(Sweep& sweep, std::vector<SweepRow>& rows, Finer& finer, std::size_t place,
          const SimOptions& options) {
  for (const SweepAxis& axis : finer.axes) {
    sweep.axes.push_back(axis);
    for (SweepRow& row : rows) row.values.push_back(default_of(axis.flag, options.common.config));
  }
  sweep.arguments.push_back(std::move(finer.sweep.arguments[place]));
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
