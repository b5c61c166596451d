#include "verify/proof/ledger/gradient_memory.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace mfsdp {
namespace {

/// A plan that doubles a gradient again and again ends here.
constexpr std::size_t kMostTerms = std::size_t{1} << 18;

}  // namespace

Held& Held::operator+=(const Held& other) {
  if (terms.size() + other.terms.size() > kMostTerms)
    throw OverflowError(fmt::format("a gradient of more than {} contributions", kMostTerms));
  // A hostile plan may add a gradient to itself: its terms are read again after the list has grown.
  const auto before = std::ssize(terms);
  const auto added = std::ssize(other.terms);
  terms.resize(static_cast<std::size_t>(before + added));
  std::copy_n(other.terms.begin(), added, terms.begin() + before);
  garbage = garbage || other.garbage;
  uneven = uneven || other.uneven;
  rounded = rounded || other.rounded;
  return *this;
}

std::optional<Spot> spot_of(const Layouts& layouts, const Located& located) {
  if (!located.exact) return std::nullopt;
  const GroupLayout& layout = layouts.groups[located.group];
  const int base = layouts.homes[located.buffer].level;
  if (const auto level = layout.level_of(located.region); level && *level >= base)
    return Spot{.buffer = located.buffer,
                .group = located.group,
                .level = *level,
                .atoms = {.first = 0, .last = static_cast<std::uint32_t>(layout.atoms.size())}};
  const auto atoms = layouts.atoms_of(located.group, located.region);
  if (!atoms || base != 0) return std::nullopt;
  return Spot{.buffer = located.buffer, .group = located.group, .level = 0, .atoms = *atoms};
}

GradientMemory::GradientMemory(const Layouts& layouts)
    : buffers_(layouts.homes.size()), levels_(layouts.levels) {
  for (std::uint32_t b = 0; b < buffers_.size(); ++b) {
    const Home& home = layouts.homes[b];
    if (home.holds != Holds::gradient) continue;
    buffers_[b].base = home.level;
    const GroupLayout& layout = layouts.groups[home.groups[0]];
    buffers_[b].atoms = static_cast<std::uint32_t>(layout.atoms.size());
    buffers_[b].layers.resize(layout.slices.size());
    forget(b);
  }
}

void GradientMemory::forget(std::uint32_t buffer) {
  Layers& contents = buffers_[buffer];
  const auto base = static_cast<std::size_t>(contents.base);
  contents.kept = {};
  contents.kept[base] = true;
  contents.layers[base].resize(contents.atoms);
  for (Held& held : contents.layers[base]) {
    held.terms.clear();
    held.garbage = true;
    held.uneven = false;
    held.rounded = false;
  }
}

const Held& GradientMemory::at(std::uint32_t buffer, int level, std::uint32_t atom) const {
  while (!differs(buffer, level)) --level;
  return buffers_[buffer].layers[static_cast<std::size_t>(level)][atom];
}

Held& GradientMemory::edit(std::uint32_t buffer, int level, std::uint32_t atom) {
  auto& [base, atoms, layers, kept] = buffers_[buffer];
  const auto here = static_cast<std::size_t>(level);
  if (!kept[here]) {
    std::size_t coarser = here;
    while (!kept[coarser]) --coarser;
    layers[here] = layers[coarser];
    kept[here] = true;
  }
  return layers[here][atom];
}

void GradientMemory::drop_finer(std::uint32_t buffer, int level) {
  auto& kept = buffers_[buffer].kept;
  std::fill(kept.begin() + level + 1, kept.end(), false);
}

}  // namespace mfsdp
