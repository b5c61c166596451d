// A trace of PyTorch's profiler (Kineto, Chrome trace format), reduced to what runs on GPUs.
//
// The fields that are read, and the source of each name, stand in verify/traces/README.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"

namespace mfsdp::traces {

/// What an NCCL kernel does, by its name, else by the collective that the profiler wrote beside it.
enum class CollectiveOp {
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  broadcast,
  reduce,
  send_receive,
  other
};
inline constexpr std::array<std::string_view, 8> kCollectiveOpNames{
    "all_gather", "reduce_scatter", "all_reduce",   "all_to_all",
    "broadcast",  "reduce",         "send_receive", "other"};
[[nodiscard]] inline std::string_view to_string(CollectiveOp op) {
  return kCollectiveOpNames[static_cast<std::size_t>(op)];
}

/// What kept a GPU busy, but for NCCL's kernels.
enum class WorkKind { kernel, copy, fill };

/// Times are nanoseconds on the trace's own clock.
struct GpuWork {
  Nanos begin;
  Nanos end;
  std::int32_t device = 0;
  std::int32_t stream = 0;
  std::uint32_t name = 0;  ///< index in Trace::names
  WorkKind kind = WorkKind::kernel;
};

struct CollectiveCall {
  Nanos begin;
  Nanos end;
  std::optional<Nanos> launched;  ///< when the host began the call that launched it
  std::int64_t correlation = 0;   ///< 0: none
  std::int32_t device = 0;
  std::int32_t stream = 0;
  std::uint32_t name = 0;         ///< kernel; index in Trace::names
  std::uint32_t group = 0;        ///< process group; index in Trace::names, "" where not written
  std::uint32_t dtype = 0;        ///< likewise
  std::uint32_t description = 0;  ///< of the group, likewise
  CollectiveOp op = CollectiveOp::other;
  std::int64_t in_elements = 0;  ///< 0: not written
  std::int64_t out_elements = 0;
  std::int64_t group_size = 0;
};

/// One "ProfilerStep#n" span: of the host, or of one stream of a device.
struct StepMark {
  std::int64_t step = 0;
  Nanos begin;
  Nanos end;
  std::optional<std::int32_t> device;  ///< none: the host's
};

/// A stream or the host waited for an event ("cuda_sync"; only with enable_cuda_sync_events).
struct SyncMark {
  Nanos begin;
  std::int32_t device = 0;
  std::int64_t stream = 0;
  bool stream_wait = false;      ///< "Stream Wait Event": a stream waits, not the host
  std::int64_t correlation = 0;  ///< of the host's call, which grow in its order; 0: none
  std::optional<std::int64_t> waits_on_stream;  ///< none where Kineto does not know it
  std::optional<std::int64_t>
      record_correlation;  ///< of the call that recorded the event, likewise
};

/// A host call that asks the driver for memory or gives it back.
struct DriverAllocation {
  Nanos begin;
  bool gives_back = false;
};

/// A collective of the host whose bytes went by copies between GPUs, without an NCCL kernel.
struct CopiedCollective {
  CollectiveOp op = CollectiveOp::other;
  std::uint32_t group = 0;  ///< index in Trace::names
};

/// An operator of PyTorch, as the host ran it.
struct HostOperator {
  Nanos begin;
  Nanos end;
  std::int64_t thread = 0;
  std::uint32_t name = 0;        ///< index in Trace::names
  std::int64_t external_id = 0;  ///< that what it launches has, too; 0: none
  /// Of each input; empty where it is no tensor, or the profiler did not record shapes.
  std::vector<std::vector<std::int64_t>> dims{};
};

/// A host call that launches a kernel.
struct HostLaunch {
  Nanos begin;
  Nanos end;
  std::int64_t thread = 0;
  std::int64_t correlation = 0;
};

/// Where an activity of a GPU came from.
struct WorkOrigin {
  std::int64_t external_id = 0;  ///< of the operator; 0: none
  std::int64_t bytes = 0;        ///< of a copy; 0: not written
};

struct Trace {
  std::string where;  ///< file, as errors name it
  std::optional<std::int64_t> rank;
  std::optional<std::int64_t> world_size;
  std::vector<std::string> names;  ///< each once; names[0] is ""
  std::vector<GpuWork> work;
  std::vector<CollectiveCall> collectives;
  std::vector<StepMark> steps;
  std::vector<SyncMark> syncs;
  std::vector<DriverAllocation> allocations;
  std::vector<CopiedCollective> copied_collectives;
  // Where KinetoSettings::keep_operators asks for them:
  std::vector<HostOperator> operators;
  std::vector<HostLaunch> launches;
  std::vector<WorkOrigin> origins;  ///< of `work`, at the same positions
  std::string cta_policy;           ///< NCCL_CTA_POLICY in the trace's metadata; "" without
  std::int64_t events = 0;          ///< entries of traceEvents
  std::int64_t bytes = 0;           ///< unpacked
  std::int64_t event_records = 0;   ///< host calls of cudaEventRecord
  std::int64_t stream_waits = 0;    ///< host calls of cudaStreamWaitEvent
  std::int64_t graph_launches = 0;  ///< host calls of cudaGraphLaunch
};

struct KinetoSettings {
  /// Bounds memory, of which unions and growing lists take up to three times as much: 32 bytes for
  /// each activity of a GPU, 96 for each collective, 16 for each launch, up to 80 for waits,
  /// calls of the allocator and copies that may be collectives, and the different names.
  std::size_t most_kept_bytes = std::size_t{512} << 20;
  /// Keeps the host's operators and launches, too, and where activities came from.
  bool keep_operators = false;
};

/// Reads a trace, plain or gzip, as a stream: nothing is kept of an event that is not the GPU's
/// or a launch. One line names the file and the event (counted from 0) or the byte where JSON, a
/// type, a time or a duration is wrong, a needed field is missing or written twice, an event lies
/// deeper than 64 levels, or a limit is passed.
[[nodiscard]] Result<Trace> read_kineto(const std::filesystem::path& path,
                                        const KinetoSettings& settings = {});
/// The same of bytes in memory.
[[nodiscard]] Result<Trace> parse_kineto(std::string_view bytes, const std::string& where,
                                         const KinetoSettings& settings = {});

/// "1234.567" microseconds -> 1234567 ns, exactly; digits beyond are rounded to the nearest, halves
/// up. None where it is no JSON number or leaves +-2^61 ns, 73 years.
[[nodiscard]] std::optional<Nanos> parse_microseconds(std::string_view text);

}  // namespace mfsdp::traces
