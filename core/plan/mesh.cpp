#include "core/plan/mesh.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <ranges>
#include <span>

namespace mfsdp {
namespace {

using Grid = std::vector<MeshAxis>;

bool is_of_experts(Axis axis) { return axis >= Axis::expt_dp_outer; }

const MeshAxis* find(const Grid& grid, Axis axis) {
  const auto found = std::ranges::find(grid, axis, &MeshAxis::axis);
  return found == grid.end() ? nullptr : &*found;
}

/// The grid of an axis; pp is on both, at the same position.
const Grid& grid_of(const Mesh& mesh, Axis axis) {
  return is_of_experts(axis) ? mesh.experts : mesh.dense;
}

std::int64_t product_of(std::span<const MeshAxis> axes) {
  std::int64_t product = 1;
  for (const MeshAxis& axis : axes) product = checked_mul(product, axis.size);
  return product;
}

Result<void> check_grid(const Grid& grid, const char* where, bool experts) {
  for (std::size_t i = 0; i < grid.size(); ++i) {
    const auto& [axis, size] = grid[i];
    const std::string place = fmt::format("{}[{}]", where, i);
    if (size < 2)
      return fail(
          place + ".size",
          fmt::format("expected at least 2 (an axis of one rank is left out), got {}", size));
    if (axis != Axis::pp && is_of_experts(axis) != experts)
      return fail(place + ".axis", fmt::format("{} is no axis of this grid", to_string(axis)));
    if (std::ranges::count(grid, axis, &MeshAxis::axis) > 1)
      return fail(place + ".axis", fmt::format("{} is repeated", to_string(axis)));
    if (i > 0 && axis < grid[i - 1].axis)
      return fail(place + ".axis", fmt::format("expected {} before {}", to_string(axis),
                                               to_string(grid[i - 1].axis)));
  }
  return {};
}

}  // namespace

std::int64_t Mesh::world_size() const { return product_of(dense); }

std::int64_t Mesh::size(Axis axis) const {
  const MeshAxis* found = find(grid_of(*this, axis), axis);
  return found == nullptr ? 1 : found->size;
}

std::int64_t Mesh::stride(Axis axis) const {
  const Grid& grid = grid_of(*this, axis);
  const MeshAxis* found = find(grid, axis);
  if (found == nullptr) return 1;
  return product_of({found + 1, grid.data() + grid.size()});
}

void Mesh::resize(Axis axis, std::int64_t ranks) {
  std::erase_if(dense, [&](const MeshAxis& other) { return other.axis == axis; });
  if (ranks == 1) return;
  const auto at = std::ranges::upper_bound(dense, axis, {}, &MeshAxis::axis);
  dense.insert(at, {.axis = axis, .size = ranks});
}

Mesh data_parallel_mesh(std::int64_t dp_outer, std::int64_t dp_shard) {
  Mesh mesh;
  mesh.resize(Axis::dp_outer, dp_outer);
  mesh.resize(Axis::dp_shard, dp_shard);
  return mesh;
}

Mesh with_expert_grid(Mesh mesh, std::int64_t ep) {
  mesh.experts.clear();
  if (ep <= 1) return mesh;
  const auto add = [&](Axis axis, std::int64_t ranks) {
    if (ranks > 1) mesh.experts.push_back({.axis = axis, .size = ranks});
  };
  add(Axis::pp, mesh.size(Axis::pp));
  add(Axis::expt_dp_outer, mesh.size(Axis::dp_outer));
  const std::int64_t sharing =
      checked_mul(checked_mul(mesh.size(Axis::dp_shard), mesh.size(Axis::cp)), mesh.size(Axis::tp));
  add(Axis::expt_dp, sharing / ep);
  add(Axis::ep, ep);
  return mesh;
}

Result<void> check_mesh(const Mesh& mesh) {
  MFSDP_TRY(check_grid(mesh.dense, "mesh.dense", false));
  MFSDP_TRY(check_grid(mesh.experts, "mesh.experts", true));
  if (mesh.experts.empty()) return {};
  if (const std::int64_t ranks = product_of(mesh.experts); ranks != mesh.world_size())
    return fail("mesh.experts", fmt::format("expected {} ranks as mesh.dense has, got {}",
                                            mesh.world_size(), ranks));
  if (mesh.size(Axis::pp) > 1 && (mesh.experts.front() != mesh.dense.front()))
    return fail("mesh.experts", "expected pp outermost and of one size on both grids");
  return {};
}

Membership::Membership(const std::vector<Axis>& axes, const Mesh& mesh) {
  const bool experts = std::ranges::any_of(
      axes, [&](Axis axis) { return is_of_experts(axis) && mesh.size(axis) > 1; });
  std::int64_t stride = 1;
  for (const auto& [axis, size] : (experts ? mesh.experts : mesh.dense) | std::views::reverse) {
    const bool own = std::ranges::find(axes, axis) != axes.end();
    Steps& steps = own ? own_ : others_;
    steps.insert(steps.begin(), {.size = size, .stride = stride});
    (own ? size_ : count_) *= size;
    stride = checked_mul(stride, size);
  }
}

std::int64_t Membership::number_of(std::int64_t rank, const Steps& steps) {
  std::int64_t number = 0;
  for (const auto& [size, stride] : steps) number = number * size + rank / stride % size;
  return number;
}

std::int64_t Membership::rank_of(std::int64_t number, const Steps& steps) {
  std::int64_t rank = 0;
  for (const auto& [size, stride] : steps | std::views::reverse) {
    rank += number % size * stride;
    number /= size;
  }
  return rank;
}

}  // namespace mfsdp
