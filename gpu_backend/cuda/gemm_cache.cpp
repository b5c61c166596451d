#include "gpu_backend/cuda/gemm_cache.hpp"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cctype>
#include <nlohmann/json.hpp>
#include <system_error>

#include "core/base/atomic_file.hpp"
#include "core/base/parse_json.hpp"
#include "core/base/read_file.hpp"
#include "gpu_backend/cuda/check.hpp"

namespace mfsdp::cuda {
namespace {

using nlohmann::json;

constexpr std::string_view kSchema = "mfsdp.gemm/1";
constexpr std::size_t kMostBytes = std::size_t{16} << 20;

json to_json(const GemmAlgorithm& algorithm) {
  const GemmShape& s = algorithm.shape;
  json shape{s.rows,
             s.cols,
             s.inner,
             s.a_row,
             s.b_row,
             s.a_transposed,
             s.b_transposed,
             s.bias,
             s.adds,
             std::string(to_string(s.operands)),
             std::string(to_string(s.result)),
             s.alignment};
  // Older files have none of these.
  const bool has_fp8 = is_fp8(s.operands);
  if (s.c_row != 0 || s.batch > 1 || has_fp8) shape.push_back(s.c_row);
  if (s.batch > 1 || has_fp8)
    for (const std::int64_t value : {s.batch, s.a_step, s.b_step, s.c_step}) shape.push_back(value);
  if (has_fp8) {
    shape.push_back(std::string(to_string(s.operands_b.value_or(s.operands))));
    shape.push_back(s.fast);
  }
  if (s.a_scale_rows != 0)
    for (const std::int64_t rows : {s.a_scale_rows, s.b_scale_rows}) shape.push_back(rows);
  return {{"shape", shape},
          {"bytes", algorithm.bytes},
          {"workspace", algorithm.workspace_bytes},
          {"ns", algorithm.nanoseconds}};
}

DType dtype_from(const json& name) {
  for (const DType dtype :
       {DType::bf16, DType::fp16, DType::fp32, DType::fp8_e4m3, DType::fp8_e5m2})
    if (to_string(dtype) == name.get<std::string>()) return dtype;
  throw json::other_error::create(501, "expected a dtype of GEMMs", &name);
}

/// Throws the library's exceptions if an element is missing or has another type.
GemmAlgorithm from_json(const json& from) {
  const json& s = from.at("shape");
  const auto later = [&](std::size_t i, std::int64_t otherwise) {
    return s.size() > i ? s.at(i).get<std::int64_t>() : otherwise;
  };
  const DType operands = dtype_from(s.at(9));
  const DType operands_b = s.size() > 17 ? dtype_from(s.at(17)) : operands;
  return {.shape = {.rows = s.at(0),
                    .cols = s.at(1),
                    .inner = s.at(2),
                    .a_row = s.at(3),
                    .b_row = s.at(4),
                    .c_row = later(12, 0),
                    .a_transposed = s.at(5),
                    .b_transposed = s.at(6),
                    .bias = s.at(7),
                    .adds = s.at(8),
                    .operands = operands,
                    .result = dtype_from(s.at(10)),
                    .alignment = s.at(11),
                    .batch = later(13, 1),
                    .a_step = later(14, 0),
                    .b_step = later(15, 0),
                    .c_step = later(16, 0),
                    .operands_b = operands_b == operands ? std::nullopt : std::optional(operands_b),
                    .fast = s.size() > 18 && s.at(18).get<bool>(),
                    .a_scale_rows = later(19, 0),
                    .b_scale_rows = later(20, 0)},
          .bytes = from.at("bytes"),
          .workspace_bytes = from.at("workspace"),
          .nanoseconds = from.at("ns")};
}

std::string checksum(const json& algorithms) {
  const std::string text = algorithms.dump();
  return fmt::format("{:016x}", XXH3_64bits(text.data(), text.size()));
}

}  // namespace

Result<GemmMachine> this_machine() {
  MFSDP_TRY(load_cublas_lt());
  int device = 0;
  MFSDP_TRY(check(cudaGetDevice(&device), "cudaGetDevice"));
  cudaDeviceProp properties{};
  MFSDP_TRY(check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties"));
  return GemmMachine{.gpu = properties.name, .cublaslt = cublas_lt().version()};
}

std::filesystem::path gemm_cache_path(const std::filesystem::path& folder,
                                      const GemmMachine& machine, const GemmSettings& settings) {
  std::string name;
  for (const char c : machine.gpu) {
    const auto byte = static_cast<unsigned char>(c);
    name += std::isalnum(byte) != 0 ? static_cast<char>(std::tolower(byte)) : '_';
  }
  return folder /
         fmt::format("gemm_{}_{}{}.json", name, machine.cublaslt, settings.varies ? "_long" : "");
}

std::string write_gemm_algorithms(const GemmMachine& machine,
                                  std::span<const GemmAlgorithm> algorithms) {
  json list = json::array();
  for (const GemmAlgorithm& algorithm : algorithms) list.push_back(to_json(algorithm));
  const json file{{"schema", kSchema},
                  {"gpu", machine.gpu},
                  {"cublaslt", machine.cublaslt},
                  {"checksum", checksum(list)},
                  {"algorithms", list}};
  return file.dump() + '\n';
}

Result<std::vector<GemmAlgorithm>> read_gemm_algorithms(std::string_view text,
                                                        const GemmMachine& machine,
                                                        const std::string& where) {
  MFSDP_LET(file, parse_json(text, where));
  try {
    if (file.at("schema") != kSchema)
      return fail(where, fmt::format("expected schema {}", kSchema));
    const GemmMachine made_on{.gpu = file.at("gpu"), .cublaslt = file.at("cublaslt")};
    if (made_on != machine)
      return fail(where, fmt::format("expected algorithms of {}, cuBLASLt {}; got {}, cuBLASLt {}",
                                     machine.gpu, machine.cublaslt, made_on.gpu, made_on.cublaslt));
    if (file.at("checksum") != checksum(file.at("algorithms")))
      return fail(where, "expected the checksum of its algorithms");
    std::vector<GemmAlgorithm> algorithms;
    for (const json& algorithm : file.at("algorithms")) algorithms.push_back(from_json(algorithm));
    return algorithms;
  } catch (const json::exception& wrong) {
    return fail(where, fmt::format("expected GEMM algorithms: {}", wrong.what()));
  }
}

GemmCache load_gemm_cache(const std::filesystem::path& path, const GemmMachine& machine) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  const auto usable = [&]() -> Result<std::vector<GemmAlgorithm>> {
    MFSDP_LET(text, read_file(path, "a file of GEMM algorithms", kMostBytes));
    return read_gemm_algorithms(text, machine, path.string());
  }();
  if (usable) return {.algorithms = *usable, .note = {}};
  return {.algorithms = {},
          .note = usable.error().message() + "; ignored, algorithms are chosen again"};
}

Result<void> save_gemm_cache(const std::filesystem::path& path, const GemmMachine& machine,
                             std::span<const GemmAlgorithm> algorithms) {
  std::error_code failed;
  if (path.has_parent_path()) std::filesystem::create_directories(path.parent_path(), failed);
  // If the folder cannot be created, opening the file reports the error.
  return write_file_atomically(path, write_gemm_algorithms(machine, algorithms));
}

}  // namespace mfsdp::cuda
