#include "core/formats/collective_names.hpp"

#include <algorithm>
#include <array>

#include "core/base/text.hpp"

namespace mfsdp::traces {
namespace {

struct OpPattern {
  std::string_view part;
  CollectiveOp op;
};
/// Longer names first: "reducescatter" and "allreduce" contain "reduce".
constexpr std::array kOps{
    OpPattern{"reducescatter", CollectiveOp::reduce_scatter},
    OpPattern{"reduce_scatter", CollectiveOp::reduce_scatter},
    OpPattern{"allgather", CollectiveOp::all_gather},
    OpPattern{"all_gather", CollectiveOp::all_gather},
    OpPattern{"allreduce", CollectiveOp::all_reduce},
    OpPattern{"all_reduce", CollectiveOp::all_reduce},
    OpPattern{"alltoall", CollectiveOp::all_to_all},
    OpPattern{"all_to_all", CollectiveOp::all_to_all},
    OpPattern{"broadcast", CollectiveOp::broadcast},
    OpPattern{"sendrecv", CollectiveOp::send_receive},
    OpPattern{"send", CollectiveOp::send_receive},
    OpPattern{"recv", CollectiveOp::send_receive},
    OpPattern{"reduce", CollectiveOp::reduce},
};

CollectiveOp op_in(std::string_view text) {
  const auto* found = std::ranges::find_if(
      kOps, [&](const OpPattern& row) { return holds_in_any_case(text, row.part); });
  return found == kOps.end() ? CollectiveOp::other : found->op;
}

}  // namespace

bool is_nccl_kernel(std::string_view name) { return holds_in_any_case(name, "nccl"); }

CollectiveOp collective_op(std::string_view kernel, std::string_view collective) {
  const CollectiveOp by_kernel = op_in(kernel);
  if (by_kernel != CollectiveOp::other && by_kernel != CollectiveOp::send_receive) return by_kernel;
  const CollectiveOp by_word = op_in(collective);
  return by_word == CollectiveOp::other ? by_kernel : by_word;
}

}  // namespace mfsdp::traces
