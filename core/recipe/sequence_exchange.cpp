#include "core/recipe/sequence_exchange.hpp"

#include "core/plan/work.hpp"

namespace mfsdp::recipe {

std::vector<Attribute> SequenceExchange::group_sizes(std::int64_t cols, std::int64_t keys) const {
  std::vector<Attribute> sizes{{"cols", cols}, {"groups", s_.head_groups}};
  if (keys != 0) sizes.emplace_back("key_cols", keys);
  sizes.emplace_back("rows", s_.tokens);
  return sizes;
}

void SequenceExchange::split(const std::string& name, std::int64_t cols, std::int64_t keys,
                             const std::string& suffix) {
  b_.kernel(name + ".split" + suffix, KernelKind::split_heads, group_sizes(cols, keys),
            {on("input", name + suffix), on("output", name + ".parts" + suffix)});
  exchange(name, ".parts", ".heads", cols, suffix);
}

void SequenceExchange::join(const std::string& name, std::int64_t cols, std::int64_t keys,
                            const std::string& suffix) {
  exchange(name, ".heads", ".parts", cols, suffix);
  b_.kernel(name + ".join" + suffix, KernelKind::join_heads, group_sizes(cols, keys),
            {on("input", name + ".parts" + suffix), on("output", name + suffix)});
}

void SequenceExchange::exchange(const std::string& name, const char* from, const char* to,
                                std::int64_t cols, const std::string& suffix) {
  const Shape shape{s_.tokens, cols};
  b_.exchange(name + ".exchange" + suffix, Axis::cp,
              shaped(on("input", name + from + suffix), Access::read, s_.compute, shape),
              shaped(on("output", name + to + suffix), Access::write, s_.compute, shape));
}

void SequenceExchange::add_part(std::vector<Attribute>& sizes) const {
  if (!b_.config.has_chunks()) return;
  Attribute part("part", std::int64_t{0});
  part.per = {{.axis = Axis::cp, .step = 1}};
  sizes.push_back(std::move(part));
  sizes.emplace_back("parts", sequence_parts(b_.config.mesh));
}

void SequenceExchange::take_keys(const KeySource& from, const std::string& suffix) {
  const std::int64_t cols = own_keys();
  b_.kernel("keys.take" + suffix, KernelKind::take_keys, {{"key_cols", cols}, {"rows", s_.tokens}},
            {strided(on("key", from.key), {from.key_row, 1}, s_.attention),
             strided(on("value", from.value), {s_.qkv_row, 1}, s_.attention + cols),
             on("output", "keys" + suffix)});
}

void SequenceExchange::gather_keys(const KeySource& from, const std::string& suffix) {
  take_keys(from, suffix);
  const std::string keys = "keys" + suffix;
  const std::int64_t cols = own_keys();
  b_.gather_parts(
      "keys.gather" + suffix, Axis::cp,
      shaped(on("input", keys), Access::read, s_.compute, {s_.tokens, 2 * cols}),
      shaped(on("output", "all_" + keys), Access::write, s_.compute, {s_.keyed, 2 * cols}));
}

void SequenceExchange::sum_key_gradients() {
  const std::int64_t cols = 2 * own_keys();
  b_.sum_parts("d_keys.sums", Axis::cp,
               shaped(on("input", "d_all_keys"), Access::read, s_.compute, {s_.keyed, cols}),
               shaped(on("output", "d_keys"), Access::write, s_.compute, {s_.tokens, cols}));
}

void SequenceExchange::join_gradients() {
  b_.kernel("d_qkv.join", KernelKind::join_keys,
            {{"cols", s_.qkv},
             {"key_cols", own_keys()},
             {"query_cols", s_.attention},
             {"rows", s_.tokens}},
            {on("query", "d_query"), on("key_value", "d_keys"), on("output", "d_qkv")});
}

}  // namespace mfsdp::recipe
