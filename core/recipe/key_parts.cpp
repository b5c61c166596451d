#include "core/recipe/key_parts.hpp"

namespace mfsdp::recipe {

std::vector<Attribute> KeyParts::sizes(bool joins) const {
  std::vector<Attribute> sizes{{"cols", s_.qkv_row},
                               {"holders", s_.key_holders},
                               {"key_cols", cols()},
                               {"peers", s_.tensor_ranks}};
  if (joins) sizes.emplace_back("query_cols", s_.attention);
  Attribute rank("rank", std::int64_t{0});
  rank.per = {{.axis = Axis::tp, .step = 1}};
  sizes.push_back(std::move(rank));
  sizes.emplace_back("rows", s_.tokens);
  return sizes;
}

RecipeOperand KeyParts::queries(const std::string& rows, std::int64_t row) const {
  return strided(on("query", rows), {row, 1});
}

void KeyParts::join(const std::string& suffix) {
  const std::string qkv = "qkv" + suffix;
  const std::string part = "key_part" + suffix;
  const std::string parts = "key_parts" + suffix;
  const auto columns = [&](const char* role, std::int64_t begin) {
    return strided(on(role, qkv), {s_.qkv, 1}, begin);
  };
  b_.kernel(
      "key_part.take" + suffix, KernelKind::take_keys, {{"key_cols", cols()}, {"rows", s_.tokens}},
      {columns("key", s_.attention), columns("value", s_.attention + cols()), on("output", part)});
  b_.gather_parts("key_parts.gather" + suffix, Axis::tp,
                  shaped(on("input", part), Access::read, s_.compute, {s_.tokens, 2 * cols()}),
                  shaped(on("output", parts), Access::write, s_.compute,
                         {s_.tensor_ranks * s_.tokens, 2 * cols()}));
  b_.kernel("qkv.join" + suffix, KernelKind::join_key_parts, sizes(true),
            {queries(qkv, s_.qkv), on("parts", parts), on("output", "qkv.heads" + suffix)});
}

void KeyParts::split_gradients() {
  b_.kernel("d_key_parts.split", KernelKind::split_key_parts, sizes(false),
            {on("input", "d_qkv.heads"), on("parts", "d_key_parts")});
  b_.sum_parts(
      "d_key_parts.sums", Axis::tp,
      shaped(on("input", "d_key_parts"), Access::read, s_.compute,
             {s_.tensor_ranks * s_.tokens, 2 * cols()}),
      shaped(on("output", "d_key_part"), Access::write, s_.compute, {s_.tokens, 2 * cols()}));
  b_.kernel(
      "d_qkv.join", KernelKind::join_keys,
      {{"cols", s_.qkv}, {"key_cols", cols()}, {"query_cols", s_.attention}, {"rows", s_.tokens}},
      {queries("d_qkv.heads", s_.qkv_row), on("key_value", "d_key_part"), on("output", "d_qkv")});
}

}  // namespace mfsdp::recipe
