// The parts of resolve_launch: what each launcher says, and what follows from it.
#pragma once

#include <array>
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

/// The rank that a launcher says this process is; none where none does.
[[nodiscard]] Result<std::optional<RankPlace>> find_place(const Environment& environment);

/// What MFSDP_* says; some of it is set.
[[nodiscard]] Result<RankPlace> read_mfsdp_place(const Environment& environment);

/// What names this run of the launcher; empty where nothing does.
[[nodiscard]] std::string find_run_id(const Environment& environment, LaunchSource source);

/// "node0:29600", "[::1]:29600".
[[nodiscard]] Result<MeetingPoint> parse_meeting(std::string_view text);

/// Where a rank with this place, which a launcher started, meets the others.
[[nodiscard]] Result<MeetingPoint> find_meeting(const Environment& environment,
                                                const LaunchFlags& flags, const RankPlace& place,
                                                const std::string& run_id);

}  // namespace mfsdp
