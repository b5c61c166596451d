// Experts that are dealt out over the ranks of ep, each of which has E / ep of them: rows of tokens
// go there in blocks, one for each rank, with room for all rows of a rank's tokens or so many, and
// what experts make of them comes back.
//
//   ends, order of rows by expert -> counts for ranks, order of rows, places of rows: in blocks
//   sent = normed2 of each row's token     all_to_all: received, of all ranks, with their weights
//   counts of ranks -> ends of experts, order and places of arrivals
//   dispatched = received in that order, ... expert_out     leaving = expert_out in its places
//   all_to_all: returned     mlp_out = sum of a token's K rows
#include "verify/checker/flows.hpp"
#include "verify/checker/model.hpp"

namespace mfsdp::checker {

/// What ranks have of a value that all of them send. Empty: it is sent by none.
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

/// Rows of experts that a rank has room for: from each rank all that it can have, or as many times
/// an equal share of them as the configuration says.
Int Model::room() const {
  const Int own = times(tokens, chosen_);
  if (expert_ranks_ == 0) return own;
  if (capacity_.is_null()) return times(own, expert_ranks_);
  const bool whole = !capacity_.is_object();
  const Int num = whole ? capacity_ : capacity_.at("num");
  const Int den = times(whole ? Json(1) : capacity_.at("den"), expert_ranks_);
  if (num < 1 || den < 1) refuse("config: the capacity of experts is 0");
  return times(std::min(own, plus(times(own, num), den - 1) / den), expert_ranks_);
}

/// With what costs are of where experts are dealt out: the rows that tokens of a rank have.
std::map<std::string, Json> Model::with_balance(std::map<std::string, Json> sizes) const {
  if (expert_ranks_ != 0) sizes["balanced_rows"] = times(tokens, chosen_);
  return sizes;
}

void Model::add_orders_of_ranks() {
  const Int own = times(tokens, chosen_);
  const Int all = room();
  const Shape by_token{tokens, chosen_};
  add({.kernel = "peer_order",
       .attributes = {{"experts", experts_},
                      {"m", all},
                      {"peers", expert_ranks_},
                      {"rows", tokens},
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
