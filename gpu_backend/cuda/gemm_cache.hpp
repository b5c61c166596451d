// Stores chosen GEMM algorithms in a file, so that the next run need not time them, and as text, so
// that rank 0 can send its choice to the others.
//
//   { "schema": "mfsdp.gemm/1", "gpu": "NVIDIA H200", "cublaslt": 130100, "checksum": "9f...",
//     "algorithms": [ { "shape": [...], "bytes": [...], "workspace": 33554432, "ns": 590432 } ] }
#pragma once

#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/error.hpp"
#include "gpu_backend/cuda/gemm.hpp"

namespace mfsdp::cuda {

/// The machine for which an algorithm is valid: other GPUs and versions have other algorithms.
struct GemmMachine {
  std::string gpu;           ///< the device's name
  std::size_t cublaslt = 0;  ///< cublasLtGetVersion()

  friend bool operator==(const GemmMachine&, const GemmMachine&) = default;
};

/// The current device and the loaded library.
[[nodiscard]] Result<GemmMachine> this_machine();

/// The file of this machine in a folder: "gemm_nvidia_h200_130100.json". The long search has its
/// own file, because it may choose other algorithms: "gemm_nvidia_h200_130100_long.json".
[[nodiscard]] std::filesystem::path gemm_cache_path(const std::filesystem::path& folder,
                                                    const GemmMachine& machine,
                                                    const GemmSettings& settings);

[[nodiscard]] std::string write_gemm_algorithms(const GemmMachine& machine,
                                                std::span<const GemmAlgorithm> algorithms);

/// Errors name `where`: invalid text, a wrong checksum, another machine.
[[nodiscard]] Result<std::vector<GemmAlgorithm>> read_gemm_algorithms(std::string_view text,
                                                                      const GemmMachine& machine,
                                                                      const std::string& where);

struct GemmCache {
  std::vector<GemmAlgorithm> algorithms;  ///< empty if there is no file or it is not usable
  std::string note;                       ///< why the file is not usable; empty otherwise
};

/// No error of the file ends a run: it becomes a note.
[[nodiscard]] GemmCache load_gemm_cache(const std::filesystem::path& path,
                                        const GemmMachine& machine);

/// Replaces the file; creates its folder if necessary.
[[nodiscard]] Result<void> save_gemm_cache(const std::filesystem::path& path,
                                           const GemmMachine& machine,
                                           std::span<const GemmAlgorithm> algorithms);

}  // namespace mfsdp::cuda
