#include "sim/calibrate/fit.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "sim/cost/collective.hpp"
#include "sim/cost/network_ratios.hpp"

namespace mfsdp {
namespace {

struct Line {
  double launch_ns = 0;
  double bandwidth = 0;
};

double worst_error(std::span<const CopySample> samples, const Line& line) {
  double worst = 0;
  for (const CopySample& sample : samples)
    worst =
        std::max(worst, std::abs((line.launch_ns + sample.bytes / line.bandwidth) / sample.ns - 1));
  return worst;
}

/// Least worst error for a given launch: the error is extreme at the slowest and the fastest copy,
/// and least where those two are equally far off.
Line best_line(std::span<const CopySample> samples, double launch_ns) {
  double least = 1e300;
  double most = 0;
  double fixed_least = 0;
  double fixed_most = 0;
  for (const CopySample& sample : samples) {
    const double per_byte = sample.bytes / sample.ns;
    if (per_byte < least) {
      least = per_byte;
      fixed_least = launch_ns / sample.ns;
    }
    if (per_byte > most) {
      most = per_byte;
      fixed_most = launch_ns / sample.ns;
    }
  }
  // (fixed_least + least / b - 1) = -(fixed_most + most / b - 1)
  return {.launch_ns = launch_ns, .bandwidth = (least + most) / (2 - fixed_least - fixed_most)};
}

Line fit_line(std::span<const CopySample> samples, double launch_ns, bool search) {
  constexpr double kStep = 100;
  constexpr double kMost = 50'000;
  Line best = best_line(samples, launch_ns);
  if (!search) return best;
  for (double launch = 0; launch <= kMost; launch += kStep) {
    const Line line = best_line(samples, launch);
    if (line.bandwidth > 0 && worst_error(samples, line) < worst_error(samples, best)) best = line;
  }
  return best;
}

std::vector<double> copy_errors(std::span<const CopySample> samples, const Line& line) {
  std::vector<double> errors;
  for (const CopySample& sample : samples)
    errors.push_back((line.launch_ns + sample.bytes / line.bandwidth) / sample.ns - 1);
  return errors;
}

struct Nic {
  double bandwidth = 0;
  double latency_ns = 0;
};

/// Samples against the model of a cluster whose NICs are varied.
class NetworkProblem {
 public:
  NetworkProblem(std::span<const CollectiveSample> samples, std::span<const CollectiveRow> table,
                 const Cluster& cluster)
      : samples_(samples.begin(), samples.end()), table_(table), cluster_(cluster) {
    for (const CollectiveSample& sample : samples_)
      largest_ = std::max(largest_, sample.bytes.value);
  }

  [[nodiscard]] Cluster with(const Nic& nic) const {
    Cluster cluster = cluster_;
    cluster.nic_bandwidth = nic.bandwidth;
    cluster.nic_latency = Nanos(std::llround(nic.latency_ns));
    return cluster;
  }

  [[nodiscard]] std::vector<double> ratios(const Nic& nic) const {
    const CollectiveModel model(table_, with(nic));
    std::vector<double> ratios;
    for (const CollectiveSample& sample : samples_) {
      const CollectiveCost cost = model.cost(sample.kind, sample.bytes, {.ranks = sample.ranks});
      ratios.push_back(static_cast<double>(cost.duration.value) / sample.ns);
    }
    return ratios;
  }

  /// Large and small messages weigh the same as a group: bandwidth follows from the former, latency
  /// from the latter, however many of each there are.
  [[nodiscard]] double loss(const Nic& nic) const {
    constexpr double kLeast = 0.01;  // GB/s that a cluster file may say
    constexpr double kMost = 1e6;
    if (!(nic.bandwidth >= kLeast && nic.bandwidth <= kMost)) return 1e300;
    std::array<double, 2> sum{};
    std::array<double, 2> count{};
    const std::vector<double> all = ratios(nic);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double off = std::max(all[i], 1 / std::max(all[i], 1e-12)) - 1;
      const std::size_t group = samples_[i].bytes.value >= largest_ / kLargeMessages ? 1 : 0;
      sum[group] += off * off;
      count[group] += 1;
    }
    return sum[0] / std::max(1.0, count[0]) + sum[1] / std::max(1.0, count[1]);
  }

 private:
  std::vector<CollectiveSample> samples_;
  std::int64_t largest_ = 0;
  std::span<const CollectiveRow> table_;
  const Cluster& cluster_;
};

/// Multiplies and divides both parameters by steps that shrink for as long as that helps.
Nic refine(const NetworkProblem& problem, Nic best) {
  double least = problem.loss(best);
  for (double step = 1.25; step > 1.0005; step = 1 + (step - 1) / 2) {
    for (bool better = true; better;) {
      better = false;
      const double latency_step = std::max(100.0, best.latency_ns * (step - 1));
      for (const Nic& next : {Nic{best.bandwidth * step, best.latency_ns},
                              Nic{best.bandwidth / step, best.latency_ns},
                              Nic{best.bandwidth, best.latency_ns + latency_step},
                              Nic{best.bandwidth, std::max(0.0, best.latency_ns - latency_step)}}) {
        const double loss = problem.loss(next);
        if (!(loss < least * (1 - 1e-9))) continue;
        best = next;
        least = loss;
        better = true;
      }
    }
  }
  return best;
}

Nic search(const NetworkProblem& problem, const Nic& start) {
  Nic best = start;
  double least = problem.loss(best);
  for (double factor = 1.0 / 1024; factor < 1024; factor *= 1.25) {
    for (const double latency_us : {0.0, 1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0}) {
      const Nic nic{.bandwidth = start.bandwidth * factor, .latency_ns = latency_us * 1e3};
      const double loss = problem.loss(nic);
      if (!(loss < least)) continue;
      best = nic;
      least = loss;
    }
  }
  return refine(problem, best);
}

}  // namespace

Result<CopyFit> fit_copies(std::span<const CopySample> samples, const Gpu& gpu) {
  std::vector<CopySample> large;
  for (const CopySample& sample : samples)
    if (sample.bytes >= kLeastCopyBytes) large.push_back(sample);
  if (large.empty())
    return fail(samples.front().place, "no copy moves 128 MiB or more; smaller ones show a cache");
  const bool search = large.size() >= 3;
  const auto base_launch = static_cast<double>(gpu.launch.value);
  const Line line = fit_line(large, base_launch, search);
  CopyFit fit{.copy_fraction = line.bandwidth / gpu.memory_bandwidth,
              .launch = {},
              .errors = copy_errors(large, line),
              .left_out = {}};
  const auto refuse = [&](const CopySample& sample, double bandwidth) {
    return fail(sample.place, fmt::format("copies run at {:.4g} GB/s, but {} has {:g} GB/s; bytes "
                                          "read and written count both",
                                          bandwidth, gpu.name, gpu.memory_bandwidth));
  };
  const bool is_possible = fit.copy_fraction > 0.01 && fit.copy_fraction <= 1;
  if (!is_possible && line.bandwidth > 0) return refuse(large.front(), line.bandwidth);
  // Shorter than a launch, or some above what all of them make.
  for (const CopySample& sample : large)
    if (sample.bytes > gpu.memory_bandwidth * sample.ns)
      return refuse(sample, sample.bytes / sample.ns);
  if (!is_possible) return refuse(large.front(), line.bandwidth);
  if (!search) return fit;
  fit.launch = Nanos(std::llround(line.launch_ns));
  for (std::size_t i = 0; i < large.size(); ++i) {
    std::vector<CopySample> others = large;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const Line without = fit_line(others, base_launch, others.size() >= 3);
    fit.left_out.push_back(copy_errors({&large[i], 1}, without).front());
  }
  return fit;
}

NetworkFit fit_network(std::span<const CollectiveSample> samples,
                       std::span<const CollectiveRow> table, const Cluster& cluster) {
  const Nic start{.bandwidth = cluster.nic_bandwidth,
                  .latency_ns = static_cast<double>(cluster.nic_latency.value)};
  const Nic best = search(NetworkProblem(samples, table, cluster), start);
  NetworkFit fit{.nic_bandwidth = best.bandwidth,
                 .nic_latency = Nanos(std::llround(best.latency_ns)),
                 .errors = {},
                 .left_out = {}};
  for (const double ratio : NetworkProblem(samples, table, cluster).ratios(best))
    fit.errors.push_back(ratio - 1);
  if (samples.size() < 2) return fit;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<CollectiveSample> others(samples.begin(), samples.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const NetworkProblem problem(others, table, cluster);
    const Cluster refitted = problem.with(refine(problem, best));
    const CollectiveModel model(table, refitted);
    const CollectiveSample& sample = samples[i];
    const CommunicatorShape shape{.ranks = sample.ranks};
    const double ratio = NetworkRatios(others, model, refitted)
                             .at(sample.kind, static_cast<double>(sample.bytes.value), shape);
    const CollectiveCost cost = model.cost(sample.kind, sample.bytes, shape);
    fit.left_out.push_back(static_cast<double>(cost.duration.value) * ratio / sample.ns - 1);
  }
  return fit;
}

}  // namespace mfsdp
