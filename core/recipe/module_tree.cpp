#include "core/recipe/module_tree.hpp"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <boost/graph/adjacency_list.hpp>
#include <iterator>
#include <map>
#include <ranges>

namespace mfsdp {
namespace {

struct Module {
  std::string name;
  std::int64_t elements = 0;
  std::vector<std::int64_t> shape;
  std::string contents;  ///< everything below it, without its own name; equal for equal modules
};

using Tree = boost::adjacency_list<boost::vecS, boost::vecS, boost::directedS, Module>;
using Vertex = boost::graph_traits<Tree>::vertex_descriptor;

/// The position of a parameter's own name: "model.layers.0.mlp.|down_proj.weight".
std::size_t leaf_begin(const std::string& name) {
  const std::size_t last = name.rfind('.');
  if (last == std::string::npos || last == 0) return 0;
  const std::size_t before = name.rfind('.', last - 1);
  return before == std::string::npos ? 0 : before + 1;
}

auto children_of(const Tree& tree, Vertex module) {
  const auto [begin, end] = boost::adjacent_vertices(module, tree);
  return std::ranges::subrange(begin, end);
}

/// Vertex 0 is the root; every vertex comes after its parent.
class TreeBuilder {
 public:
  explicit TreeBuilder(const Model& model) : root_(boost::add_vertex(tree_)) {
    for (const Parameter& parameter : model.parameters) add(parameter);
    for (Vertex v = boost::num_vertices(tree_); v-- > 0;) sum_up(v);
  }

  [[nodiscard]] const Tree& tree() const { return tree_; }

 private:
  void add(const Parameter& parameter) {
    const std::size_t leaf = leaf_begin(parameter.name);
    const Vertex owner = leaf == 0 ? root_ : module_at(parameter.name.substr(0, leaf - 1));
    const Vertex made = add_child(owner, parameter.name.substr(leaf));
    tree_[made].elements = parameter.elements();
    tree_[made].shape = parameter.shape;
  }

  Vertex module_at(const std::string& path) {
    const auto [at, is_new] = modules_.try_emplace(path, root_);
    if (!is_new) return at->second;
    const std::size_t dot = path.rfind('.');
    const Vertex parent = dot == std::string::npos ? root_ : module_at(path.substr(0, dot));
    const std::size_t begin = dot == std::string::npos ? 0 : dot + 1;
    return at->second = add_child(parent, path.substr(begin));
  }

  Vertex add_child(Vertex parent, std::string name) {
    const Vertex made = boost::add_vertex(tree_);
    tree_[made].name = std::move(name);
    boost::add_edge(parent, made, tree_);
    return made;
  }

  void sum_up(Vertex v) {
    Module& module = tree_[v];
    module.contents = fmt::format("{}", module.shape);
    for (const Vertex child : children_of(tree_, v)) {
      module.elements = checked_add(module.elements, tree_[child].elements);
      fmt::format_to(std::back_inserter(module.contents), "({}{})", tree_[child].name,
                     tree_[child].contents);
    }
  }

  Tree tree_;
  Vertex root_;
  std::map<std::string, Vertex> modules_;
};

bool is_number(const std::string& name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string::npos;
}

/// Lists the tree, with a run of identical numbered modules as one line.
class Lister {
 public:
  explicit Lister(const Tree& tree) : tree_(tree) {}

  /// Adds all children of `module`, with `prefix` before their names.
  void list(Vertex module, std::size_t depth, const std::string& prefix) {
    const auto children = children_of(tree_, module);
    for (auto first = children.begin(); first != children.end();) {
      auto last = first;
      std::int64_t repeat = 1;
      for (auto next = std::next(first); next != children.end() && same(*first, *next); ++next) {
        last = next;
        ++repeat;
      }
      std::string name = prefix + tree_[*first].name;
      if (repeat > 1) name.append(1, '-').append(tree_[*last].name);
      emit(*first, depth, name, repeat);
      first = std::next(last);
    }
  }

  [[nodiscard]] std::vector<ModuleNode> take() { return std::move(nodes_); }

 private:
  [[nodiscard]] bool same(Vertex a, Vertex b) const {
    return is_number(tree_[a].name) && is_number(tree_[b].name) &&
           tree_[a].contents == tree_[b].contents;
  }

  [[nodiscard]] bool holds_numbers(Vertex module) const {
    return std::ranges::any_of(children_of(tree_, module),
                               [&](Vertex child) { return is_number(tree_[child].name); });
  }

  void emit(Vertex module, std::size_t depth, const std::string& name, std::int64_t repeat) {
    // A list of numbered modules has no line of its own: "layers.0-31" includes it.
    if (holds_numbers(module)) return list(module, depth, name + ".");
    nodes_.push_back(ModuleNode{.name = name,
                                .depth = depth,
                                .repeat = repeat,
                                .elements = tree_[module].elements,
                                .shape = tree_[module].shape});
    list(module, depth + 1, "");
  }

  const Tree& tree_;
  std::vector<ModuleNode> nodes_;
};

/// 7504924672 as "7,504,924,672".
std::string grouped(std::int64_t value) {
  const std::string digits = std::to_string(value);
  std::string text;
  for (std::size_t i = 0; i < digits.size(); ++i) {
    if (i > 0 && (digits.size() - i) % 3 == 0) text.push_back(',');
    text.push_back(digits[i]);
  }
  return text;
}

}  // namespace

std::vector<ModuleNode> module_nodes(const Model& model) {
  const TreeBuilder builder(model);
  Lister lister(builder.tree());
  lister.list(0, 0, "");
  return lister.take();
}

std::string module_tree_text(const Model& model) {
  std::string text;
  const auto line = [&](const std::string& left, std::int64_t elements) {
    text += fmt::format("{:<56}{:>20}\n", left, grouped(elements));
  };
  for (const ModuleNode& node : module_nodes(model)) {
    std::string left(2 * node.depth, ' ');
    left += node.name;
    if (!node.shape.empty()) left += fmt::format(" [{}]", fmt::join(node.shape, ", "));
    if (node.repeat > 1) left += fmt::format("  x{}", node.repeat);
    line(left, node.elements);
  }
  line("parameters", model.parameter_count());
  return text;
}

}  // namespace mfsdp
