// The parts of resolve_launch: variables of each launcher, and values derived from them.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/error.hpp"
#include "gpu_backend/launch/launch_environment.hpp"

namespace mfsdp {

inline constexpr std::int64_t kMostLaunchedRanks = std::int64_t{1} << 20;
inline constexpr std::int64_t kMostPort = std::numeric_limits<std::uint16_t>::max();
inline constexpr std::string_view kThisHost = "127.0.0.1";

/// This process's rank according to a launcher; none if no launcher started it.
[[nodiscard]] Result<std::optional<RankPlace>> find_place(const Environment& environment);

/// The rank according to MFSDP_*; at least one of these variables is set.
[[nodiscard]] Result<RankPlace> read_mfsdp_place(const Environment& environment);

/// The launcher's identifier of this run; empty if there is none.
[[nodiscard]] std::string find_run_id(const Environment& environment, LaunchSource source);

/// "node0:29600", "[::1]:29600".
[[nodiscard]] Result<MeetingPoint> parse_meeting(std::string_view text);

/// The address where a rank with this place, started by a launcher, connects to the others.
[[nodiscard]] Result<MeetingPoint> find_meeting(const Environment& environment,
                                                const LaunchFlags& flags, const RankPlace& place,
                                                const std::string& run_id);

}  // namespace mfsdp
