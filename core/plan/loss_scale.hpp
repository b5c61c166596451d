// Loss scaling: gradients are multiplied by a number in backward, so that small ones do not
// underflow in fp16, and divided by it where they are used.
//
//   loss_scale ──► cross_entropy: d(logits) times the scale        (every chunk, every microbatch)
//        ├───────► loss_finish: 1 / (T * scale), which norm and updates multiply gradients by
//        └◄──────► norm_finish: a norm that is not finite halves the scale, and the step's updates
//                  are skipped; enough finite norms in a row double it
//
// The rules are those of PyTorch's torch.amp.GradScaler. Powers of two change no bit of a gradient
// that neither overflows nor underflows.
#pragma once

#include <cstdint>

#include "core/base/error.hpp"
#include "core/plan/optimizer_spec.hpp"

namespace mfsdp {

struct PlanConfig;

/// The port `loss_scale`, fp32 [4]: equal on every rank, kept between steps.
struct LossScaleState {
  float scale = 1;       ///< of the summed losses of all tokens
  float good_steps = 0;  ///< finite steps in a row since the scale changed; at most 2^24
  float unused[2] = {};  // NOLINT(modernize-avoid-c-arrays): read by kernels, too

  friend bool operator==(const LossScaleState&, const LossScaleState&) = default;
};
static_assert(sizeof(LossScaleState) == 16);

namespace loss_scale {
inline constexpr std::int64_t first = 65'536;  ///< default of the initial scale
inline constexpr std::int64_t window = 2'000;  ///< finite steps before the scale grows
inline constexpr float growth = 2;
inline constexpr float backoff = 0.5F;
/// The largest scale, as in Apex; GradScaler has no limit.
inline constexpr float most = 0x1p24F;
/// The smallest scale: gradients that overflow below it overflow for another reason.
inline constexpr float least = 0x1p-24F;
}  // namespace loss_scale

/// The divisor of a configured scale: the smallest power of two that is at least the tokens of a
/// sequence. Users state the scale of the mean loss, plans scale its sum; a power of two keeps
/// every bit.
[[nodiscard]] std::int64_t loss_scale_tokens(const PlanConfig& config);

/// The state before the first step; scale 0 if the plan has none.
[[nodiscard]] LossScaleState first_loss_scale(const PlanConfig& config);

/// Checks --loss-scale and --loss-scale-window with each other and with the other flags.
[[nodiscard]] Result<void> check_loss_scale(const PlanConfig& config);

/// The state after a step. `window`: finite steps in a row before the scale grows; 0: it never
/// changes.
MFSDP_ON_DEVICE_TOO inline LossScaleState next_loss_scale(LossScaleState state, bool non_finite,
                                                          std::int64_t window) {
  if (window == 0) return state;
  if (non_finite) {
    state.good_steps = 0;
    if (state.scale > loss_scale::least) state.scale *= loss_scale::backoff;
    return state;
  }
  state.good_steps += 1;
  if (state.good_steps >= static_cast<float>(window)) {
    state.good_steps = 0;
    if (state.scale < loss_scale::most) state.scale *= loss_scale::growth;
  }
  return state;
}

}  // namespace mfsdp
