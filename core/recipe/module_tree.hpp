// The model as a tree of modules; identical blocks are one line with a count.
//
//   model                                   7,504,924,672
//     embed_tokens.weight [128256, 4096]      525,336,576
//     layers.0-31  x32                        218,112,000
//       input_layernorm.weight [4096]               4,096
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.hpp"

namespace mfsdp {

/// One line of the tree: a module, a run of identical modules, or a parameter.
struct ModuleNode {
  std::string name;                 ///< "model", "layers.0-31", "qkv_proj.weight"
  std::size_t depth = 0;            ///< 0 at the top
  std::int64_t repeat = 1;          ///< identical siblings on this line
  std::int64_t elements = 0;        ///< parameters in one of them
  std::vector<std::int64_t> shape;  ///< of a parameter; empty for a module

  friend bool operator==(const ModuleNode&, const ModuleNode&) = default;
};

/// The tree in depth-first order, parameters in model order. Numbered siblings with equal contents
/// become one node.
[[nodiscard]] std::vector<ModuleNode> module_nodes(const Model& model);

/// The nodes as text, one line each, with a last line for the sum.
[[nodiscard]] std::string module_tree_text(const Model& model);

}  // namespace mfsdp
