#include "sim/cost/tables.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "core/base/read_file.hpp"
#include "sim/cost/csv.hpp"
#include "sim/cost/nanos.hpp"
#include "sim/cost/nccl.hpp"

namespace mfsdp {
namespace {

constexpr std::size_t kMostTableBytes = std::size_t{1} << 20;

/// Numbers of the named columns, by row.
template <std::size_t Count>
Result<std::vector<std::array<double, Count>>> numbers(
    const CsvTable& table, const std::array<std::string_view, Count>& names) {
  std::array<std::size_t, Count> columns{};
  for (std::size_t c = 0; c < Count; ++c) {
    MFSDP_LET(column, table.column(names[c]));
    columns[c] = column;
  }
  std::vector<std::array<double, Count>> rows(table.rows());
  for (std::size_t r = 0; r < table.rows(); ++r) {
    for (std::size_t c = 0; c < Count; ++c) {
      MFSDP_LET(value, table.number(r, columns[c]));
      rows[r][c] = value;
    }
  }
  return rows;
}

/// Index of each row's word in `words`.
template <std::size_t Count>
Result<std::vector<std::size_t>> words_of(const CsvTable& table, std::string_view column_name,
                                          const std::array<std::string_view, Count>& words) {
  MFSDP_LET(column, table.column(column_name));
  std::vector<std::size_t> found(table.rows());
  for (std::size_t r = 0; r < table.rows(); ++r) {
    const auto word = std::ranges::find(words, std::string_view(table.cell(r, column)));
    if (word == words.end())
      return fail(table.place(r),
                  fmt::format("{} is \"{}\"; expected one of {}", column_name,
                              table.cell(r, column).substr(0, 40), fmt::join(words, ", ")));
    found[r] = static_cast<std::size_t>(word - words.begin());
  }
  return found;
}

/// As words_of(); every word must occur.
template <std::size_t Count>
Result<std::vector<std::size_t>> all_words_of(const CsvTable& table, std::string_view column_name,
                                              const std::array<std::string_view, Count>& words,
                                              const std::string& where) {
  MFSDP_LET(found, words_of(table, column_name, words));
  for (std::size_t w = 0; w < Count; ++w)
    if (std::ranges::find(found, w) == found.end())
      return fail(where, fmt::format("has no row with {} {}", column_name, words[w]));
  return found;
}

Result<void> check_grid(const std::vector<CollectiveRow>& rows, const std::string& where) {
  const auto first =
      static_cast<std::size_t>(std::ranges::count(rows, rows.front().ranks, &CollectiveRow::ranks));
  bool even = first >= 2 && rows.size() % first == 0;
  for (std::size_t r = 0; even && r < rows.size(); ++r) {
    even = rows[r].ranks == rows[r - r % first].ranks && rows[r].bytes == rows[r % first].bytes &&
           (r % first == 0 || rows[r].bytes > rows[r - 1].bytes);
  }
  if (!even) return fail(where, "must list the same two or more sizes for every n, each once");
  return {};
}

}  // namespace

std::optional<CollectiveKind> measured_collective(std::string_view name) {
  const auto kind = parse<CollectiveKind>(name);
  return kind && !is_point_to_point(*kind) ? kind : std::nullopt;
}

namespace {

/// Of GemmKind.
constexpr std::array<std::string_view, 3> kTableKinds{"fwd", "dgrad", "wgrad"};

Result<std::vector<GemmRow>> gemm_rows(const CsvTable& table, const std::string& where) {
  MFSDP_LET(kinds, (all_words_of<3>(table, "kind", kTableKinds, where)));
  MFSDP_LET(values, (numbers<4>(table, {"M", "N", "K", "tflops"})));
  std::vector<GemmRow> rows;
  for (std::size_t r = 0; r < values.size(); ++r) {
    const auto& [m, n, k, tflops] = values[r];
    rows.push_back(GemmRow{.kind = static_cast<GemmKind>(kinds[r]),
                           .m = m,
                           .n = n,
                           .k = k,
                           .flops_per_ns = tflops * 1e3});
  }
  return rows;
}

}  // namespace

Result<std::vector<GemmRow>> parse_gemm_table(std::string_view text, const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  return gemm_rows(table, where);
}

Result<Fp8GemmRows> parse_fp8_gemm_table(std::string_view text, const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(rows, gemm_rows(table, where));
  MFSDP_LET(sums, (words_of<2>(table, "accumulate", {"split", "fast"})));
  Fp8GemmRows found;
  for (std::size_t r = 0; r < rows.size(); ++r)
    (sums[r] == 0 ? found.split : found.fast).push_back(rows[r]);
  for (const auto& [name, part] : {std::pair{"split", &found.split}, {"fast", &found.fast}})
    for (const GemmKind kind :
         {GemmKind::forward, GemmKind::input_gradient, GemmKind::weight_gradient})
      if (std::ranges::find(*part, kind, &GemmRow::kind) == part->end())
        return fail(where, fmt::format("has no row with accumulate {} of kind {}", name,
                                       kTableKinds.at(static_cast<std::size_t>(kind))));
  return found;
}

Result<BlockRates> parse_block_table(std::string_view text, const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(rates,
            (numbers<3>(table, {"tensor_split", "block_1x128_128x128", "block_1x128_1x128"})));
  BlockRates mean{.by_tiles = 0, .by_vectors = 0};
  for (std::size_t r = 0; r < rates.size(); ++r) {
    const auto& [split, tiles, vectors] = rates[r];
    if (!(split > 0 && tiles > 0 && vectors > 0))
      return fail(table.place(r), "expected rates above 0");
    mean.by_tiles += tiles / split / static_cast<double>(rates.size());
    mean.by_vectors += vectors / split / static_cast<double>(rates.size());
  }
  return mean;
}

Result<std::vector<GroupedRow>> parse_grouped_table(std::string_view text,
                                                    const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(gemm, gemm_rows(table, where));
  MFSDP_LET(types, (words_of<2>(table, "main_grad", {"fp32", "bf16"})));
  MFSDP_LET(experts, (numbers<1>(table, {"experts"})));
  std::vector<GroupedRow> rows;
  for (std::size_t r = 0; r < gemm.size(); ++r)
    rows.push_back(GroupedRow{.experts = experts[r][0],
                              .of_expert = gemm[r],
                              .gradient = size_of(types[r] == 0 ? DType::fp32 : DType::bf16)});
  return rows;
}

Result<std::vector<AttentionRow>> parse_attention_table(std::string_view text,
                                                        const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(directions, (all_words_of<2>(table, "direction", {"fwd", "bwd"}, where)));
  MFSDP_LET(values, (numbers<5>(table, {"B", "S", "heads", "head_dim", "ms"})));
  std::vector<AttentionRow> rows;
  for (std::size_t r = 0; r < values.size(); ++r) {
    const auto& [batch, seq, heads, head_dim, ms] = values[r];
    rows.push_back(AttentionRow{.backward = directions[r] == 1,
                                .batch = batch,
                                .seq = seq,
                                .heads = heads,
                                .head_dim = head_dim,
                                .ns = ms * kNanosPerMilli});
  }
  return rows;
}

Result<std::vector<CollectiveRow>> parse_collective_table(std::string_view text,
                                                          const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(values, (numbers<5>(table, {"n", "mbytes", "ag_ms", "rs_ms", "ar_ms"})));
  std::vector<CollectiveRow> rows;
  for (const auto& [ranks, mebibytes, ag, rs, ar] : values) {
    rows.push_back(CollectiveRow{.ranks = ranks,
                                 .bytes = mebibytes * kMebibyte,
                                 .all_gather_ns = ag * kNanosPerMilli,
                                 .reduce_scatter_ns = rs * kNanosPerMilli,
                                 .all_reduce_ns = ar * kNanosPerMilli});
  }
  std::ranges::stable_sort(
      rows, {}, [](const CollectiveRow& row) { return std::pair(row.ranks, row.bytes); });
  MFSDP_TRY(check_grid(rows, where));
  return rows;
}

Result<std::vector<CollectiveSample>> parse_collective_samples(std::string_view text,
                                                               const std::string& where) {
  MFSDP_LET(table, CsvTable::parse(text, where));
  MFSDP_LET(kind_column, table.column("collective"));
  MFSDP_LET(ranks_column, table.column("gpus"));
  MFSDP_LET(bytes_column, table.column("bytes"));
  const bool times = table.has_column("us");
  if (times == table.has_column("busbw_gb_per_s"))
    return fail(where, "must have one of the columns us and busbw_gb_per_s");
  MFSDP_LET(value_column, table.column(times ? "us" : "busbw_gb_per_s"));
  std::vector<CollectiveSample> samples;
  for (std::size_t row = 0; row < table.rows(); ++row) {
    const std::string& name = table.cell(row, kind_column);
    const auto kind = measured_collective(name);
    if (!kind)
      return fail(table.place(row), fmt::format("collective is \"{}\"; expected {}",
                                                name.substr(0, 40), kMeasuredCollectives));
    CollectiveSample sample;
    sample.kind = *kind;
    sample.place = table.place(row);
    MFSDP_LET(ranks, table.integer(row, ranks_column));
    MFSDP_LET(bytes, table.integer(row, bytes_column));
    MFSDP_LET(value, table.number(row, value_column));
    sample.ranks = ranks;
    sample.bytes = Bytes(bytes);
    if (table.has_column("nodes")) {
      MFSDP_LET(nodes, table.integer(row, *table.column("nodes")));
      sample.nodes = nodes;
    }
    if (ranks < 2 || ranks > 65536 || ranks % sample.nodes != 0)
      return fail(table.place(row),
                  fmt::format("has {} GPUs on {} nodes; expected 2 to 65536, as many on each node",
                              ranks, sample.nodes));
    const double wire =
        wire_bytes(sample.kind, static_cast<double>(bytes), static_cast<double>(ranks));
    sample.ns = times ? value * kNanosPerMicro : wire / value;
    samples.push_back(std::move(sample));
  }
  return samples;
}

std::vector<CollectiveSample> mean_of_repeats(std::span<const CollectiveSample> samples) {
  const auto key = [](const CollectiveSample& sample) {
    return std::tuple(sample.ranks, sample.kind, sample.bytes);
  };
  std::vector<CollectiveSample> sorted(samples.begin(), samples.end());
  // Sorted by time, too: the order of files must not change a sum.
  std::ranges::sort(sorted, {}, [&](const CollectiveSample& sample) {
    return std::tuple_cat(key(sample), std::tuple(sample.ns));
  });
  std::vector<CollectiveSample> means;
  for (std::size_t first = 0, last = 0; first < sorted.size(); first = last) {
    double sum = 0;
    for (; last < sorted.size() && key(sorted[last]) == key(sorted[first]); ++last)
      sum += sorted[last].ns;
    means.push_back(sorted[first]);
    means.back().ns = sum / static_cast<double>(last - first);
  }
  return means;
}

Result<CostTables> load_cost_tables(const TableFiles& files) {
  MFSDP_LET(gemm_text, read_file(files.gemm, "a table", kMostTableBytes));
  MFSDP_LET(attention_text, read_file(files.attention, "a table", kMostTableBytes));
  MFSDP_LET(collective_text, read_file(files.collective, "a table", kMostTableBytes));
  MFSDP_LET(gemm, parse_gemm_table(gemm_text, files.gemm.string()));
  MFSDP_LET(attention, parse_attention_table(attention_text, files.attention.string()));
  MFSDP_LET(collective, parse_collective_table(collective_text, files.collective.string()));
  CostTables tables{.gemm = std::move(gemm),
                    .attention = std::move(attention),
                    .collective = std::move(collective),
                    .network = {}};
  if (!files.gemm_fp8.empty()) {
    MFSDP_LET(fp8_text, read_file(files.gemm_fp8, "a table", kMostTableBytes));
    MFSDP_SET(tables.gemm_fp8, parse_fp8_gemm_table(fp8_text, files.gemm_fp8.string()));
  }
  if (!files.gemm_fp8_blocks.empty()) {
    MFSDP_LET(block_text, read_file(files.gemm_fp8_blocks, "a table", kMostTableBytes));
    MFSDP_SET(tables.fp8_blocks, parse_block_table(block_text, files.gemm_fp8_blocks.string()));
  }
  for (const auto& [file, rows] :
       {std::pair{&files.attention_warpgroups, &tables.attention_warpgroups},
        {&files.attention_masked, &tables.attention_masked}}) {
    if (file->empty()) continue;
    MFSDP_LET(other_text, read_file(*file, "a table", kMostTableBytes));
    MFSDP_SET(*rows, parse_attention_table(other_text, file->string()));
  }
  if (!files.network.empty()) {
    MFSDP_LET(network_text, read_file(files.network, "a table", kMostTableBytes));
    MFSDP_LET(network, parse_collective_samples(network_text, files.network.string()));
    tables.network = std::move(network);
  }
  for (const auto& [file, rows] : {std::pair{&files.grouped, &tables.grouped},
                                   {&files.grouped_warpgroups, &tables.grouped_warpgroups}}) {
    if (file->empty()) continue;
    MFSDP_LET(grouped_text, read_file(*file, "a table", kMostTableBytes));
    MFSDP_SET(*rows, parse_grouped_table(grouped_text, file->string()));
  }
  return tables;
}

}  // namespace mfsdp
