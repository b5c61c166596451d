// One kind of GPU: the data from which the simulator prices work on it, each with its source.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/error.hpp"
#include "core/base/quantity.hpp"
#include "core/base/vocabulary.hpp"
#include "core/plan/price_tables.hpp"
#include "sim/hardware/matmul_formats.hpp"

namespace mfsdp {

using BytesPerNano = double;  ///< = 10^9 bytes per second, GB/s
using Teraflops = double;     ///< 10^12 floating point operations per second

/// The link within a domain. Determines NCCL's latency per hop.
enum class LinkKind { nvlink, pcie, xgmi };

template <>
struct Names<LinkKind> {
  static constexpr std::array<std::string_view, 3> values{"nvlink", "pcie", "xgmi"};
};

/// Files of measured prices. The files of the catalogue were measured on an H200 and are scaled to
/// other GPUs.
struct TableFiles {
  std::filesystem::path gemm;
  /// GEMMs of FP8 operands with one scale each; empty if nothing was measured.
  std::filesystem::path gemm_fp8{};
  std::filesystem::path gemm_fp8_blocks{};  ///< with scales of blocks, beside those; likewise
  std::filesystem::path attention;          ///< by cuDNN
  /// Attention by mfsdp-exec's own kernels; empty if the GPU cannot run them, or if nothing was
  /// measured.
  std::filesystem::path attention_warpgroups{};
  /// Attention by PyTorch's kernel for masks that are tensors, which computes all pairs of tokens;
  /// empty if nothing was measured.
  std::filesystem::path attention_masked{};
  std::filesystem::path collective;  ///< inside a domain
  std::filesystem::path network;     ///< between domains; empty: nothing was measured
  std::filesystem::path grouped{};   ///< GEMMs of experts; likewise
  /// GEMMs of experts by mfsdp-exec's own kernels; empty as attention_warpgroups.
  std::filesystem::path grouped_warpgroups{};
};

/// Prices that were measured on this very GPU.
struct MeasuredParts {
  bool gemm = false;
  bool attention = false;
  bool collective = false;

  friend bool operator==(const MeasuredParts&, const MeasuredParts&) = default;
};

/// Default: a fast host, which needs 3 to 4 us for a launch.
inline constexpr Nanos kHostLaunch{4000};

/// Default: an H200's L2 cache.
inline constexpr Bytes kUsualL2{std::int64_t{60} << 20};

/// Prices that others measured and published for this GPU, or for another one of the same design.
/// Used on request, or if they are the file's default.
struct PublishedTables {
  std::filesystem::path gemm;       ///< empty: none
  std::filesystem::path attention;  ///< likewise
  std::filesystem::path grouped{};  ///< GEMMs of experts; likewise
  std::int64_t sms = 0;             ///< of the GPU that the GEMM table was measured on
  std::string of{};                 ///< catalogue name of that GPU; empty: this one
  double scale = 1;                 ///< of its rates, to this one's
  /// An all-to-all inside a domain: bytes sent by each rank per nanosecond.
  std::optional<BytesPerNano> all_to_all{};
  std::string source;
};

/// Sustained power limits of a GPU, in watts.
struct PowerLimits {
  double own = 0;     ///< of this part
  double tables = 0;  ///< at which the rates of its tables, times its scales, hold

  friend bool operator==(const PowerLimits&, const PowerLimits&) = default;
};

/// Limits between which the owner of a machine sets a GPU's own, in watts.
struct PowerRange {
  double least = 0;
  double most = 0;

  friend bool operator==(const PowerRange&, const PowerRange&) = default;
};

struct Gpu {
  std::string name;         ///< catalogue name, the file's stem
  std::string title;        ///< as the vendor calls it; the name if the file has none
  std::string calibration;  ///< "measured": the tables are of this GPU; else "datasheet"
  MeasuredParts measured;   ///< all where `calibration` is "measured"

  Teraflops bf16 = 0;                   ///< dense peak; MFU is relative to it
  Teraflops fp32 = 0;                   ///< without tensor cores
  Teraflops nvfp4 = 0;                  ///< dense peak of nvfp4; 0 where it is not multiplied
  std::vector<MatmulFormat> formats{};  ///< that matrix units multiply; empty: the file has none
  std::int64_t sms = 0;                 ///< streaming multiprocessors or compute units
  double gemm_scale = 1;                ///< sustained GEMM rate relative to the tables'
  double attention_scale = 1;           ///< likewise for attention
  Bytes l2 = kUsualL2;                  ///< that compilers' benchmarks write over
  Nanos launch;  ///< a kernel that does nothing, gap to the next one included

  Bytes capacity;                     ///< device memory that a process can address
  BytesPerNano memory_bandwidth = 0;  ///< nominal
  double copy_fraction = 0;           ///< of it that a large device copy sustains
  Bytes runtime;                      ///< driver, context and library handles, outside all pools
  Bytes first_communicator;           ///< what the first NCCL communicator takes beside them
  Bytes communicator;                 ///< and each further one
  std::string runtime_source;         ///< where these figures are from
  BytesPerNano host_bandwidth = 0;    ///< to and from host memory, each way

  LinkKind link = LinkKind::nvlink;
  BytesPerNano link_bandwidth = 0;           ///< to all peers together, per direction
  std::optional<BytesPerNano> all_to_all{};  ///< what an all-to-all reaches, where that is known
  double link_efficiency = 1;                ///< of NCCL on this link relative to H200's NVLink
  std::optional<BytesPerNano> per_peer_bandwidth;  ///< without a switch: of the link to one peer
  std::int64_t domain = 8;                         ///< GPUs that one such fabric joins
  std::int64_t collective_sms = 0;                 ///< SMs that a running collective occupies

  std::int64_t gpus_per_node = 8;  ///< of the usual machine
  std::int64_t nics_per_node = 0;
  BytesPerNano nic_bandwidth = 0;  ///< of one NIC, per direction
  /// Data sheet bandwidth of a NIC, if nic_bandwidth was fitted to measurements: an upper bound of
  /// fits.
  std::optional<BytesPerNano> nic_line_rate{};
  Nanos nic_latency;  ///< added to each hop between nodes
  /// Time of a kernel launch (cudaLaunchKernel) on the usual machine's host.
  Nanos host_launch = kHostLaunch;

  std::optional<PowerLimits> power;  ///< none: unknown (power.hpp)
  /// The file states no limit, because machines differ: predictions need --power-limit. `power` is
  /// that of the tables until then.
  std::optional<PowerRange> owner_sets_power{};

  TableFiles tables;
  std::optional<PublishedTables> published;
  std::string published_prices;  ///< what was taken of them, in one sentence; empty: nothing
  /// Tables that price the GPU by default; none: its own tables, as the file names no default.
  std::optional<PriceTables> default_tables{};
  /// Names the tables that price the GPU, and the reason; only if the file states a default.
  std::string priced_by;
  std::int64_t table_sms = 132;  ///< of the GPU that the GEMM table was measured on
  std::vector<std::pair<std::string, std::string>> sources;  ///< key of the file -> its origin
  /// Keys that the file does not have, each with the value that was assumed: "compute.launch_ns
  /// 3000".
  std::vector<std::string> assumed{};

  /// Whether the file states that matrix units multiply such numbers.
  [[nodiscard]] bool multiplies(MatmulFormat format) const {
    return std::ranges::find(formats, format) != formats.end();
  }

  /// Bytes per nanosecond of a large device copy; bytes read and bytes written both count.
  [[nodiscard]] BytesPerNano copy_bandwidth() const { return memory_bandwidth * copy_fraction; }
};

/// Device memory outside all pools in a process with this number of communicators.
[[nodiscard]] Bytes runtime_bytes(const Gpu& gpu, std::int64_t communicators);

/// Reads one GPU file without `like`. Required are the figures of a data sheet (gpu_file.hpp);
/// `assumed` names what was taken for all others. `where` is the file's name for errors, which name
/// line, key and what was expected: wrong type, missing or unknown keys, values out of range, a
/// cluster file. All mistakes are in one error. Table paths stay as written; without a [tables]
/// section they are empty.
[[nodiscard]] Result<Gpu> parse_gpu(std::string_view text, const std::string& where);

/// `name_or_path`: a catalogue name (<gpus_dir>/<name>.toml), or a TOML file, which contains a
/// slash or ends in ".toml". With `like = "h100"` (a name, or a file relative to this one) the
/// fields that the file does not have are those of that GPU. Table paths are relative to the file,
/// or to `gpus_dir` if the file's folder has no such table. A file without [tables] uses the H200
/// tables in `gpus_dir`. For an unknown name the error suggests the closest one.
[[nodiscard]] Result<Gpu> load_gpu(const std::string& name_or_path,
                                   const std::filesystem::path& gpus_dir);

/// Names in one sentence what was assumed of the GPU because its file does not have it; empty:
/// nothing.
[[nodiscard]] std::string assumed_statement(const Gpu& gpu);

/// Catalogue names, sorted.
[[nodiscard]] Result<std::vector<std::string>> list_gpus(const std::filesystem::path& gpus_dir);

}  // namespace mfsdp
