// Expert-parallel blocks: each rank of ep has E / ep of the experts. Rows of tokens are sent there
// in blocks, one for each rank. Buffers hold all rows of a rank's tokens, or the capacity that the
// configuration sets. The outputs of the experts are sent back.
//
//   ends, order of rows by expert -> counts for ranks, order of rows, places of rows: in blocks
//   sent = normed2 of each row's token     all_to_all: received, of all ranks, with their weights
//   counts of ranks -> ends of experts, order and places of arrivals
//   dispatched = received in that order, ... expert_out     leaving = expert_out in its places
//   all_to_all: returned     mlp_out = sum of a token's K rows
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// The name on the receiving ranks of a value that all of them send; empty: no rank sends it.
std::string Model::received(const std::string& sent) {
  static const std::map<std::string, std::string> crossing{
      {"counts for ranks", "counts of ranks"},
      {"sent", "received"},
      {"weights for ranks", "weights of ranks"},
      {"leaving", "returned"},
      {"d_returned", "d_leaving"},
      {"d_received", "d_sent"},
      {"d_weights of ranks", "d_weights for ranks"}};
  const auto found = crossing.find(sent);
  return found == crossing.end() ? "" : found->second;
}

/// The rows of experts that a rank's buffers hold: all that each rank can send, or the configured
/// multiple of an equal share.
Int Model::room() const {
  const Int own = times(rows_, chosen_);
  if (expert_ranks_ == 0) return own;
  if (capacity_.is_null()) return times(own, expert_ranks_);
  const bool whole = !capacity_.is_object();
  const Int num = whole ? capacity_ : capacity_.at("num");
  const Int den = times(whole ? Json(1) : capacity_.at("den"), expert_ranks_);
  if (num < 1 || den < 1) refuse("config: the capacity of experts is 0");
  return times(std::min(own, plus(times(own, num), den - 1) / den), expert_ranks_);
}

/// Adds the expert-parallel size that costs depend on: the rows that tokens of a rank have.
std::map<std::string, Json> Model::with_balance(std::map<std::string, Json> sizes) const {
  if (expert_ranks_ != 0) sizes["balanced_rows"] = times(rows_, chosen_);
  return sizes;
}

void Model::add_orders_of_ranks() {
  const Int own = times(rows_, chosen_);
  const Int all = room();
  const Shape by_token{rows_, chosen_};
  add({.kernel = "peer_order",
       .attributes = {{"experts", experts_},
                      {"m", all},
                      {"peers", expert_ranks_},
                      {"rows", rows_},
                      {"top_k", chosen_}},
       .flows = {reads("ends", "int32", {experts_}, "ends by expert"),
                 reads("row_order", "int32", {own}, "order by expert"),
                 makes("counts", "int32", {experts_}, "counts for ranks"),
                 makes("order", "int32", {all}, "order of rows"),
                 makes("places", "int32", by_token, "places of rows")}});
  const Int here = experts_ / expert_ranks_;
  add({.kernel = "arrival_order",
       .attributes = {{"experts", here}, {"m", all}, {"peers", expert_ranks_}},
       .flows = {reads("counts", "int32", {expert_ranks_, here}, "counts of ranks"),
                 makes("ends", "int32", {here}, "ends of experts"),
                 makes("order", "int32", {all}, "order of arrivals"),
                 makes("places", "int32", {all}, "places of arrivals")}});
}

/// Rows that have arrived, or leave, in another order: of rows, not of tokens with their choices.
void Model::add_arrivals() {
  const Int all = room();
  const Shape wide{all, hidden_};
  const auto moves = [&](const char* from, const char* order, const char* to,
                         std::vector<Flow> beside) {
    std::vector<Flow> flows{reads("input", compute_, wide, from),
                            reads("order", "int32", {all}, order),
                            makes("output", compute_, wide, to)};
    flows.insert(flows.end(), beside.begin(), beside.end());
    add({.kernel = "permute_rows",
         .attributes = with_balance({{"cols", hidden_},
                                     {"m", all},
                                     {"peers", expert_ranks_},
                                     {"rows", all},
                                     {"top_k", 1}}),
         .flows = std::move(flows)});
  };
  const auto weights = [&](const char* from, const char* to) {
    return std::vector{reads("weights", statistic, {all, 1}, from),
                       makes("row_weights", statistic, {all}, to)};
  };
  moves("received", "order of arrivals", "dispatched",
        weights("weights of ranks", "weights of rows"));
  moves("received", "order of arrivals", "dispatched", {});
  moves("expert_out", "places of arrivals", "leaving", {});
  moves("d_leaving", "order of arrivals", "d_expert_out", {});
  moves("d_dispatched", "places of arrivals", "d_received",
        weights("d_weights of rows", "d_weights of ranks"));
}

}  // namespace mfsdp::checker
