#include "sim/calibrate/trace_run.hpp"

#include <algorithm>
#include <functional>
#include <map>
#include <set>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>

namespace mfsdp {
namespace {

using traces::CollectiveCall;
using traces::GpuWork;
using traces::HostOperator;
using traces::Trace;
using traces::WorkKind;

double median(std::vector<double> values) {
  const auto middle = values.begin() + std::ssize(values) / 2;
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// GPU work that one operator launched.
struct Launched {
  double ns = 0;
  bool beside_collective = false;
};

/// Times of one shape; those without a concurrent collective are separate.
struct Times {
  std::vector<double> alone{};
  std::vector<double> all{};

  void add(const Launched& launched) {
    all.push_back(launched.ns);
    if (!launched.beside_collective) alone.push_back(launched.ns);
  }
  [[nodiscard]] double one() const { return median(alone.empty() ? all : alone); }
};

std::optional<std::int64_t> bytes_of_type(const std::string& dtype) {
  if (dtype == "Float" || dtype == "Int") return 4;
  if (dtype == "BFloat16" || dtype == "Half") return 2;
  if (dtype == "Double" || dtype == "Long") return 8;
  if (dtype == "Byte" || dtype == "Char") return 1;
  return std::nullopt;
}

class TraceReader {
 public:
  explicit TraceReader(const Trace& trace) : trace_(trace) {}

  Result<TraceRun> run() {
    run_.where = trace_.where;
    if (trace_.work.empty())
      return fail(trace_.where, "has no kernel of a GPU: expected a trace of its activities");
    const bool has_shapes = std::ranges::any_of(
        trace_.operators, [](const HostOperator& o) { return !o.dims.empty(); });
    if (!has_shapes)
      return fail(trace_.where,
                  "has no shapes of operators: expected one of torch.profiler with CPU activities "
                  "and record_shapes=True");
    join_operators();
    read_gemms();
    read_attentions();
    read_copies();
    read_collectives();
    read_launches();
    read_rest();
    return std::move(run_);
  }

 private:
  [[nodiscard]] const std::string& name_of(std::uint32_t name) const { return trace_.names[name]; }

  [[nodiscard]] bool is_beside_collective(const GpuWork& work) const {
    const auto next =
        std::ranges::upper_bound(busy_, work.begin, {}, &std::pair<Nanos, Nanos>::second);
    return next != busy_.end() && next->first < work.end;
  }

  /// Sums the work that each operator launched, and the union of collectives.
  void join_operators() {
    std::vector<std::pair<Nanos, Nanos>> spans;
    for (const CollectiveCall& call : trace_.collectives) spans.emplace_back(call.begin, call.end);
    std::ranges::sort(spans);
    for (const auto& span : spans) {
      if (!busy_.empty() && span.first <= busy_.back().second)
        busy_.back().second = std::max(busy_.back().second, span.second);
      else
        busy_.push_back(span);
    }
    for (std::size_t i = 0; i < trace_.work.size(); ++i) {
      const GpuWork& work = trace_.work[i];
      run_.kernel_ns += static_cast<double>((work.end - work.begin).value);
      const std::int64_t id = trace_.origins[i].external_id;
      if (id == 0) continue;
      Launched& sum = launched_[id];
      sum.ns += static_cast<double>((work.end - work.begin).value);
      sum.beside_collective |= is_beside_collective(work);
    }
  }

  /// Calls `use` for the operators with these names that launched something.
  void each(const std::set<std::string_view>& names, auto use) {
    for (const HostOperator& op : trace_.operators) {
      if (!names.contains(name_of(op.name))) continue;
      const auto found = launched_.find(op.external_id);
      if (op.external_id == 0 || found == launched_.end()) continue;
      if (use(op, found->second)) attributed_.insert(op.external_id);
    }
  }

  // ---- GEMMs -----------------------------------------------------------------------------

  struct Product {
    std::int64_t rows, inner, columns, thread;
    Launched launched;
  };

  /// Rows of the GEMMs of forward and of most gradients; weight gradients sum over them.
  static std::int64_t tokens_of(const std::vector<Product>& products) {
    std::map<std::int64_t, std::int64_t> seen;
    for (const Product& product : products) {
      ++seen[product.rows];
      if (product.inner != product.rows) ++seen[product.inner];
    }
    return std::ranges::max_element(seen, {}, [](const auto& entry) { return entry.second; })
        ->first;
  }

  void read_gemms() {
    std::vector<Product> products;
    each({"aten::mm"}, [&](const HostOperator& op, const Launched& launched) {
      if (op.dims.size() < 2 || op.dims[0].size() != 2 || op.dims[1].size() != 2) return false;
      const bool is_product = op.dims[0][1] == op.dims[1][0] &&
                              std::min({op.dims[0][0], op.dims[0][1], op.dims[1][1]}) > 0;
      if (!is_product) return false;
      products.push_back({.rows = op.dims[0][0],
                          .inner = op.dims[0][1],
                          .columns = op.dims[1][1],
                          .thread = op.thread,
                          .launched = launched});
      return true;
    });
    if (products.empty()) return;
    const std::int64_t tokens = tokens_of(products);
    std::map<std::tuple<GemmKind, std::int64_t, std::int64_t, std::int64_t>, Times> shapes;
    // The forward thread's GEMMs show the weights. GEMMs of another thread with the same shapes are
    // recomputation; the others are gradients.
    const std::int64_t forward = products.front().thread;
    std::set<std::pair<std::int64_t, std::int64_t>> weights;  // outputs, inputs
    for (const Product& product : products)
      if (product.thread == forward && product.rows == tokens)
        weights.emplace(product.columns, product.inner);
    for (const Product& product : products) {
      if (product.inner == tokens) {
        shapes[{GemmKind::weight_gradient, tokens, product.rows, product.columns}].add(
            product.launched);
      } else if (product.rows == tokens) {
        const bool is_gradient =
            product.thread != forward && weights.contains({product.inner, product.columns});
        if (is_gradient)
          shapes[{GemmKind::input_gradient, tokens, product.inner, product.columns}].add(
              product.launched);
        else
          shapes[{GemmKind::forward, tokens, product.columns, product.inner}].add(product.launched);
      }
    }
    for (const auto& [shape, times] : shapes)
      run_.gemms.push_back({.kind = std::get<0>(shape),
                            .m = std::get<1>(shape),
                            .n = std::get<2>(shape),
                            .k = std::get<3>(shape),
                            .count = std::ssize(times.all),
                            .ns = times.one()});
  }

  // ---- Attention -------------------------------------------------------------------------

  void read_attentions() {
    std::map<std::tuple<bool, std::vector<std::int64_t>>, Times> shapes;
    const auto read = [&](bool backward, std::size_t query) {
      return [&shapes, backward, query](const HostOperator& op, const Launched& launched) {
        constexpr std::size_t kAxes = 4;  // batch, heads, sequence, head
        if (op.dims.size() <= query || op.dims[query].size() != kAxes) return false;
        shapes[{backward, op.dims[query]}].add(launched);
        return true;
      };
    };
    each({"aten::_scaled_dot_product_cudnn_attention", "aten::_cudnn_attention_forward",
          "aten::_scaled_dot_product_flash_attention", "aten::_flash_attention_forward"},
         read(false, 0));
    each({"aten::_scaled_dot_product_cudnn_attention_backward", "aten::_cudnn_attention_backward",
          "aten::_scaled_dot_product_flash_attention_backward", "aten::_flash_attention_backward"},
         read(true, 1));
    for (const auto& [shape, times] : shapes) {
      const auto& dims = std::get<1>(shape);
      run_.attentions.push_back({.backward = std::get<0>(shape),
                                 .batch = dims[0],
                                 .heads = dims[1],
                                 .seq = dims[2],
                                 .head_dim = dims[3],
                                 .count = std::ssize(times.all),
                                 .ns = times.one()});
    }
  }

  // ---- Copies ----------------------------------------------------------------------------

  void read_copies() {
    for (std::size_t i = 0; i < trace_.work.size(); ++i) {
      const GpuWork& work = trace_.work[i];
      const std::int64_t bytes = trace_.origins[i].bytes;
      if (work.kind != WorkKind::copy || bytes <= 0) continue;
      copied_ns_ += static_cast<double>((work.end - work.begin).value);
      if (name_of(work.name).find("DtoD") == std::string::npos || is_beside_collective(work))
        continue;
      run_.copies.push_back(
          {.bytes = bytes, .ns = static_cast<double>((work.end - work.begin).value)});
    }
  }

  void read_collectives() {
    std::map<std::tuple<CollectiveKind, std::int64_t, std::int64_t>, TracedCollective> sizes;
    for (const CollectiveCall& call : trace_.collectives) {
      const auto type = bytes_of_type(name_of(call.dtype));
      const auto kind = measured_collective(traces::to_string(call.op));
      if (!type || !kind || call.group_size < 2) continue;
      const std::int64_t elements =
          *kind == CollectiveKind::all_gather ? call.out_elements : call.in_elements;
      if (elements <= 0) continue;
      const Bytes bytes(checked_mul(elements, *type));
      const auto ns = static_cast<double>((call.end - call.begin).value);
      const auto [entry, is_new] = sizes.try_emplace(
          {*kind, call.group_size, bytes.value},
          TracedCollective{
              .kind = *kind, .ranks = call.group_size, .bytes = bytes, .count = 0, .ns = ns});
      ++entry->second.count;
      entry->second.ns = std::min(entry->second.ns, ns);
    }
    for (const auto& [size, collective] : sizes) run_.collectives.push_back(collective);
  }

  // ---- The host --------------------------------------------------------------------------

  void read_launches() {
    std::vector<double> calls;
    for (const traces::HostLaunch& launch : trace_.launches)
      calls.push_back(static_cast<double>((launch.end - launch.begin).value));
    run_.launches = std::ssize(calls);
    constexpr std::ptrdiff_t kLeast = 20;
    if (std::ssize(calls) >= kLeast) run_.launch_ns = median(std::move(calls));
  }

  /// Kernels of operators that are neither GEMM nor attention, by name.
  void read_rest() {
    std::map<std::string, double> rest;
    for (std::size_t i = 0; i < trace_.work.size(); ++i) {
      const GpuWork& work = trace_.work[i];
      const bool is_copy = work.kind == WorkKind::copy && trace_.origins[i].bytes > 0;
      if (is_copy || attributed_.contains(trace_.origins[i].external_id)) continue;
      rest[name_of(work.name)] += static_cast<double>((work.end - work.begin).value);
    }
    for (const auto& [name, ns] : rest) run_.unattributed.push_back({.name = name, .ns = ns});
    std::ranges::stable_sort(run_.unattributed, std::greater{}, &Unattributed::ns);
  }

  const Trace& trace_;
  TraceRun run_;
  std::vector<std::pair<Nanos, Nanos>> busy_;            // collectives, by begin
  std::unordered_map<std::int64_t, Launched> launched_;  // by external id
  std::set<std::int64_t> attributed_;                    // external ids
  double copied_ns_ = 0;
};

}  // namespace

Result<TraceRun> read_trace_run(const Trace& trace) {
  try {
    return TraceReader(trace).run();
  } catch (const OverflowError& error) {
    return fail(trace.where, std::string("its sizes are too large: ") + error.what());
  }
}

}  // namespace mfsdp
