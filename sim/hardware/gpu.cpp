#include "sim/hardware/gpu.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/base/read_file.hpp"
#include "core/base/toml_fields.hpp"
#include "sim/hardware/catalogue.hpp"
#include "sim/hardware/gpu_file.hpp"

namespace mfsdp {
namespace {

Catalogue gpu_catalogue(const std::filesystem::path& gpus_dir) {
  return {.folder = gpus_dir, .thing = "GPU", .flag = "--gpu", .list_flag = "--list-gpus"};
}

/// Looks beside the GPU's file first, then in the catalogue, because users copy files of the
/// catalogue. If neither has it, returns the path beside the file, for the error message.
std::filesystem::path find_table(const std::filesystem::path& table,
                                 const std::filesystem::path& folder,
                                 const std::filesystem::path& gpus_dir) {
  std::error_code ignored;
  const bool beside = std::filesystem::exists(folder / table, ignored);
  if (!beside && std::filesystem::exists(gpus_dir / table, ignored)) return gpus_dir / table;
  return folder / table;
}

/// The fields of a GPU file, and of the GPU that it is like. `depth` files name this one.
Result<TomlFields> fields_of_file(const std::filesystem::path& path,
                                  const std::filesystem::path& gpus_dir, int depth) {
  constexpr int kMostFiles = 4;
  MFSDP_LET(text, read_file(path, "a GPU's TOML file", kMostTomlBytes));
  MFSDP_LET(fields, TomlFields::parse(text, path.string()));
  if (!fields.has("like")) return std::move(fields);
  const std::string like = fields.text("like");
  const std::string where = path.string() + ": like";
  if (depth + 1 >= kMostFiles)
    return fail(where, fmt::format("more than {} files name each other", kMostFiles));
  auto base = names_a_file(like) ? Result<std::filesystem::path>(path.parent_path() / like)
                                 : find_in_catalogue(like, gpu_catalogue(gpus_dir));
  if (!base) return fail(where, base.error().what, base.error().fault);
  MFSDP_LET(base_fields, fields_of_file(*base, gpus_dir, depth + 1));
  inherit_gpu(fields, base_fields);
  return std::move(fields);
}

}  // namespace

Bytes runtime_bytes(const Gpu& gpu, std::int64_t communicators) {
  if (communicators == 0) return gpu.runtime;
  return gpu.runtime + gpu.first_communicator + gpu.communicator * (communicators - 1);
}

Result<Gpu> parse_gpu(std::string_view text, const std::string& where) {
  MFSDP_LET(fields, TomlFields::parse(text, where));
  return read_gpu_fields(fields);
}

Result<Gpu> load_gpu(const std::string& name_or_path, const std::filesystem::path& gpus_dir) {
  MFSDP_LET(path, find_in_catalogue(name_or_path, gpu_catalogue(gpus_dir)));
  MFSDP_LET(fields, fields_of_file(path, gpus_dir, 0));
  MFSDP_LET(gpu, read_gpu_fields(fields));
  gpu.name = path.stem().string();
  if (gpu.title.empty()) gpu.title = gpu.name;
  const std::filesystem::path folder = path.parent_path();
  const auto locate = [&](std::filesystem::path& table, std::string_view otherwise) {
    if (!table.empty())
      table = find_table(table, folder, gpus_dir);
    else if (!otherwise.empty())
      table = gpus_dir / "tables" / otherwise;
  };
  locate(gpu.tables.gemm, "h200_gemm_bf16.csv");
  locate(gpu.tables.gemm_fp8, "");
  locate(gpu.tables.gemm_fp8_blocks, "");
  locate(gpu.tables.attention, "h200_attention_bf16.csv");
  locate(gpu.tables.attention_warpgroups, "");
  locate(gpu.tables.attention_masked, "");
  locate(gpu.tables.grouped_warpgroups, "");
  locate(gpu.tables.collective, "h200_nccl.csv");
  locate(gpu.tables.network, "");
  if (gpu.published) {
    locate(gpu.published->gemm, "");
    locate(gpu.published->attention, "");
    locate(gpu.published->grouped, "");
  }
  return gpu;
}

std::string assumed_statement(const Gpu& gpu) {
  if (gpu.assumed.empty()) return "";
  return fmt::format("assumed, as the file of {} does not have it: {}", gpu.name,
                     fmt::join(gpu.assumed, ", "));
}

Result<std::vector<std::string>> list_gpus(const std::filesystem::path& gpus_dir) {
  return list_catalogue(gpu_catalogue(gpus_dir));
}

}  // namespace mfsdp
