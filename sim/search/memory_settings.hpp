// Settings that save memory, make a step slower and train the same: full recomputation, no
// prefetch, one gradient slot. Data types and sequence lengths are none of them: they change the
// training.
#pragma once

#include <span>
#include <vector>

#include "sim/search/space.hpp"

namespace mfsdp {

/// A job and the settings that it has in addition to what was asked.
struct Variant {
  JobOptions job;
  std::vector<Setting> settings = {};  ///< empty: as asked
};

[[nodiscard]] Setting full_recomputation();
/// --prefetch and --grad-slots at their least.
[[nodiscard]] std::vector<Setting> least_slots();
/// All settings that save memory.
[[nodiscard]] std::vector<Setting> memory_settings();

/// The job with the settings, except those that it has already and those that its engine does not
/// know.
[[nodiscard]] Variant with_new_settings(const JobOptions& job, std::span<const Setting> settings);

/// Variants of the job in order of decreasing memory: as given, with full recomputation, with all
/// memory settings that job.given leaves open. Each variant adds settings to the one before.
[[nodiscard]] std::vector<Variant> memory_variants(const JobOptions& job);

/// Axes of --prefetch and --grad-slots, each with its default and its least value, for those that
/// are open. None if an engine was asked for: other engines know no such flags.
[[nodiscard]] std::vector<SearchAxis> memory_axes(const JobOptions& job, const SearchSpace& space);

}  // namespace mfsdp
