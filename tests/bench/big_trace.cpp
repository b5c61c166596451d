// Reads a made-up Kineto trace of hundreds of megabytes and prints what that took:
//   mfsdp_big_trace [MiB, default 512] [FILE, kept; default a temporary one; .gz packs it]
#include <fmt/format.h>
#include <sys/resource.h>
#include <zlib.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "tests/support/kineto_text.hpp"
#include "verify/traces/trace_report.hpp"

namespace {

/// CPU seconds of this process: on a busy machine wall time means little.
double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// The largest the process has been so far.
double peak_mib() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) / 1024;  // KiB on Linux
}

void write_trace(const std::string& path, std::uint64_t size) {
  // "T": gzip's functions write plain text; the fastest level is enough to test unpacking.
  gzFile file = gzopen(path.c_str(), path.ends_with(".gz") ? "wb1" : "wbT");
  if (file == nullptr) std::abort();
  std::uint64_t written = 0;
  mfsdp::test::KinetoText trace([&](std::string_view part) {
    if (gzwrite(file, part.data(), static_cast<unsigned>(part.size())) <= 0) std::abort();
    written += part.size();
  });
  std::mt19937 random(1);
  std::int64_t now = 1'000'000;
  for (std::int64_t step = 1; written < size; ++step)
    now = mfsdp::test::write_step(trace, random, step, now, 32);
  trace.finish();
  gzclose(file);
}

}  // namespace

int main(int argc, char** argv) {
  const std::uint64_t mebibytes = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 512;
  const bool keep = argc > 2;
  const std::string path =
      keep ? argv[2] : (std::filesystem::temp_directory_path() / "mfsdp_big_trace.json").string();
  write_trace(path, mebibytes << 20);
  const double before = peak_mib();

  double start = cpu_seconds();
  const auto trace = mfsdp::traces::read_kineto(path);
  if (!trace) {
    fmt::print(stderr, "{}\n", trace.error().message());
    return 1;
  }
  const double reading = cpu_seconds() - start;
  const double after_reading = peak_mib();
  start = cpu_seconds();
  const auto report = mfsdp::traces::analyse_trace(*trace);
  const double analysing = cpu_seconds() - start;
  if (!keep) std::filesystem::remove(path);
  if (!report) return 1;

  fmt::print("{:.0f} MiB, {} events, {} activities of GPUs, {} collectives, {} steps\n",
             static_cast<double>(trace->bytes) / (1 << 20), trace->events, trace->work.size(),
             trace->collectives.size(), report->devices.front().steps.size());
  fmt::print("read {:.2f} CPU seconds ({:.0f} MiB/s), report {:.2f}\n", reading,
             static_cast<double>(trace->bytes) / (1 << 20) / reading, analysing);
  fmt::print("peak memory {:.1f} MiB: {:.1f} before reading, {:.1f} after it\n", peak_mib(), before,
             after_reading);
  return 0;
}
