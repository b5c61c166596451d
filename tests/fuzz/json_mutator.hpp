// Mutations after which JSON is still JSON: bytes changed at random hardly ever get past the
// parser, so that the code after it would never be reached.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <string_view>
#include <vector>

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t most);

namespace mfsdp::fuzz {

class JsonMutator {
 public:
  explicit JsonMutator(unsigned seed) : random_(seed) {}

  /// One to three changes somewhere in the document.
  void mutate(nlohmann::json& document) {
    for (std::uint32_t rounds = 1 + below(3); rounds > 0; --rounds) {
      nodes_.clear();
      collect(document);
      change(*nodes_[below(nodes_.size())]);
    }
  }

 private:
  std::uint32_t below(std::size_t bound) {
    return static_cast<std::uint32_t>(random_() % std::max<std::size_t>(bound, 1));
  }

  void collect(nlohmann::json& node) {
    nodes_.push_back(&node);
    if (node.is_structured())
      for (nlohmann::json& child : node) collect(child);
  }

  /// A copy of some node of that type, `otherwise` where a few tries find none.
  nlohmann::json another(nlohmann::json::value_t type, const nlohmann::json& otherwise) {
    for (int tries = 0; tries < 50; ++tries) {
      const nlohmann::json& node = *nodes_[below(nodes_.size())];
      if (node.type() == type) return node;
    }
    return otherwise;
  }

  void change(nlohmann::json& node) {
    if (below(8) == 0) {
      node = nlohmann::json(another(node.type(), node));
    } else if (node.is_number_integer()) {
      node = number(node);
    } else if (node.is_boolean()) {
      node = !node.get<bool>();
    } else if (node.is_array() && !node.empty()) {
      change_array(node);
    } else if (node.is_object() && !node.empty() && below(4) == 0) {
      node.erase(std::next(node.begin(), below(node.size())));
    } else {
      node = nlohmann::json(another(node.type(), node));
    }
  }

  nlohmann::json number(const nlohmann::json& node) {
    static constexpr std::array<std::uint64_t, 14> corners{0,
                                                           1,
                                                           2,
                                                           3,
                                                           64,
                                                           65'535,
                                                           65'536,
                                                           (1ULL << 27),
                                                           (1ULL << 31) - 1,
                                                           (1ULL << 32) - 1,
                                                           1ULL << 53,
                                                           1ULL << 62,
                                                           (1ULL << 63) - 1,
                                                           1ULL << 63};
    switch (below(5)) {
      case 0: return corners.at(below(corners.size()));
      case 1: return node.get<std::uint64_t>() + 1;
      case 2: return node.get<std::uint64_t>() - 1;  // 0 becomes 2^64 - 1
      case 3: return node.get<std::uint64_t>() * 2;
      default: return another(node.type(), node);
    }
  }

  void change_array(nlohmann::json& array) {
    const std::uint32_t at = below(array.size());
    const std::uint32_t other = below(array.size());
    nlohmann::json element = array[at];
    switch (below(4)) {
      case 0: array.erase(at); break;
      case 1: std::swap(array[at], array[other]); break;
      case 2: array.insert(array.begin() + other, std::move(element)); break;
      default: array.push_back(another(element.type(), element)); break;
    }
  }

  std::mt19937 random_;
  std::vector<nlohmann::json*> nodes_;
};

/// nlohmann-json writes by recursion: deeper documents are left to libFuzzer.
inline bool is_deep(std::string_view text) {
  int depth = 0;
  int deepest = 0;
  for (const char c : text) {
    depth += static_cast<int>(c == '[' || c == '{') - static_cast<int>(c == ']' || c == '}');
    deepest = std::max(deepest, depth);
  }
  return deepest > 100;
}

/// For LLVMFuzzerCustomMutator.
inline std::size_t mutate_json(std::uint8_t* data, std::size_t size, std::size_t most,
                               unsigned seed) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  if (seed % 8 == 0 || is_deep(text)) return LLVMFuzzerMutate(data, size, most);
  nlohmann::json document = nlohmann::json::parse(text, nullptr, false);
  if (document.is_discarded()) return LLVMFuzzerMutate(data, size, most);
  JsonMutator(seed).mutate(document);
  const std::string changed =
      document.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  if (changed.size() > most) return LLVMFuzzerMutate(data, size, most);
  std::ranges::copy(changed, data);
  return changed.size();
}

}  // namespace mfsdp::fuzz
