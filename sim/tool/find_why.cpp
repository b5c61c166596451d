#include "sim/tool/find_why.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "core/cli/format.hpp"
#include "reports/record/axis_times.hpp"

namespace mfsdp {
namespace {

/// One cause's share of the difference; below 0 if it makes the difference smaller.
struct Cause {
  double part = 0;
  std::string less;  ///< its name where it helps
  std::string more;  ///< its name where it hurts
};

/// Time of one GPU for a token, in ns, by what it is spent on.
struct Spent {
  double kernels = 0;
  double contention = 0;
  double exposed = 0;
  double idle = 0;

  [[nodiscard]] double total() const { return kernels + contention + exposed + idle; }
};

Spent spent(const RunFigures& run) {
  const auto tokens = static_cast<double>(run.config.tokens_per_step());
  const auto each = [&](Nanos time) { return static_cast<double>(time.value) / tokens; };
  const TimeSummary& time = run.time;
  return {.kernels = each(time.compute - time.contention),
          .contention = each(time.contention),
          .exposed = each(time.exposed_communication),
          .idle = each(time.idle)};
}

/// All else that changes which kernels a step has, or how long they take.
bool differ_in_recomputation_alone(const RunFigures& one, const RunFigures& other) {
  PlanConfig a = one.config;
  const PlanConfig& b = other.config;
  const bool recomputes_otherwise = a.recompute != b.recompute;
  a.recompute = b.recompute;
  // These move collectives, and no kernel.
  a.prefetch = b.prefetch;
  a.grad_slots = b.grad_slots;
  a.placement = b.placement;
  a.gather = b.gather;
  a.reduce = b.reduce;
  return recomputes_otherwise && a == b && one.cluster.gpu == other.cluster.gpu;
}

/// Exposed communication by the axes over which it runs, where a run states them. `all`: the
/// difference, per token.
void add_exposed(const RunFigures& one, const RunFigures& other, double weight, double all,
                 std::vector<Cause>& causes) {
  std::map<std::string, double> by_axes;
  const auto add = [&](const RunFigures& run, double sign) {
    const auto tokens = static_cast<double>(run.config.tokens_per_step());
    for (const auto& [axes, time] : axis_times(run.facts))
      by_axes[axes] += sign * static_cast<double>(time.value) / tokens;
  };
  if (axis_times(one.facts).empty() == axis_times(other.facts).empty()) {
    add(other, 1);
    add(one, -1);
  }
  for (const auto& [axes, part] : by_axes) {
    causes.push_back({part * weight, "less exposed communication over " + axes,
                      "more exposed communication over " + axes});
    all -= part;
  }
  causes.push_back({all * weight, "less exposed communication", "more exposed communication"});
}

std::string listed(std::span<const Cause> causes, std::string Cause::* name) {
  std::vector<std::string> names;
  for (const Cause& cause : causes) names.push_back(cause.*name);
  return fmt::format("{}", fmt::join(names, " and "));
}

/// Where the difference is from: what helps, the largest first, and what takes much of it away.
std::string sources(std::vector<Cause> causes) {
  constexpr double kNearlyAll = 0.9;
  constexpr double kMost = 0.6;
  constexpr double kWorthSaying = 0.1;  // of all that helps
  std::ranges::stable_sort(causes, std::ranges::greater{}, &Cause::part);
  double helps = 0;
  for (const Cause& cause : causes) helps += std::max(cause.part, 0.0);
  std::erase_if(causes, [&](const Cause& c) { return std::abs(c.part) < kWorthSaying * helps; });
  const auto first_to_hurt =
      std::ranges::find_if(causes, [](const Cause& c) { return c.part < 0; });
  const std::span helping(causes.begin(), first_to_hurt);
  const std::span hurting(first_to_hurt, causes.end());
  if (helping.empty()) return "";
  const double largest = helping.front().part / helps;
  std::string text = largest >= kNearlyAll ? "nearly all from "
                     : largest >= kMost    ? "mostly from "
                                           : "from ";
  text += listed(largest >= kMost ? helping.first(1) : helping, &Cause::less);
  if (!hurting.empty()) text += ", in spite of " + listed(hurting, &Cause::more);
  return text;
}

std::string percent_text(double part) {
  constexpr double kSmall = 0.1;
  return format_real(100 * part, part < kSmall ? 1 : 0) + " %";
}

}  // namespace

std::string why_better(const Compared& best, const Compared& second, Find find) {
  const bool cheapest = find == Find::cheapest;
  const RunFigures& one = best.run;
  const RunFigures& other = second.run;
  const Spent a = spent(one);
  const Spent b = spent(other);
  const double time = std::log(b.total() / a.total());
  std::vector<Cause> causes;
  // A part's share of the difference is also its share of the difference of logarithms.
  const double difference = b.total() - a.total();
  const double weight = difference != 0 ? time / difference : 1 / a.total();
  const bool recomputation = differ_in_recomputation_alone(one, other);
  const std::string kernels = recomputation ? "recomputation" : "compute";
  causes.push_back({(b.kernels - a.kernels) * weight, "less " + kernels, "more " + kernels});
  causes.push_back({(b.contention - a.contention) * weight, "less slowdown by collectives",
                    "more slowdown by collectives"});
  add_exposed(one, other, weight, b.exposed - a.exposed, causes);
  const bool stages = one.config.mesh.size(Axis::pp) > 1 || other.config.mesh.size(Axis::pp) > 1;
  causes.push_back({(b.idle - a.idle) * weight, stages ? "a smaller bubble" : "less idle time",
                    stages ? "a larger bubble" : "more idle time"});
  double all = time;
  if (cheapest) {
    const bool both_priced = best.price > 0 && second.price > 0;
    const double price = both_priced ? std::log(second.price / best.price) : 0;
    causes.push_back({price, "a lower price", "a higher price"});
    all += price;
  } else {
    const double gpus =
        std::log(static_cast<double>(one.cluster.gpus) / static_cast<double>(other.cluster.gpus));
    causes.push_back({gpus, "more GPUs", "fewer GPUs"});
    all += gpus;
  }
  constexpr double kEqual = 0.001;
  const double better = cheapest ? 1 - std::exp(-all) : std::exp(all) - 1;
  if (better < kEqual)
    return fmt::format("as {} as the second best, to {}", cheapest ? "cheap" : "fast",
                       percent_text(kEqual));
  return fmt::format("{} {} than the second best, {}", percent_text(better),
                     cheapest ? "cheaper" : "faster", sources(std::move(causes)));
}

}  // namespace mfsdp
