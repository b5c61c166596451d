// Fits physical parameters to measurements, each with the model that will use it.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "core/base/error.hpp"
#include "sim/calibrate/measurements.hpp"
#include "sim/cost/tables.hpp"
#include "sim/hardware/cluster.hpp"

namespace mfsdp {

/// Copies of at least this size measure memory bandwidth, not a cache or the launch.
inline constexpr double kLeastCopyBytes = 134217728;  // 128 MiB

struct CopyFit {
  double copy_fraction = 0;  ///< of the memory's nominal bandwidth
  std::optional<Nanos> launch = {};
  std::vector<double> errors;         ///< of the copies that were fitted
  std::vector<double> left_out = {};  ///< the same, each predicted without itself; empty below 3
};

/// time = launch + bytes / (bandwidth * fraction), with the smallest maximum relative error over
/// copies from 128 MiB on. With fewer than three copies the launch time stays the GPU's. Errors: no
/// such copy; more than the nominal bandwidth.
[[nodiscard]] Result<CopyFit> fit_copies(std::span<const CopySample> samples, const Gpu& gpu);

/// Messages of at least the largest size divided by this count as large.
inline constexpr std::int64_t kLargeMessages = 16;

/// The constraint that keeps a fitted NIC from being faster.
enum class NicBound {
  samples,    ///< a faster one would fit the samples worse
  line_rate,  ///< a faster one would fit better, but exceed the data sheet
  link,       ///< faster ones fit as well: the link inside a domain bounds the test
  latency     ///< faster ones fit as well: the messages are too small to show bandwidth
};

struct NetworkFit {
  BytesPerNano nic_bandwidth = 0;  ///< at most the line rate
  Nanos nic_latency;
  NicBound bound = NicBound::samples;
  BytesPerNano least_bandwidth = 0;  ///< with NicBound::link: slower NICs fit worse
  bool shows_latency = true;         ///< false: no sample does, and the cluster's own stays
  std::vector<double> errors = {};   ///< of all samples, with these two parameters alone
  std::vector<double> left_out =
      {};  ///< parameters and ratios (network_ratios.hpp) from the others
};

/// Bandwidth and latency of one NIC of `cluster` with which its collectives between domains fit the
/// samples best. The fit minimises the mean square of larger / smaller - 1 over large messages plus
/// that over the others. It searches a grid, then refines with decreasing steps; the result is the
/// same on every machine. A NIC has at most `line_rate`, from its data sheet. If the samples do not
/// determine the bandwidth (NicBound::link, latency), it stays `cluster`'s, unless the samples show
/// a faster one.
[[nodiscard]] NetworkFit fit_network(std::span<const CollectiveSample> samples,
                                     std::span<const CollectiveRow> table, const Cluster& cluster,
                                     BytesPerNano line_rate);

}  // namespace mfsdp
