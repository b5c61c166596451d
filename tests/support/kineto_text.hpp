// Traces as Kineto writes them (libkineto/src/output_json.cpp), made up event by event.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <utility>

namespace mfsdp::test {

inline constexpr std::int64_t kMicro = 1'000;  ///< a microsecond in nanoseconds

/// Times in nanoseconds; Kineto writes microseconds with three digits.
struct FakeActivity {
  std::string name = "void gemm_kernel()";
  std::int64_t begin = 0;
  std::int64_t duration = 0;
  int device = 0;
  int stream = 7;
  std::int64_t correlation = 0;
  std::string category = "kernel";
};

struct FakeCollective {
  std::string op = "_allgather_base";
  std::string group = "0";
  std::int64_t in_elements = 1024;
  std::int64_t out_elements = 8192;
  std::int64_t group_size = 8;
  std::string dtype = "BFloat16";
  std::string description = "default_pg";
};

class KinetoText {
 public:
  using Sink = std::function<void(std::string_view)>;

  explicit KinetoText(Sink sink, int rank = 0, int world_size = 8) : sink_(std::move(sink)) {
    sink_(fmt::format(
        "\n  {{\n    \"schemaVersion\": 1,\n    \"deviceProperties\": [\n      {{\"id\": 0, "
        "\"name\": "
        "\"NVIDIA H200\", \"totalGlobalMem\": 150754820096}}\n    ],\n  \"distributedInfo\": "
        "{{\"backend\": \"nccl\", \"rank\": {}, \"world_size\": {}, \"pg_count\": 1, "
        "\"pg_config\": "
        "[{{\"pg_name\": \"0\", \"ranks\": [0, 1]}}], \"nccl_version\": \"2.28.9\"}},\n"
        "  \"displayTimeUnit\": \"ms\",\n  \"baseTimeNanoseconds\": 1730000000000000000,\n"
        "  \"traceEvents\": [",
        rank, world_size));
  }

  void activity(const FakeActivity& a, std::string_view more_args = "") {
    write("X", a.category, a.name, a.device, a.stream, a.begin, a.duration,
          fmt::format("\"External id\": 17,\n      \"queued\": 0, \"device\": {}, \"context\": 1,\n"
                      "      \"stream\": {}, \"correlation\": {},\n      \"registers per thread\": "
                      "168,\n      \"shared memory\": 213312,\n      \"blocks per SM\": 1.0,\n"
                      "      \"grid\": [132, 1, 1],\n      \"block\": [384, 1, 1],\n      \"est. "
                      "achieved occupancy %\": 19{}",
                      a.device, a.stream, a.correlation, more_args));
  }
  void collective(const FakeActivity& a, const FakeCollective& c) {
    activity(a, fmt::format(", \"Collective name\": \"{}\", \"In msg nelems\": {}, \"Out msg "
                            "nelems\": {}, \"Group size\": {}, \"dtype\": \"{}\", \"Process Group "
                            "Name\": \"{}\", \"Process Group Description\": \"{}\", \"Process "
                            "Group Ranks\": \"[0, 1, ...]\"",
                            c.op, c.in_elements, c.out_elements, c.group_size, c.dtype, c.group,
                            c.description));
  }
  void host(std::string_view category, std::string_view name, std::int64_t begin,
            std::int64_t duration, std::int64_t correlation = 0) {
    write("X", category, name, 4711, 4711, begin, duration,
          fmt::format("\"cbid\": 211, \"correlation\": {}", correlation));
  }
  /// A wait of a stream for what another had launched before the record; -1: Kineto lost it.
  void wait(int stream, std::int64_t begin, std::int64_t correlation, int on_stream,
            std::int64_t record) {
    write("X", "cuda_sync", "Stream Wait Event", 0, stream, begin, 0,
          fmt::format("\"wait_on_stream\": {}, \"wait_on_cuda_event_record_corr_id\": {},\n      "
                      "\"wait_on_cuda_event_id\": 5, \"stream\": {}, \"correlation\": {}, "
                      "\"device\": 0, \"context\": 1",
                      on_stream, record, stream, correlation));
  }
  /// The host's name of a collective; the external id is that of all activities here.
  void host_collective(std::string_view op, std::int64_t begin, std::string_view group) {
    write("X", "cpu_op", "record_param_comms", 4711, 4711, begin, kMicro,
          fmt::format("\"External id\": 17, \"Collective name\": \"{}\", \"Process Group Name\": "
                      "\"{}\"",
                      op, group));
  }
  void step(std::int64_t number, std::int64_t begin, std::int64_t duration, bool on_device) {
    write("X", on_device ? "gpu_user_annotation" : "user_annotation",
          fmt::format("ProfilerStep#{}", number), on_device ? 0 : 4711, on_device ? 7 : 4711, begin,
          duration, "\"External id\": 3");
  }
  void raw(std::string_view event) {
    sink_(first_ ? "\n  " : ",\n  ");
    sink_(event);
    first_ = false;
  }
  void finish() { sink_("\n  ],\n  \"traceName\": \"trace.json\"\n}"); }

 private:
  static std::string micros(std::int64_t nanos) {
    return fmt::format("{}.{:03}", nanos / 1000, nanos % 1000);
  }
  void write(std::string_view phase, std::string_view category, std::string_view name,
             std::int64_t pid, std::int64_t tid, std::int64_t begin, std::int64_t duration,
             std::string_view args) {
    raw(fmt::format(
        "{{\n    \"ph\": \"{}\", \"cat\": \"{}\", \"name\": \"{}\", \"pid\": {}, "
        "\"tid\": {},\n    \"ts\": {}, \"dur\": {},\n    \"args\": {{\n      {}\n    }}\n"
        "  }}",
        phase, category, name, pid, tid, micros(begin), micros(duration), args));
  }

  Sink sink_;
  bool first_ = true;
};

/// The text of a whole trace; `body` writes its events.
inline std::string kineto_text(const std::function<void(KinetoText&)>& body) {
  std::string text;
  KinetoText trace([&](std::string_view part) { text += part; });
  body(trace);
  trace.finish();
  return text;
}

/// One step of a sharded model on streams 7 (compute), 20 (gathers) and 24 (reduce-scatters), with
/// host calls around it, about 25 kB for each layer: what large traces are made of.
inline std::int64_t write_step(KinetoText& trace, std::mt19937& random, std::int64_t step,
                               std::int64_t begin, int layers) {
  const auto about = [&](std::int64_t nanos) {
    return nanos - nanos / 8 +
           static_cast<std::int64_t>(random() % static_cast<std::uint32_t>(nanos / 4));
  };
  std::int64_t now = begin;
  std::int64_t gathers = begin;
  std::int64_t reductions = begin;
  std::int64_t correlation = step * 1'000'000 + 1;
  for (int layer = 0; layer < 2 * layers; ++layer) {
    const bool backward = layer >= layers;
    const auto nccl = [&](std::string name, std::int64_t& free, int stream, std::string op) {
      trace.host("cuda_runtime", "cudaLaunchKernelExC", now, 6'000, ++correlation);
      const std::int64_t start = std::max(free, now + 9'000);
      free = start + about(1'100'000);
      trace.collective({.name = std::move(name),
                        .begin = start,
                        .duration = free - start,
                        .stream = stream,
                        .correlation = correlation},
                       {.op = std::move(op)});
    };
    nccl("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", gathers, 20,
         "_allgather_base");
    now = std::max(now, gathers - 1'000'000);
    for (int kernel = 0; kernel < 24; ++kernel) {
      trace.host("cpu_op", kernel % 3 == 0 ? "aten::mm" : "aten::mul", now, 9'000);
      trace.host("cuda_runtime", "cudaLaunchKernel", now, 5'000, ++correlation);
      const std::int64_t took = about(backward ? 400'000 : 200'000);
      trace.activity({.name = kernel % 3 == 0 ? "nvjet_hsh_128x256_64x4_1x2_h_bz_coopA_NNT"
                                              : "void at::native::vectorized_elementwise_kernel<4, "
                                                "at::native::CUDAFunctor_add<float>>(int)",
                      .begin = now,
                      .duration = took,
                      .correlation = correlation});
      now += took + 2'000;
    }
    if (backward)
      nccl("ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
           reductions, 24, "_reduce_scatter_base");
  }
  now = std::max({now, gathers, reductions});
  trace.step(step, begin, now - begin, true);
  return now;
}

}  // namespace mfsdp::test
