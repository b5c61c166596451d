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

/// The line with the smallest maximum error for a given launch. The error is extreme at the slowest
/// and the fastest copy; the maximum is smallest if both errors are equal in size.
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

/// Errors of the samples under the model of a cluster with variable NICs.
class NetworkProblem {
 public:
  NetworkProblem(std::span<const CollectiveSample> samples, std::span<const CollectiveRow> table,
                 const Cluster& cluster, BytesPerNano line_rate)
      : samples_(samples.begin(), samples.end()),
        table_(table),
        cluster_(cluster),
        line_rate_(line_rate) {
    for (const CollectiveSample& sample : samples_)
      largest_ = std::max(largest_, sample.bytes.value);
  }

  [[nodiscard]] BytesPerNano line_rate() const { return line_rate_; }
  [[nodiscard]] bool is_large(const CollectiveSample& sample) const {
    return sample.bytes.value >= largest_ / kLargeMessages;
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

  /// Large and small messages have equal weight as groups, for any number of each: bandwidth
  /// follows from large messages, latency from small ones.
  [[nodiscard]] double loss(const Nic& nic) const {
    constexpr double kLeast = 0.01;  // GB/s, the lower bound of a cluster file
    if (!(nic.bandwidth >= kLeast && nic.bandwidth <= line_rate())) return 1e300;
    return loss_of(nic);
  }

  /// The same, also above the line rate.
  [[nodiscard]] double loss_of(const Nic& nic) const {
    std::array<double, 2> sum{};
    std::array<double, 2> count{};
    const std::vector<double> all = ratios(nic);
    for (std::size_t i = 0; i < all.size(); ++i) {
      const double off = std::max(all[i], 1 / std::max(all[i], 1e-12)) - 1;
      const std::size_t group = is_large(samples_[i]) ? 1 : 0;
      sum[group] += off * off;
      count[group] += 1;
    }
    return sum[0] / std::max(1.0, count[0]) + sum[1] / std::max(1.0, count[1]);
  }

  /// Largest relative change of a large message's time between two NICs.
  [[nodiscard]] double change_of_large(const Nic& a, const Nic& b) const {
    const std::vector<double> first = ratios(a);
    const std::vector<double> second = ratios(b);
    double most = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i)
      if (is_large(samples_[i])) most = std::max(most, std::abs(first[i] / second[i] - 1));
    return most;
  }

  /// Largest fraction of a large message's time in which bytes move.
  [[nodiscard]] double share_of_bytes(const Nic& nic) const {
    const CollectiveModel model(table_, with(nic));
    double most = 0;
    for (const CollectiveSample& sample : samples_) {
      if (!is_large(sample)) continue;
      const CollectiveCost cost = model.cost(sample.kind, sample.bytes, {.ranks = sample.ranks});
      most = std::max(most, 1 - static_cast<double>(cost.latency.value) /
                                    std::max(1.0, static_cast<double>(cost.duration.value)));
    }
    return most;
  }

  /// Largest fraction of a sample's measured time that is NIC latency.
  [[nodiscard]] double share_of_latency(const Nic& nic) const {
    const std::vector<double> with = ratios(nic);
    const std::vector<double> without = ratios({.bandwidth = nic.bandwidth});
    double most = 0;
    for (std::size_t i = 0; i < samples_.size(); ++i) most = std::max(most, with[i] - without[i]);
    return most;
  }

 private:
  std::vector<CollectiveSample> samples_;
  std::int64_t largest_ = 0;
  std::span<const CollectiveRow> table_;
  const Cluster& cluster_;
  BytesPerNano line_rate_;
};

enum class Latency { free, fixed };

/// Multiplies and divides both parameters by decreasing steps while that improves the fit.
Nic refine(const NetworkProblem& problem, Nic best, Latency latency) {
  double least = problem.loss(best);
  for (double step = 1.25; step > 1.0005; step = 1 + (step - 1) / 2) {
    for (bool better = true; better;) {
      better = false;
      const double latency_step = std::max(100.0, best.latency_ns * (step - 1));
      for (const Nic& next :
           {Nic{std::min(best.bandwidth * step, problem.line_rate()), best.latency_ns},
            Nic{best.bandwidth / step, best.latency_ns},
            Nic{best.bandwidth, best.latency_ns + latency_step},
            Nic{best.bandwidth, std::max(0.0, best.latency_ns - latency_step)}}) {
        if (latency == Latency::fixed && next.latency_ns != best.latency_ns) continue;
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

/// `start` has the line rate as its bandwidth.
Nic search(const NetworkProblem& problem, const Nic& start, Latency latency) {
  std::vector<double> latencies_us{0, 1, 2, 4, 8, 16, 32, 64, 128, 256};
  if (latency == Latency::fixed) latencies_us = {start.latency_ns / 1e3};
  Nic best = start;
  double least = problem.loss(best);
  for (double factor = 1; factor > 1.0 / 1024; factor /= 1.25) {
    for (const double latency_us : latencies_us) {
      const Nic nic{.bandwidth = start.bandwidth * factor, .latency_ns = latency_us * 1e3};
      const double loss = problem.loss(nic);
      if (!(loss < least)) continue;
      best = nic;
      least = loss;
    }
  }
  return refine(problem, best, latency);
}

/// Relative changes of time, and improvements of a fit, that are too small to be significant.
constexpr double kNoChange = 0.005;
constexpr double kNoGain = 0.01;
/// Messages show latency if their bytes move for less than this fraction of their time.
constexpr double kMovesBytes = 0.5;

NicBound bound_of(const NetworkProblem& problem, const Nic& best) {
  const Nic line{.bandwidth = problem.line_rate(), .latency_ns = best.latency_ns};
  const Nic faster{.bandwidth = 2 * problem.line_rate(), .latency_ns = best.latency_ns};
  if (problem.change_of_large(best, faster) < kNoChange)
    return problem.share_of_bytes(best) < kMovesBytes ? NicBound::latency : NicBound::link;
  if (best.bandwidth < line.bandwidth / (1 + kNoChange)) return NicBound::samples;
  const bool gains = problem.loss_of(faster) < problem.loss_of(best) * (1 - kNoGain) ||
                     problem.loss_of({.bandwidth = line.bandwidth * (1 + kNoGain),
                                      .latency_ns = best.latency_ns}) < problem.loss_of(best);
  return gains ? NicBound::line_rate : NicBound::samples;
}

/// The slowest NIC with which large messages take the same time as with the fastest.
BytesPerNano least_bandwidth(const NetworkProblem& problem, const Nic& fastest) {
  double slow = fastest.bandwidth / 1024;
  double fast = fastest.bandwidth;
  while (fast / slow > 1 + kNoChange) {
    const double middle = std::sqrt(slow * fast);
    const bool is_as_fast =
        problem.change_of_large({middle, fastest.latency_ns}, fastest) < kNoChange;
    (is_as_fast ? fast : slow) = middle;
  }
  return fast;
}

/// A latency below this fraction of every sample's time is not visible. A fit that lowers it only
/// compensates for errors of the model at large messages.
constexpr double kSeenLatency = 0.05;

struct NicFit {
  Nic nic;
  Latency latency = Latency::free;
};

NicFit fit_nic(const NetworkProblem& problem, const Nic& start) {
  const Nic best = search(problem, start, Latency::free);
  const bool is_lowered = best.latency_ns < start.latency_ns;
  if (!is_lowered || problem.share_of_latency(start) >= kSeenLatency) return {.nic = best};
  return {.nic = search(problem, start, Latency::fixed), .latency = Latency::fixed};
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
              .errors = copy_errors(large, line)};
  const auto refuse = [&](const CopySample& sample, double bandwidth) {
    return fail(sample.place, fmt::format("copies run at {:.4g} GB/s, but {} has {:g} GB/s; bytes "
                                          "read and written count both",
                                          bandwidth, gpu.name, gpu.memory_bandwidth));
  };
  const bool is_possible = fit.copy_fraction > 0.01 && fit.copy_fraction <= 1;
  if (!is_possible && line.bandwidth > 0) return refuse(large.front(), line.bandwidth);
  // Skip copies that are shorter than a launch, or than a time that all copies include.
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
                       std::span<const CollectiveRow> table, const Cluster& cluster,
                       BytesPerNano line_rate) {
  const Nic start{.bandwidth = line_rate,
                  .latency_ns = static_cast<double>(cluster.nic_latency.value)};
  const NetworkProblem problem(samples, table, cluster, line_rate);
  auto [best, latency] = fit_nic(problem, start);
  NetworkFit fit{.nic_latency = Nanos(std::llround(best.latency_ns)),
                 .bound = bound_of(problem, best),
                 .shows_latency = latency == Latency::free};
  if (fit.bound == NicBound::link || fit.bound == NicBound::latency) {
    best.bandwidth = line_rate;
    fit.least_bandwidth = least_bandwidth(problem, best);
    best.bandwidth = std::max(cluster.nic_bandwidth, fit.least_bandwidth);
  }
  fit.nic_bandwidth = best.bandwidth;
  for (const double ratio : problem.ratios(best)) fit.errors.push_back(ratio - 1);
  if (samples.size() < 2) return fit;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    std::vector<CollectiveSample> others(samples.begin(), samples.end());
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    const NetworkProblem without(others, table, cluster, line_rate);
    const Cluster refitted = without.with(refine(without, best, latency));
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
