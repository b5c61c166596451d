// Kernels that end a step: gradients into main gradients, loss, norm of all gradients, update.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/plan/kernel_costs.hpp"
#include "core/plan/kernel_spec.hpp"
#include "core/plan/kernels/pieces.hpp"
#include "core/plan/loss_scale.hpp"

namespace mfsdp::kernels {

/// The main gradient: out = the parts of all ranks in their order, or out += that, rounded once.
template <class In, class Out>
struct SumRanks {
  std::int64_t ranks = 0;
  std::int64_t count = 0;
  const In* in = nullptr;
  bool adds = false;
  Out* out = nullptr;
  std::optional<GradientGrid> grid = {};

  void state(auto& op) {
    op.attribute("count", count);
    op.attribute("ranks", ranks);
    op.reads("input", in, {"ranks", "count"}, {.element = Element::gradient});
    op.adds("output", out, adds, {"count"});
    op.grid(grid, GradientSum::of_ranks);
    op.expect(ranks >= 1, "input", "expected the part of at least one rank");
  }
};

/// Mean loss and 1 / tokens.
template <class T>
struct LossFinish {
  std::span<const T> sums;                ///< loss and tokens of each rank, in rank order
  float* report = nullptr;                ///< a LossReport
  const LossScaleState* scale = nullptr;  ///< of the gradients; null: they are not scaled

  void state(auto& op) {
    op.reads("input", sums, {{2, "data_ranks"}}, {.element = Element::statistic});
    op.writes("loss", report, {4}, {.element = Element::fp32});
    op.reads("loss_scale", scale, {4}, {.optional = true, .element = Element::fp32});
  }
};

// ---- kernels that are not read by the names of their operands alone -----------------------------
//
// These take slices of any shape, of states that the optimizer names, or of one of two types. Their
// *Form states what a plan has to have; core/runtime/calls reads them by hand.

/// out = in, or out += in, rounded once. Also the cast from one dtype to another.
template <class In, class Out>
struct Accumulate {
  std::int64_t count = 0;
  const In* in = nullptr;
  bool adds = false;
  Out* out = nullptr;
  std::optional<GradientGrid> grid = {};
};
/// The main gradient = or += the reduced gradient.
struct AccumulateForm {
  std::optional<GradientGrid> grid = {};

  void state(auto& op) {
    op.unread("beta");
    op.grid(grid, GradientSum::of_ranks);
  }
};
/// The same without a sum over ranks or microbatches.
struct CastForm {
  static void state(auto& op) { op.unread("beta"); }
};

/// Bytes that become 0, which is zero in every dtype.
struct ZeroPadding {
  std::vector<std::span<std::byte>> gaps;
};
struct ZeroPaddingForm {
  static void state(auto& /*op*/) {}
};

/// The sum of squares of one slice of gradients.
template <class T>
struct NormPartial {
  std::span<const T> values;
  float* partial = nullptr;
  /// Scratch; empty where a call has none, as not every machine needs it.
  std::span<std::byte> workspace = {};
};

/// The same under --exact-sums: values are multiples of 2^exponent within 24 bits, and the sum is
/// a whole number of squares of such steps.
struct ExactNormPartial {
  std::span<const float> values;
  std::int64_t exponent = 0;
  std::int64_t* partial = nullptr;
  std::span<std::byte> workspace = {};  ///< as of NormPartial
};
struct NormPartialForm {
  float* partial = nullptr;
  std::optional<GradientGrid> grid = {};
  std::span<std::byte> workspace = {};

  void state(auto& op) {
    op.writes("output", partial, {1}, {.element = Element::partial});
    op.grid(grid, GradientSum::of_squares);
    op.workspace(workspace, costs::sum_workspace);
  }
};

/// Norm, clip factor and whether the norm is finite.
struct NormFinish {
  std::span<const float> partials;               ///< empty under --exact-sums
  std::span<const std::int64_t> exact_partials;  ///< empty without
  std::int64_t exponent = 0;                     ///< of their steps
  const float* loss = nullptr;                   ///< [4], a LossReport
  double limit = 0;                              ///< of the norm; 0: no clipping
  float* report = nullptr;                       ///< [4], a NormReport
  LossScaleState* scale = nullptr;               ///< of the next step's loss; null: none
  std::int64_t scale_window = 0;                 ///< next_loss_scale()
};
struct NormFinishForm : NormFinish {
  std::optional<GradientGrid> grid = {};

  void state(auto& op) {
    op.unread("groups");
    op.attribute("limit", limit);
    op.attribute_if_any("scale_window", scale_window);
    op.reads("input", partials, {{"groups", "members"}}, {.element = Element::partial});
    op.reads("loss", loss, {4}, {.element = Element::fp32});
    op.writes("norm", report, {4}, {.element = Element::fp32});
    op.updates("loss_scale", scale, {4}, {.optional = true, .element = Element::fp32});
    op.grid(grid, GradientSum::of_squares);
  }
};

/// One rank's slice of a group, updated by its optimizer, and rounded into the compute weights.
/// Beside these operands an update has the slices that it works on: gradient, weights and the
/// states of the group's optimizer (optimizer_spec.hpp). Muon's has directions in place of
/// gradients; `momentum` makes them from gradients and its state.
struct UpdateForm {
  std::int64_t elements = 0;
  const std::uint8_t* step = nullptr;
  const float* loss = nullptr;
  const float* norm = nullptr;

  void state(auto& op) { state_with(op, true); }

 protected:
  void state_with(auto& op, bool loss_is_optional) {
    op.attribute("elements", elements);
    op.reads("step_block", step, {64});
    op.reads("loss", loss, {4}, {.optional = loss_is_optional, .element = Element::fp32});
    op.reads("norm", norm, {4}, {.optional = true, .element = Element::fp32});
  }
};
struct MomentumForm : UpdateForm {
  void state(auto& op) { state_with(op, false); }
};

}  // namespace mfsdp::kernels
