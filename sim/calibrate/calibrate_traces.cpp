// Calibration by a profiler's trace of a run. A trace has too few shapes for tables, but shows the
// speed of this machine relative to the base's tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/base/text.hpp"
#include "sim/calibrate/calibration_state.hpp"
#include "sim/calibrate/fit.hpp"
#include "sim/cost/collective.hpp"
#include "sim/cost/cost_model.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

/// Predicted and measured times of one kind of work, weighted by the number of executions.
struct Compared {
  double predicted = 0;
  double measured = 0;
  std::vector<double> ratios;  ///< predicted / measured, of each shape

  void add(double its_predicted, double its_measured, std::int64_t count) {
    predicted += its_predicted * static_cast<double>(count);
    measured += its_measured * static_cast<double>(count);
    ratios.push_back(its_predicted / its_measured);
  }
  /// Measured speed relative to the prediction.
  [[nodiscard]] double factor() const { return predicted / measured; }
  /// Error of each shape after all were scaled.
  [[nodiscard]] std::vector<double> errors() const {
    std::vector<double> all;
    for (const double ratio : ratios) all.push_back(ratio / factor() - 1);
    return all;
  }
};

Kernel product_of(const TracedGemm& gemm) {
  return {
      .kind = KernelKind::gemm,
      .operands = {},
      .attributes = {{"k", gemm.k}, {"kind", number_of(gemm.kind)}, {"m", gemm.m}, {"n", gemm.n}}};
}

Kernel attention_of(const TracedAttention& attention) {
  return {
      .kind = attention.backward ? KernelKind::attention_backward : KernelKind::attention_forward,
      .operands = {},
      .attributes = {{"batch", attention.batch},
                     {"head_dim", attention.head_dim},
                     {"heads", attention.heads},
                     {"seq", attention.seq}}};
}

class TraceFit {
 public:
  TraceFit(CalibrationState& state, const CostModel& costs) : state_(state), costs_(costs) {}

  void run() {
    for (const TraceRun& trace : state_.data.traces) {
      for (const TracedGemm& gemm : trace.gemms)
        gemms_.add(price(product_of(gemm)), gemm.ns, gemm.count);
      for (const TracedAttention& attention : trace.attentions)
        attentions_.add(price(attention_of(attention)), attention.ns, attention.count);
      for (const TracedCollective& collective : trace.collectives) add(collective);
      note_rest(trace);
    }
    source_ = fmt::format("trace: {}", names_of(state_.data.trace_files));
    scale("GEMM", "compute.gemm_scale", gemms_, state_.data.gemm.empty(), state_.gpu.gemm_scale,
          {.most = most_gemm_scale(), .what = "the peak"});
    scale("attention", "compute.attention_scale", attentions_, state_.data.attention.empty(),
          state_.gpu.attention_scale, {.most = most_attention_scale(), .what = "the peak"});
    scale("collective", "link.efficiency", collectives_, state_.data.collectives.empty(),
          state_.gpu.link_efficiency, {.most = most_link_efficiency(), .what = "the link"});
    set_copies();
    set_host();
  }

 private:
  [[nodiscard]] double price(const Kernel& kernel) const {
    return static_cast<double>(costs_.kernel(kernel).value);
  }

  void add(const TracedCollective& collective) {
    if (collective.ranks > state_.domain) {
      ++left_out_;
      return;
    }
    const CollectiveCost cost = costs_.collective(collective.kind, collective.bytes,
                                                  {.ranks = collective.ranks, .spacing = 1});
    collectives_.add(static_cast<double>(cost.duration.value), collective.ns, collective.count);
  }

  /// The upper bound of a fitted value, and the data sheet's value that sets it.
  struct Limit {
    double most = 0;
    const char* what = "";
  };

  /// The scale at which the table's fastest GEMM runs at the data sheet's peak.
  [[nodiscard]] double most_gemm_scale() const {
    double fastest = 0;
    for (const GemmRow& row : state_.tables.gemm) fastest = std::max(fastest, row.flops_per_ns);
    return state_.base.bf16 * kFlopsPerNanoOfTera / fastest;
  }
  [[nodiscard]] double most_attention_scale() const {
    double fastest = 0;
    for (const AttentionRow& row : state_.tables.attention)
      fastest = std::max(
          fastest,
          attention_flops(row.backward, row.batch, row.seq, row.heads, row.head_dim) / row.ns);
    return state_.base.bf16 * kFlopsPerNanoOfTera / fastest;
  }
  /// The efficiency at which the table's fastest gather or reduction saturates the link
  /// (CollectiveModel::link_scale).
  [[nodiscard]] double most_link_efficiency() const {
    double fastest = 0;
    for (const CollectiveRow& row : state_.tables.collective) {
      fastest = std::max({fastest, bus_of(CollectiveKind::all_gather, row, row.all_gather_ns),
                          bus_of(CollectiveKind::reduce_scatter, row, row.reduce_scatter_ns)});
    }
    return kTableLink / fastest;
  }
  static double bus_of(CollectiveKind kind, const CollectiveRow& row, double ns) {
    return wire_bytes(kind, row.bytes, row.ranks) / ns;
  }

  /// `is_free`: no table of this GPU was measured or given.
  void scale(const char* group, const char* key, const Compared& compared, bool is_free,
             double& value, const Limit& limit) {
    if (compared.ratios.empty()) return;
    if (!is_free) {
      state_.result.notes.push_back(
          fmt::format("{}: the trace has {:.3g} times the rate of the given table, which is "
                      "kept",
                      key, compared.factor()));
      return;
    }
    const double base = value;
    value *= compared.factor();
    std::string source = source_;
    if (value > limit.most) {
      state_.result.notes.push_back(
          fmt::format("{}: the trace gives {:.4g}, which exceeds {} of {}; {:.4g} is used", key,
                      value, limit.what, state_.base.name, limit.most));
      source += fmt::format(", bound by {} of {}", limit.what, state_.base.name);
      value = limit.most;
    }
    note_value(state_, key, value, base, source);
    note_errors(state_, group, "of the trace, scaled", compared.errors(), Evaluation::fit,
                names_of(state_.data.trace_files));
  }

  void set_copies() {
    std::vector<double> rates;  // bytes read and written per nanosecond
    for (const TraceRun& trace : state_.data.traces)
      for (const TracedCopy& copy : trace.copies)
        if (2 * static_cast<double>(copy.bytes) >= kLeastCopyBytes && copy.ns > 0)
          rates.push_back(2 * static_cast<double>(copy.bytes) / copy.ns);
    if (rates.empty() || !state_.data.copies.empty()) return;
    std::ranges::sort(rates);
    const double rate = rates[rates.size() / 2];
    const double base = state_.gpu.copy_fraction;
    state_.gpu.copy_fraction = std::min(1.0, rate / state_.gpu.memory_bandwidth);
    note_value(state_, "memory.copy_fraction", state_.gpu.copy_fraction, base, source_);
  }

  void set_host() {
    double sum = 0;
    double weight = 0;
    for (const TraceRun& trace : state_.data.traces) {
      if (!trace.launch_ns) continue;
      sum += *trace.launch_ns * static_cast<double>(trace.launches);
      weight += static_cast<double>(trace.launches);
    }
    if (weight == 0) return;
    const auto base = static_cast<double>(state_.gpu.host_launch.value);
    state_.gpu.host_launch = Nanos(std::llround(sum / weight));
    note_value(state_, "node.host_launch_ns", static_cast<double>(state_.gpu.host_launch.value),
               base, source_);
    state_.result.notes.emplace_back(
        "node.host_launch_ns: includes the profiler's own work; two tiny runs without a profiler "
        "measure it better (docs/guide/calibrate.md)");
  }

  void note_rest(const TraceRun& trace) {
    constexpr std::size_t kNamed = 3;
    constexpr std::size_t kNameBytes = 60;
    double rest = 0;
    for (const Unattributed& one : trace.unattributed) rest += one.ns;
    const auto percent = [&](double ns) { return 100 * ns / std::max(trace.kernel_ns, 1.0); };
    std::string text = fmt::format(
        "{}: {:.1f} % of kernel time is neither GEMM, attention nor copy, and stays priced by "
        "bytes",
        printable(trace.where), percent(rest));
    for (std::size_t i = 0; i < trace.unattributed.size() && i < kNamed; ++i)
      text += fmt::format("{} {:.1f} % {}", i == 0 ? ":" : ",", percent(trace.unattributed[i].ns),
                          printable(trace.unattributed[i].name.substr(0, kNameBytes)));
    state_.result.notes.push_back(std::move(text));
    if (left_out_ > 0)
      state_.result.notes.push_back(
          fmt::format("{}: {} sizes of collectives between domains are ignored: give runs of "
                      "nccl-tests to measure a network",
                      printable(trace.where), std::exchange(left_out_, 0)));
  }

  CalibrationState& state_;
  const CostModel& costs_;
  Compared gemms_;
  Compared attentions_;
  Compared collectives_;
  std::string source_;
  std::int64_t left_out_ = 0;
};

}  // namespace

Result<void> add_traces(CalibrationState& state) {
  if (state.data.traces.empty()) return {};
  MFSDP_TRY(check_traces(state));
  const std::int64_t domain = std::max<std::int64_t>(state.domain, 1);
  MFSDP_LET(cluster, make_cluster(state.gpu, domain, domain));
  const CostModel costs(cluster, state.tables);
  TraceFit(state, costs).run();
  return {};
}

}  // namespace mfsdp
