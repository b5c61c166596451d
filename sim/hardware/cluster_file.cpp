#include "sim/hardware/cluster_file.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/read_file.hpp"
#include "core/base/toml_fields.hpp"
#include "sim/hardware/catalogue.hpp"

namespace mfsdp {
namespace {

constexpr FieldRange kGpus{1, 1 << 24};
constexpr FieldRange kIndex{0, 1 << 24};
constexpr FieldRange kBits{0.1, 1e7};  // Gbit/s
constexpr FieldRange kOversubscription{1, 1000};
constexpr FieldRange kSlowFraction{0.001, 1};

/// Separates the [[slow]] tables from the file, because fields are read from tables and not from
/// lists. Each becomes a TOML text of its own with the line numbers of the file; in the rest of the
/// file, blank lines take their places.
struct SplitFile {
  std::string rest;
  std::vector<std::string> slow;
};

bool starts_table(std::string_view line) {
  return line.find_first_not_of(" \t") != std::string_view::npos &&
         line[line.find_first_not_of(" \t")] == '[';
}

bool starts_slow_table(std::string_view line) {
  std::string bare;
  for (const char c : line.substr(0, line.find('#')))
    if (c != ' ' && c != '\t' && c != '\r') bare += c;
  return bare == "[[slow]]";
}

SplitFile split_slow_tables(std::string_view text) {
  SplitFile split;
  bool inside = false;
  std::string above;  // one line break for each line so far
  while (!text.empty()) {
    const std::size_t end = std::min(text.size(), text.find('\n'));
    const std::string_view line = text.substr(0, end);
    const bool first = starts_slow_table(line);
    if (first) split.slow.push_back(above);
    if (starts_table(line)) inside = first;
    if (inside) split.slow.back().append(first ? "" : line).append("\n");
    split.rest.append(inside ? "" : line).append("\n");
    above += '\n';
    text.remove_prefix(std::min(text.size(), end + 1));
  }
  return split;
}

std::optional<std::int64_t> optional_integer(TomlFields& fields, std::string_view key,
                                             FieldRange range) {
  if (!fields.optional_number(key, range)) return std::nullopt;
  return fields.integer(key, range);
}

std::optional<Nanos> optional_nanos(TomlFields& fields, std::string_view key) {
  const auto value = optional_integer(fields, key, kNanosecondRange);
  if (!value) return std::nullopt;
  return Nanos(*value);
}

std::optional<BytesPerNano> nic_bandwidth(TomlFields& fields) {
  const auto bytes = fields.optional_number("nic_gb_per_s", kBandwidthRange);
  const auto bits = fields.optional_number("nic_gbits_per_s", kBits);
  if (bytes && bits) fields.reject("nic_gbits_per_s", "contradicts nic_gb_per_s; expected one");
  if (bits) return *bits / kBitsPerByte;
  return bytes;
}

/// Reads a key with two possible words; the default is the first one.
bool is_second_word(TomlFields& fields, std::string_view key, std::string_view first,
                    std::string_view second) {
  const std::string word = fields.text_or(key, std::string(first));
  if (word != first && word != second)
    fields.reject(key, fmt::format("must be \"{}\" or \"{}\"", first, second));
  return word == second;
}

Result<SlowPart> parse_slow(const std::string& text, const std::string& where) {
  MFSDP_LET(fields, TomlFields::parse(text, where));
  const SlowPart part{.node = fields.integer("node", kIndex),
                      .nic = optional_integer(fields, "nic", kIndex),
                      .fraction = fields.number("fraction", kSlowFraction)};
  MFSDP_TRY(fields.finish());
  return part;
}

Catalogue cluster_catalogue(const std::filesystem::path& clusters_dir) {
  return {.folder = clusters_dir,
          .thing = "cluster",
          .flag = "--cluster",
          .list_flag = "--list-clusters"};
}

}  // namespace

Result<ClusterFile> parse_cluster_file(std::string_view text, const std::filesystem::path& path) {
  const SplitFile split = split_slow_tables(text);
  MFSDP_LET(fields, TomlFields::parse(split.rest, path.string()));
  if (!fields.has("gpu") &&
      (fields.has("compute.bf16_tflops") || fields.has("memory.gb_per_s") || fields.has("like")))
    return fields.refuse(
        "describes a GPU: give it to --gpu; --cluster takes a file that names one, "
        "such as gpu = \"h100\", and its network");
  fields.example("gpu", "\"h100\"");
  ClusterFile file{
      .path = path,
      .title = fields.text_or("title", ""),
      .gpu = fields.text("gpu"),
      .gpus = optional_integer(fields, "gpus", kGpus),
      .gpus_per_node = optional_integer(fields, "gpus_per_node", kCountRange),
      .domain = optional_integer(fields, "domain", kCountRange),
      .nics_per_node = optional_integer(fields, "nics_per_node", kCountRange),
      .nic_bandwidth = nic_bandwidth(fields),
      .fabric =
          is_second_word(fields, "fabric", "rail", "fat_tree") ? Fabric::fat_tree : Fabric::rail,
      .nodes_per_leaf = optional_integer(fields, "nodes_per_leaf", kCountRange),
      .oversubscription = fields.optional_number("oversubscription", kOversubscription),
      .nic_latency = optional_nanos(fields, "nic_latency_ns"),
      .switch_latency = optional_nanos(fields, "switch_latency_ns"),
      .host_launch = optional_nanos(fields, "host_launch_ns"),
      .simple_only = is_second_word(fields, "protocols", "all", "simple"),
      .slow = {},
      .sources = {}};
  file.sources = read_sources(fields);
  if (file.oversubscription && *file.oversubscription > 1 && !file.nodes_per_leaf)
    fields.reject("oversubscription", "has no effect without nodes_per_leaf");
  MFSDP_TRY(fields.finish());
  for (const std::string& table : split.slow) {
    MFSDP_LET(part, parse_slow(table, path.string()));
    file.slow.push_back(part);
  }
  return file;
}

Result<ClusterFile> read_cluster_file(const std::string& name_or_path,
                                      const std::filesystem::path& clusters_dir) {
  MFSDP_LET(path, find_in_catalogue(name_or_path, cluster_catalogue(clusters_dir)));
  MFSDP_LET(text, read_file(path, "a cluster's TOML file", kMostTomlBytes));
  return parse_cluster_file(text, path);
}

Result<std::vector<std::string>> list_clusters(const std::filesystem::path& clusters_dir) {
  return list_catalogue(cluster_catalogue(clusters_dir));
}

}  // namespace mfsdp
