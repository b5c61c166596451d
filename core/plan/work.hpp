// How the work of a step is split over the ranks of a mesh.
//
//   axis                   its ranks have
//   dp_outer, dp_shard     other sequences
//   cp                     other tokens of the same sequences
//   tp                     other rows between blocks, and other parts of a block's weights
//   pp                     other blocks
//
// On the experts' grid expt_dp_outer and expt_dp are as the first two. Ranks of ep and etp have
// other parts of the experts' weights, and their own rows outside of the experts. One rule holds on
// both grids: an axis on which tokens are split is a data axis of every parameter that is whole on
// it, so gradients are summed over it. validate() refuses etp until plans split anything along it.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/model.hpp"
#include "core/plan/mesh.hpp"
#include "core/plan/placement.hpp"

namespace mfsdp {

/// The sizes of the axes, multiplied. Throws OverflowError beyond 63 bits.
[[nodiscard]] std::int64_t ranks_on(const std::vector<Axis>& axes, const Mesh& mesh);

/// Ranks that read other sequences. The global batch is one batch of each.
[[nodiscard]] std::int64_t data_ranks(const Mesh& mesh);

/// The rank's number among the data ranks, from 0. Ranks of one number read the same sequences.
[[nodiscard]] std::int64_t data_index(const Mesh& mesh, std::int64_t rank);

/// Ranks that share the tokens of each sequence equally: consecutive ones of each, or two chunks of
/// it where each has all heads.
[[nodiscard]] std::int64_t sequence_parts(const Mesh& mesh);

/// The rank's part of each sequence, from 0.
[[nodiscard]] std::int64_t sequence_part(const Mesh& mesh, std::int64_t rank);

/// Axes of the dense grid on which tokens are split, outermost first: sums over all tokens, such as
/// the loss and the gradient's norm, have a term from each rank on them.
[[nodiscard]] std::vector<Axis> token_axes(const Mesh& mesh);

/// The axes among these whose ranks read other tokens. Ranks of tp read the same ones, and each has the
/// whole loss.
[[nodiscard]] std::vector<Axis> loss_axes(const Mesh& mesh);

/// Along which dim ranks of tp cut a parameter of a block, of the embedding or of the head: 0 where
/// each has other outputs of a linear layer, or rows of the vocabulary; 1 where each has other
/// inputs; none for parameters that are whole on each rank. An adapter's B is cut as the outputs of
/// its matrix are, and its A as the inputs are.
[[nodiscard]] std::optional<std::int64_t> tensor_dim(ParameterRole role);

/// How expert-parallel parameters are cut: along their first dim, the experts.
[[nodiscard]] Placement expert_shard();

/// Axes over which gradients are summed, outermost first. `shard`: the axes along which dims of the
/// parameters are cut; the parameters are on the experts' grid if one of these axes is.
[[nodiscard]] std::vector<Axis> data_axes(const Mesh& mesh, const Placement& shard);

}  // namespace mfsdp
